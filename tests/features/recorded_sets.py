"""OpenKruise's recorded answers about SidecarSets, and their comparison with ours.

The recorded answers are in tests/data/openkruise. DIFFERENCES lists intended differences and their rules; a difference
that no longer exists fails as well.
"""

from __future__ import annotations

from typing import Any

from app.features.sidecarset.validation import NATIVE_SIDECARS_WAY_OUT
from tests.admission.recorded import RECORDED_LENGTH, cases, comparable
from tests.features.writing import prefixed

SETS, INJECTIONS = cases("sidecarset"), cases("injection")

BAD_POLICY = (
    'spec.patchPodMetadata[0].patchPolicy: Unsupported value: "Bad": '
    'supported values: "Retain", "Overwrite", "MergePatchJson"'
)
#: (set, step) → the rule, and our message or the fields that differ.
DIFFERENCES: dict[tuple[str, str], tuple[str, str]] = {
    # Names the container and the valid values.
    ("g14", "create"): (
        "SS-20",
        "[spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string(nil), MatchExpressions:"
        "[]v1.LabelSelectorRequirement(nil)}: empty selector is not valid for sidecarset., "
        'spec.containers[0].shareVolumePolicy: Invalid value: v1beta1.ShareVolumePolicy{Type:"Bad"}: unsupported share '
        "volume policy; choose one of: enabled, disabled]",
    ),
    # An unknown policy would have no effect.
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
    # The message explains the error in the expression.
    ("g28", "create"): (
        "SS-67",
        'spec[0].resourcesPolicy.resourcesExpr.limits.cpu: Invalid value: "foo(": invalid expression: '
        'column 1: unknown name "foo"; the variable is cpu, the functions are max and min',
    ),
    # A v1alpha1 read shows the namespace that was written.
    ("g16", "updated"): ("SS-4", "namespace default, beside the namespaceSelector written with it"),
}
#: Refused here at creation, so there is nothing to update.
NEVER_STORED = frozenset({"g1"})


def judged(name: str, step: str, refusal: str, ok: bool, message: str) -> None:
    """Compare a decision with the recorded one. ``refusal`` is printed by kubectl; empty if the set was accepted."""
    refusal = refusal.replace(NATIVE_SIDECARS_WAY_OUT, "")
    if (name, step) in DIFFERENCES:
        expected = prefixed(DIFFERENCES[name, step][1])
        assert refusal == expected
        assert expected != message, f"{name} {step}: no longer different"
    else:
        assert refusal[:RECORDED_LENGTH] == message, (refusal, message)
        assert (not refusal) is ok


def read_alike(name: str, step: str, ours: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Compare an object as read with the recorded one."""
    ours = comparable(ours)
    if (name, step) in DIFFERENCES:
        assert ours != recorded, f"{name} {step}: no longer different"
        for field in ("namespace", "namespaceSelector"):
            ours["spec"].pop(field, None)
            recorded = {**recorded, "spec": {k: v for k, v in recorded["spec"].items() if k != field}}
    assert ours == recorded
