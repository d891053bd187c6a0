"""Every recorded SidecarSet gets OpenKruise's decision and message, and is stored alike."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.sidecarset.webhooks import mutate
from app.kube.admission import Allowed
from tests.admission.writing import ALPHA, BETA
from tests.features.recorded_sets import INJECTIONS, NEVER_STORED, SETS, judged, read_alike
from tests.features.writing import Lookups, Written, prefixed, review, write


def shown(written: Written) -> str:
    """Return a refusal as kubectl prints it: the API server's or a webhook's."""
    if written.obj is not None:
        return ""
    return written.message if written.message.startswith("SidecarSet.") else prefixed(written.message)


@pytest.mark.behaviour(
    "SS-1", "SS-2", "SS-3", "SS-5", "SS-6", "SS-7", "SS-8", "SS-16", "SS-17", "SS-18", "SS-19", "SS-20", "SS-21",
    "SS-23", "SS-24", "SS-25", "SS-26", "SS-27", "SS-28",
)  # fmt: skip
@pytest.mark.parametrize("case", SETS, ids=[case["manifest"]["metadata"]["name"] for case in SETS])
def test_a_recorded_set_is_validated_and_stored_alike(case: dict[str, Any]) -> None:
    manifest = case["manifest"]
    name, version = manifest["metadata"]["name"], manifest["apiVersion"]
    created = write(manifest)
    judged(name, "create", shown(created), case["ok"], case["message"])
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
    judged(name, "update", shown(updated), update["ok"], update["message"])
    if updated.obj is not None:
        read_alike(name, "updated", updated.seen(version), update["result"])


@pytest.mark.behaviour("SS-15")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_taking_over_an_openkruise_set_changes_nothing(version: str) -> None:
    stored = [case[version] for case in SETS if case["ok"]]
    assert len(stored) > 30
    for obj in stored:
        assert mutate(review(obj, obj)) == Allowed(), obj["metadata"]["name"]


@pytest.mark.behaviour("SS-21", "SS-23", "SS-24", "SS-30")
@pytest.mark.parametrize("number", range(len(INJECTIONS)))
def test_sets_of_recorded_injections_are_validated_alike(number: int) -> None:
    case = INJECTIONS[number]
    sets: list[Any] = []
    outcomes = []
    for manifest in case["sets"]:
        written = write(manifest, lookups=Lookups(sets))
        outcomes.append(written.obj is not None)
        if written.obj is not None:
            sets.append(written.model())
    assert outcomes == case["accepted"]
