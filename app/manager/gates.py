"""Feature gates: those of OpenKruise with their defaults, and dependencies between gates. Pure.

Gates that OpenKruise does not have are declared by their feature, in ``app/features/*/feature.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.framework.options import Gate, Stage, parse_bool
from app.manager.features import features


def _alpha(effect: str) -> tuple[bool, Stage, str]:
    return False, Stage.ALPHA, effect


def _beta(effect: str, default: bool = True) -> tuple[bool, Stage, str]:
    return default, Stage.BETA, effect


#: The gates of OpenKruise.
_OPENKRUISE: Final[Mapping[str, tuple[bool, Stage, str]]] = {
    "PodWebhook": _beta("serve /mutate-pod and /validate-pod"),
    "KruiseDaemon": _beta("use the node agent: image pulls, container restarts, probes"),
    "DaemonWatchingPod": _beta("the node agent watches the Pods of its node"),
    "CloneSetShortHash": _alpha("the label controller-revision-hash contains only the hash"),
    "KruisePodReadinessGate": _alpha("add the readiness gate KruisePodReady to every new Pod"),
    "PreDownloadImageForInPlaceUpdate": _alpha("pull images before a CloneSet updates in place"),
    "PreDownloadImageForDaemonSetUpdate": _alpha("pull images before a DaemonSet updates"),
    "CloneSetPartitionRollback": _alpha("raising a partition rolls updated Pods back"),
    "CloneSetEventHandlerOptimization": _alpha("Pod events are always coalesced"),
    "PreparingUpdateAsUpdate": _alpha("Pods that are preparing for an update count as updated when scaling"),
    # On by default here: users who set the label expect protection.
    "ResourcesDeletionProtection": _beta("enforce the label policy.kruise.io/delete-protection"),
    "DeletionProtectionForCRDCascadingGate": _alpha("support Cascading protection of CustomResourceDefinitions"),
    "PodUnavailableBudgetDeleteGate": _beta("PodUnavailableBudgets limit deletions and evictions"),
    "PodUnavailableBudgetUpdateGate": _alpha("PodUnavailableBudgets limit updates"),
    "WorkloadSpread": _beta("enable WorkloadSpread"),
    "TemplateNoDefaults": _alpha("do not set defaults in Pod and volume claim templates"),
    "InPlaceUpdateEnvFromMetadata": _beta("update in place when env values come from labels or annotations"),
    "InPlaceWorkloadVerticalScaling": _alpha("workloads resize Pods in place"),
    "InPlacePodVerticalScaling": _alpha("the cluster can resize Pods in place"),
    "StatefulSetAutoDeletePVC": _beta("StatefulSets delete volume claims according to their retention policy"),
    "StatefulSetAutoResizePVCGate": _alpha("StatefulSets expand volume claims"),
    "StatefulSetStartOrdinal": _alpha("support spec.ordinals.start in StatefulSets"),
    "PodIndexLabel": _beta("set the label apps.kubernetes.io/pod-index on Pods of a StatefulSet"),
    "RecreatePodWhenChangeVCTInCloneSetGate": _alpha(
        "a changed volume claim template recreates the Pods of a CloneSet"
    ),
    "SidecarSetPatchPodMetadataDefaultsAllowed": _alpha("a SidecarSet may patch any annotation"),
    "EnableSortSidecarContainerByName": _alpha("injected sidecars are sorted by name"),
    "SidecarTerminator": _alpha("stop the sidecars of a completed Job"),
    "PodProbeMarkerGate": _beta("enable PodProbeMarker"),
    "EnablePodProbeMarkerOnServerless": _alpha("support PodProbeMarker for serverless Pods"),
    "EnhancedLivenessProbe": _alpha("run liveness probes through PodProbeMarker"),
    "ImagePullJobGate": _alpha("enable ImagePullJob and ImageListPullJob"),
    "ResourceDistributionGate": _beta("enable ResourceDistribution", default=False),
    "EnableExternalCerts": _alpha("certificates are managed externally"),
    "ForceDeleteTimeoutExpectationGate": _alpha("drop expectations of a CloneSet that time out"),
    "DefaultHostNetworkHostPortsInPodTemplates": _alpha("set default hostPorts in templates with hostNetwork"),
    "DaemonSetPruneIneligibleNodes": _alpha("a DaemonSet ignores Pods on nodes that became ineligible"),
}
#: Gates that the manager itself reads.
_OF_MANAGER: Final = ("PodWebhook", "KruiseDaemon", "EnableExternalCerts")


def _gates() -> Mapping[str, Gate]:
    """Return OpenKruise's gates and our own. Raises ValueError if a feature uses an undeclared gate."""
    asked = [gate for one in features() for gate in one.gates]
    names = {*_OF_MANAGER, *(gate for gate in asked if isinstance(gate, str))}
    of_controllers = {gate for one in features() for part in one.controllers for gate in part.gates}
    of_admission = {gate for one in features() for part in one.admission for gate in part.gates}
    ours = {gate.name for gate in asked if isinstance(gate, Gate)}
    if unknown := (names | of_controllers | of_admission) - _OPENKRUISE.keys() - ours:
        raise ValueError(f"OpenKruise has no feature gate {', '.join(sorted(unknown))}: declare it")
    found = {
        name: Gate(name, effect, default, stage, acts=name in names)
        for name, (default, stage, effect) in _OPENKRUISE.items()
    }
    for gate in asked:
        if not isinstance(gate, str) and found.setdefault(gate.name, gate) is not gate:
            raise ValueError(f"feature gate {gate.name}: declared twice")
    return found


GATES: Final[Mapping[str, Gate]] = _gates()

#: Aliases used in the documentation of OpenKruise. [MGR-73]
ALIASES: Final[Mapping[str, str]] = {
    "EnhancedLivenessProbeGate": "EnhancedLivenessProbe",
    "ForceDeleteTimeoutExpectationFeatureGate": "ForceDeleteTimeoutExpectationGate",
}
#: Names that set all gates of a stage.
GROUPS: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}

#: Each gate with the gates that are off whenever it is off. [MGR-70, MGR-71]
_FORCED_OFF: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "PodWebhook",
        (
            "KruisePodReadinessGate",
            "PodUnavailableBudgetDeleteGate",
            "PodUnavailableBudgetUpdateGate",
            "WorkloadSpread",
            "SidecarSetPatchPodMetadataDefaultsAllowed",
            "EnhancedLivenessProbe",
            "EnablePodProbeMarkerOnServerless",
        ),
    ),
    (
        "KruiseDaemon",
        (
            "PreDownloadImageForInPlaceUpdate",
            "PreDownloadImageForDaemonSetUpdate",
            "DaemonWatchingPod",
            "InPlaceUpdateEnvFromMetadata",
            "PodProbeMarkerGate",
            "SidecarTerminator",
            "ImagePullJobGate",
            "EnhancedLivenessProbe",
        ),
    ),
    ("ResourcesDeletionProtection", ("DeletionProtectionForCRDCascadingGate", "DeletionProtectionCountsPods")),
)
#: Gates that require ImagePullJobGate. [MGR-72]
_PRE_DOWNLOAD: Final = ("PreDownloadImageForInPlaceUpdate", "PreDownloadImageForDaemonSetUpdate")


def forced_off() -> Mapping[str, list[str]]:
    """Return each gate with the gates it requires."""
    found: dict[str, list[str]] = {}
    for cause, dependants in _FORCED_OFF:
        for one in dependants:
            found.setdefault(one, []).append(cause)
    return found


def forced_on() -> Mapping[str, list[str]]:
    """Return each gate with the gates that turn it on."""
    return {"ImagePullJobGate": list(_PRE_DOWNLOAD)}


class FeatureGateError(ValueError):
    """``--feature-gates`` has an unknown gate or a non-boolean value. The message lists the known gates."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Gates of one process, with defaults, stages, explicit settings and dependencies applied."""

    values: Mapping[str, bool]
    #: Gates that were set by name, not through a stage.
    given: frozenset[str] = frozenset()

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Return the gates that were set by name but have no effect."""
        return tuple(sorted(name for name in self.given if not GATES[name].acts))

    def enabled(self, name: str) -> bool:
        """Return whether a gate is on. Raises KeyError for an unknown gate."""
        return self.values[ALIASES.get(name, name)]


def parse_gates(
    text: str, custom_resource_enable: str = "", defaults: Mapping[str, bool] = MappingProxyType({})
) -> FeatureGates:
    """Parse ``A=true,B=false``. ``custom_resource_enable`` is the legacy variable CUSTOM_RESOURCE_ENABLE; ``defaults``
    override the gates' defaults.

    Raises FeatureGateError.
    """
    groups: dict[Stage, bool] = {}
    explicit: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = item.partition("=")
        name = ALIASES.get(name.strip(), name.strip())
        if name in GROUPS:
            groups[GROUPS[name]] = _boolean(name, value if separator else "")
        elif name in GATES:
            explicit[name] = _boolean(name, value if separator else "")
        else:
            raise FeatureGateError(_unknown(name))
    values = {name: groups.get(gate.stage, defaults.get(name, gate.default)) for name, gate in GATES.items()}
    enabled_kinds = {kind.strip() for kind in custom_resource_enable.split(",") if kind.strip()}
    if enabled_kinds and "SidecarSet" not in enabled_kinds:
        values["PodWebhook"] = False
    values.update(explicit)  # An explicit gate overrides its stage. [MGR-73]
    return FeatureGates(_forced(values), frozenset(explicit))


def _forced(values: dict[str, bool]) -> dict[str, bool]:
    """Apply dependencies, which override explicit settings. [MGR-70 … MGR-72]"""
    for cause, dependants in _FORCED_OFF:
        if not values[cause]:
            values.update(dict.fromkeys(dependants, False))
    if any(values[name] for name in _PRE_DOWNLOAD):
        values["ImagePullJobGate"] = True
    return values


def _boolean(name: str, value: str) -> bool:
    try:
        return parse_bool(value.strip().lower())
    except ValueError as error:
        raise FeatureGateError(f"--feature-gates: {name}: {error}, got {value.strip()!r}") from None


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, GATES, n=1, cutoff=0.7)
    hint = f" (did you mean {near[0]}?)" if near else ""
    known = ", ".join(sorted((*GATES, *GROUPS)))
    return f"--feature-gates: unknown feature gate {name!r}{hint}; known are {known}"
