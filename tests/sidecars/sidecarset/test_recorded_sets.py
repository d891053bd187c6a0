"""Every SidecarSet OpenKruise was asked about, judged alike here: accepted or refused, the message, and what is stored.

The recorded answers are in tests/data/openkruise. Where we differ on purpose, DIFFERENCES says how and by which rule;
a difference that no longer exists fails as well.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.sidecars.writing import ALPHA, BETA, Lookups, Written, prefixed, write

DATA = Path(__file__).parents[2] / "data" / "openkruise"
SETS: list[dict[str, Any]] = json.loads((DATA / "samples-sidecarset.json").read_text("utf-8"))
INJECTIONS: list[dict[str, Any]] = json.loads((DATA / "samples-injection.json").read_text("utf-8"))
#: Recorded messages were cut to this many characters.
RECORDED = 400

BAD_POLICY = (
    'spec.patchPodMetadata[0].patchPolicy: Unsupported value: "Bad": '
    'supported values: "Retain", "Overwrite", "MergePatchJson"'
)
#: (set, step) → the rule, and our message or what reads differently.
DIFFERENCES: dict[tuple[str, str], tuple[str, str]] = {
    # An unknown policy would silently do nothing.
    ("g1", "create"): ("SS-34", BAD_POLICY),
    ("g50", "update"): ("SS-34", BAD_POLICY),
    ("g51", "update"): ("SS-34", BAD_POLICY),
    ("g6", "update"): (
        "SS-34",
        '[spec.containers.upgradeStrategy.upgradeType: Invalid value: "s": container s upgradeType is immutable, '
        f"{BAD_POLICY}]",
    ),
    # Hot upgrade without the idle twin's image: every Pod would be refused.
    ("g30", "update"): (
        "SS-34",
        '[spec.containers.upgradeStrategy.upgradeType: Invalid value: "s": container s upgradeType is immutable, '
        "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage: Required value: the idle twin of s needs an image]",
    ),
    # Nothing would ever be updated.
    ("g48", "create"): (
        "SS-34",
        "spec.updateStrategy.maxUnavailable: Invalid value: 0: may not be 0 when partition is 0: no ready Pod would "
        "ever be updated; set paused to hold an update",
    ),
    # The expression's mistake is said in words.
    ("g28", "create"): (
        "SS-67",
        'spec[0].resourcesPolicy.resourcesExpr.limits.cpu: Invalid value: "foo(": invalid expression: '
        'column 1: unknown name "foo"; the variable here is cpu, the functions are max and min',
    ),
    # Conversion loses nothing: an empty name stays an empty name.
    ("g8", "updated"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    ("g47", "v1alpha1"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    ("g49", "v1alpha1"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    ("g55", "created"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    ("g55", "v1alpha1"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    ("g55", "updated"): ("D-1", 'imagePullSecrets [{"name": ""}]'),
    # A v1alpha1 read shows the namespace that was written.
    ("g16", "updated"): ("SS-4", "namespace default, beside the namespaceSelector written with it"),
}
#: Refused here at creation, so there is nothing to update.
NEVER_STORED = frozenset({"g1", "g48"})


def judged(name: str, step: str, written: Written, ok: bool, message: str) -> None:
    if (name, step) in DIFFERENCES:
        expected = DIFFERENCES[name, step][1]
        assert written.obj is None
        assert written.message == expected
        assert prefixed(expected) != message, f"{name} {step}: no difference any more"
        return
    assert (written.obj is not None) is ok, written.message
    if not ok:
        shown = written.message if message.startswith("SidecarSet.") else prefixed(written.message)
        assert shown[:RECORDED] == message


def comparable(obj: dict[str, Any]) -> dict[str, Any]:
    """Without what conversion notes for itself."""
    obj = copy.deepcopy(obj)
    obj["metadata"].get("annotations", {}).pop("kruise.io/conversion-data", None)
    return obj


def read_alike(name: str, step: str, ours: dict[str, Any], recorded: dict[str, Any]) -> None:
    ours = comparable(ours)
    if (name, step) in DIFFERENCES:
        assert ours != recorded, f"{name} {step}: no difference any more"
        rule = DIFFERENCES[name, step][0]
        changed = {"D-1": ("imagePullSecrets",), "SS-4": ("namespace", "namespaceSelector")}[rule]
        for field in changed:
            ours["spec"].pop(field, None)
            recorded = {**recorded, "spec": {k: v for k, v in recorded["spec"].items() if k != field}}
    assert ours == recorded


@pytest.mark.behaviour(
    "SS-1", "SS-2", "SS-3", "SS-5", "SS-6", "SS-7", "SS-8", "SS-16", "SS-17", "SS-18", "SS-19", "SS-20", "SS-21",
    "SS-23", "SS-24", "SS-25", "SS-26", "SS-27", "SS-28",
)  # fmt: skip
@pytest.mark.parametrize("case", SETS, ids=[case["manifest"]["metadata"]["name"] for case in SETS])
def test_a_recorded_set_is_judged_and_stored_alike(case: dict[str, Any]) -> None:
    manifest = case["manifest"]
    name, version = manifest["metadata"]["name"], manifest["apiVersion"]
    created = write(manifest)
    judged(name, "create", created, case["ok"], case["message"])
    if not case["ok"]:
        return
    if created.obj is None:
        assert name in NEVER_STORED
        created = Written(case["created"])
    else:
        read_alike(name, "created", created.seen(version), case["created"])
        read_alike(name, "v1alpha1", created.seen(ALPHA), case["v1alpha1"])
        read_alike(name, "v1beta1", created.seen(BETA), case["v1beta1"])
    before = created.seen(version)
    update = case["update"]
    updated = write({**manifest, "metadata": before["metadata"], "spec": update["manifest"]}, before)
    judged(name, "update", updated, update["ok"], update["message"])
    if updated.obj is not None:
        read_alike(name, "updated", updated.seen(version), update["result"])


@pytest.mark.behaviour("SS-21", "SS-23", "SS-24", "SS-30")
@pytest.mark.parametrize("number", range(len(INJECTIONS)))
def test_sets_of_the_recorded_injections_are_accepted_or_refused_alike(number: int) -> None:
    case = INJECTIONS[number]
    sets: list[Any] = []
    outcomes = []
    for manifest in case["sets"]:
        written = write(manifest, lookups=Lookups(sets))
        outcomes.append(written.obj is not None)
        if written.obj is not None:
            sets.append(written.model())
    assert outcomes == case["accepted"]
