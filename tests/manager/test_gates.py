"""Feature gates: defaults, groups, gates that force others off, errors."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.framework.options import Stage
from app.manager.features import features
from app.manager.gates import GATES, FeatureGateError, parse_gates

NEEDS_POD_WEBHOOK = [
    "KruisePodReadinessGate",
    "PodUnavailableBudgetDeleteGate",
    "PodUnavailableBudgetUpdateGate",
    "WorkloadSpread",
    "SidecarSetPatchPodMetadataDefaultsAllowed",
    "EnhancedLivenessProbe",
    "EnablePodProbeMarkerOnServerless",
]
NEEDS_DAEMON = [
    "PreDownloadImageForInPlaceUpdate",
    "PreDownloadImageForDaemonSetUpdate",
    "DaemonWatchingPod",
    "InPlaceUpdateEnvFromMetadata",
    "PodProbeMarkerGate",
    "SidecarTerminator",
    "ImagePullJobGate",
    "EnhancedLivenessProbe",
]


def test_defaults_match_the_table() -> None:
    gates = parse_gates("")
    on = {name for name in GATES if gates.enabled(name)}
    assert on == {
        "PodWebhook",
        "KruiseDaemon",
        "DaemonWatchingPod",
        "ResourcesDeletionProtection",
        "PodUnavailableBudgetDeleteGate",
        "WorkloadSpread",
        "InPlaceUpdateEnvFromMetadata",
        "StatefulSetAutoDeletePVC",
        "PodIndexLabel",
        "PodProbeMarkerGate",
    }


@pytest.mark.behaviour("MGR-73")
def test_an_explicit_gate_overrides_its_group() -> None:
    gates = parse_gates("AllAlpha=true,CloneSetShortHash=false,AllBeta=false,PodIndexLabel=true,PodWebhook=true")
    assert gates.enabled("PreparingUpdateAsUpdate")
    assert not gates.enabled("CloneSetShortHash")
    assert gates.enabled("PodIndexLabel")
    assert not gates.enabled("StatefulSetAutoDeletePVC")


@pytest.mark.behaviour("MGR-73")
def test_documented_spellings_are_the_same_gates() -> None:
    gates = parse_gates("EnhancedLivenessProbeGate=true,ForceDeleteTimeoutExpectationFeatureGate=true")
    assert gates.enabled("EnhancedLivenessProbe")
    assert gates.enabled("ForceDeleteTimeoutExpectationGate")
    assert gates.enabled("EnhancedLivenessProbeGate")


@pytest.mark.behaviour("MGR-70")
def test_without_the_pod_webhook_dependent_gates_are_off() -> None:
    explicit = ",".join(f"{name}=true" for name in NEEDS_POD_WEBHOOK)
    gates = parse_gates(f"{explicit},PodWebhook=false")
    assert not any(gates.enabled(name) for name in NEEDS_POD_WEBHOOK)
    assert gates.enabled("ResourcesDeletionProtection")


@pytest.mark.behaviour("MGR-71")
def test_without_the_daemon_dependent_gates_are_off() -> None:
    explicit = ",".join(f"{name}=true" for name in NEEDS_DAEMON)
    gates = parse_gates(f"{explicit},KruiseDaemon=false")
    assert not any(gates.enabled(name) for name in NEEDS_DAEMON)


@pytest.mark.behaviour("MGR-72")
@pytest.mark.parametrize("gate", ["PreDownloadImageForInPlaceUpdate", "PreDownloadImageForDaemonSetUpdate"])
def test_predownload_needs_image_pull_jobs(gate: str) -> None:
    assert parse_gates(f"{gate}=true,ImagePullJobGate=false").enabled("ImagePullJobGate")
    assert not parse_gates(f"{gate}=true,KruiseDaemon=false").enabled("ImagePullJobGate")


@pytest.mark.behaviour("MGR-72")
def test_cascading_protection_needs_protection() -> None:
    gate = "DeletionProtectionForCRDCascadingGate"
    assert parse_gates(f"{gate}=true").enabled(gate)
    assert not parse_gates(f"{gate}=true,ResourcesDeletionProtection=false").enabled(gate)


@pytest.mark.behaviour("MGR-73")
def test_groups_do_not_affect_our_own_gates() -> None:
    ours = {gate.name for one in features() for gate in one.gates if not isinstance(gate, str)}
    assert {name for name, gate in GATES.items() if gate.stage is Stage.OURS} == ours
    gates = parse_gates("AllAlpha=true,AllBeta=true")
    assert not any(map(gates.enabled, ours))
    assert parse_gates("AllAlpha=false,CloneSetInPlaceSurge=true").enabled("CloneSetInPlaceSurge")


def test_the_legacy_kind_list_disables_the_pod_webhook() -> None:
    assert not parse_gates("", custom_resource_enable="CloneSet,StatefulSet").enabled("PodWebhook")
    assert parse_gates("", custom_resource_enable="CloneSet, SidecarSet").enabled("PodWebhook")
    assert parse_gates("PodWebhook=true", custom_resource_enable="CloneSet").enabled("PodWebhook")
    assert parse_gates("", custom_resource_enable="").enabled("PodWebhook")


def test_an_unknown_gate_is_refused_with_the_known_names() -> None:
    with pytest.raises(FeatureGateError) as refused:
        parse_gates("PodWebhok=true")
    assert "unknown feature gate 'PodWebhok' (did you mean PodWebhook?); known are " in str(refused.value)
    for name in (*GATES, "AllAlpha", "AllBeta"):
        assert name in str(refused.value)


@pytest.mark.parametrize("text", ["PodWebhook", "PodWebhook=", "PodWebhook=yes", "AllAlpha=2"])
def test_a_gate_value_is_a_boolean(text: str) -> None:
    with pytest.raises(FeatureGateError, match=r": expected true or false, got '"):
        parse_gates(text)


def test_spaces_and_empty_items_are_ignored() -> None:
    assert parse_gates(" CloneSetShortHash = true ,, ").enabled("CloneSetShortHash")


@given(st.dictionaries(st.sampled_from([*GATES, "AllAlpha", "AllBeta"]), st.booleans()))
def test_forced_gates_beat_explicit_ones(said: dict[str, bool]) -> None:
    gates = parse_gates(",".join(f"{name}={str(value).lower()}" for name, value in said.items()))
    if not gates.enabled("PodWebhook"):
        assert not any(gates.enabled(name) for name in NEEDS_POD_WEBHOOK)
    if not gates.enabled("KruiseDaemon"):
        assert not any(gates.enabled(name) for name in NEEDS_DAEMON)
    assert set(gates.values) == set(GATES)
    assert {gate.stage for gate in GATES.values()} == set(Stage)


@pytest.mark.behaviour("MGR-10")
def test_help_lists_exactly_the_gates_without_effect() -> None:
    app = Path(__file__).parent.parent.parent / "app"
    # The node agent parses its own gates, and a takeover writes them.
    files = [path for path in app.rglob("*.py") if {"daemon", "takeover"}.isdisjoint(path.relative_to(app).parts)]
    code = "\n".join(path.read_text("utf-8") for path in files if path != app / "manager" / "gates.py")
    asked = {name for name in GATES if f'"{name}"' in code}
    # KruiseDaemon forces other gates off.
    expected = asked | {"KruiseDaemon"}
    assert {name for name, gate in GATES.items() if gate.acts} == expected
    named = parse_gates("AllAlpha=true,CloneSetEventHandlerOptimization=true,CloneSetShortHash=true")
    assert named.without_effect == ("CloneSetEventHandlerOptimization",)
