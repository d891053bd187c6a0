"""Feature gates: OpenKruise's, those that features declare, and which gate forces which. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.framework.options import Gate, Stage
from app.manager.features import features


def _alpha(effect: str, default: bool = False) -> tuple[bool, Stage, str]:
    return default, Stage.ALPHA, effect


def _beta(effect: str, default: bool = True) -> tuple[bool, Stage, str]:
    return default, Stage.BETA, effect


#: The gates of OpenKruise. Which of them have an effect follows from who asks them.
_OPENKRUISE: Final[Mapping[str, tuple[bool, Stage, str]]] = {
    "PodWebhook": _beta("serve /mutate-pod and /validate-pod"),
    "KruiseDaemon": _beta("the node agent: image pulling, container restarts, probes"),
    "DaemonWatchingPod": _beta("the node agent watches the Pods of its node"),
    "CloneSetShortHash": _alpha("the label controller-revision-hash holds the bare hash"),
    "KruisePodReadinessGate": _alpha("the readiness gate KruisePodReady goes into every new Pod"),
    "PreDownloadImageForInPlaceUpdate": _alpha("images are pulled before a CloneSet updates in place"),
    "PreDownloadImageForDaemonSetUpdate": _alpha("images are pulled before a DaemonSet updates"),
    "CloneSetPartitionRollback": _alpha("raising a partition takes updated Pods back"),
    "CloneSetEventHandlerOptimization": _alpha("events of Pods are coalesced in any case"),
    "PreparingUpdateAsUpdate": _alpha("Pods that prepare an update count as updated when scaling"),
    # D-15: on by default here, for who writes the label means it.
    "ResourcesDeletionProtection": _beta("the label policy.kruise.io/delete-protection is obeyed"),
    "DeletionProtectionForCRDCascadingGate": _alpha("Cascading protection of CustomResourceDefinitions"),
    "PodUnavailableBudgetDeleteGate": _beta("budgets judge deletions and evictions"),
    "PodUnavailableBudgetUpdateGate": _alpha("budgets judge updates"),
    "WorkloadSpread": _beta("WorkloadSpread"),
    "TemplateNoDefaults": _alpha("Pod and volume claim templates are not defaulted"),
    "InPlaceUpdateEnvFromMetadata": _beta("in-place update when env comes from labels or annotations"),
    "InPlaceWorkloadVerticalScaling": _alpha("workloads resize Pods in place"),
    "InPlacePodVerticalScaling": _alpha("the cluster can resize Pods in place"),
    "StatefulSetAutoDeletePVC": _beta("StatefulSets delete volume claims as their policy says"),
    "StatefulSetAutoResizePVCGate": _alpha("StatefulSets expand volume claims"),
    "StatefulSetStartOrdinal": _alpha("spec.ordinals.start of a StatefulSet"),
    "PodIndexLabel": _beta("the label apps.kubernetes.io/pod-index on Pods of a StatefulSet"),
    "RecreatePodWhenChangeVCTInCloneSetGate": _alpha("a changed volume claim template recreates Pods of a CloneSet"),
    "SidecarSetPatchPodMetadataDefaultsAllowed": _alpha("a SidecarSet may patch any annotation"),
    "EnableSortSidecarContainerByName": _alpha("injected sidecars are sorted by name"),
    "SidecarTerminator": _alpha("sidecars of a finished job are stopped"),
    "PodProbeMarkerGate": _beta("PodProbeMarker"),
    "EnablePodProbeMarkerOnServerless": _alpha("PodProbeMarker for serverless Pods"),
    "EnhancedLivenessProbe": _alpha("liveness probes through PodProbeMarker"),
    "ImagePullJobGate": _alpha("ImagePullJob and ImageListPullJob"),
    "ResourceDistributionGate": _beta("ResourceDistribution", default=False),
    "EnableExternalCerts": _alpha("certificates come from outside"),
    "ForceDeleteTimeoutExpectationGate": _alpha("expectations of a CloneSet that time out are dropped"),
    "DefaultHostNetworkHostPortsInPodTemplates": _alpha("hostPort is defaulted in templates with hostNetwork"),
    "DaemonSetPruneIneligibleNodes": _alpha("a DaemonSet ignores Pods on nodes that became ineligible"),
}
#: The gates that the manager itself asks.
_OF_MANAGER: Final = ("PodWebhook", "KruiseDaemon", "EnableExternalCerts")


def _gates() -> Mapping[str, Gate]:
    """OpenKruise's gates and our own. Raises ValueError for a feature's gate that is neither."""
    asked = [gate for one in features() for gate in one.gates]
    names = {*_OF_MANAGER, *(gate for gate in asked if isinstance(gate, str))}
    if unknown := names - _OPENKRUISE.keys():
        raise ValueError(f"OpenKruise has no feature gate {', '.join(sorted(unknown))}: declare it")
    found = {
        name: Gate(name, effect, default, stage, acts=name in names)
        for name, (default, stage, effect) in _OPENKRUISE.items()
    }
    for gate in asked:
        if not isinstance(gate, str) and found.setdefault(gate.name, gate) is not gate:
            raise ValueError(f"feature gate {gate.name}: is declared twice")
    return found


GATES: Final[Mapping[str, Gate]] = _gates()

#: MGR-73: what the documentation of OpenKruise calls two of them.
ALIASES: Final[Mapping[str, str]] = {
    "EnhancedLivenessProbeGate": "EnhancedLivenessProbe",
    "ForceDeleteTimeoutExpectationFeatureGate": "ForceDeleteTimeoutExpectationGate",
}
#: These two switch a whole stage.
GROUPS: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}

#: MGR-70, MGR-71: these are off whenever the first is.
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
#: MGR-72: either of these needs ImagePullJobGate.
_PRE_DOWNLOAD: Final = ("PreDownloadImageForInPlaceUpdate", "PreDownloadImageForDaemonSetUpdate")


def forced_off() -> Mapping[str, list[str]]:
    """Gate → those without which it is off."""
    found: dict[str, list[str]] = {}
    for cause, dependants in _FORCED_OFF:
        for one in dependants:
            found.setdefault(one, []).append(cause)
    return found


def forced_on() -> Mapping[str, list[str]]:
    """Gate → those with any of which it is on."""
    return {"ImagePullJobGate": list(_PRE_DOWNLOAD)}


class FeatureGateError(ValueError):
    """``--feature-gates`` names an unknown gate or no boolean; the message lists the known gates."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates of one process after defaults, groups, explicit settings and forcing."""

    values: Mapping[str, bool]
    #: The gates that were named, not those of a group.
    given: frozenset[str] = frozenset()

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Gates that were named and that nothing here asks."""
        return tuple(sorted(name for name in self.given if not GATES[name].acts))

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a name that is no gate."""
        return self.values[ALIASES.get(name, name)]


def parse_gates(text: str, custom_resource_enable: str = "") -> FeatureGates:
    """Gates from ``A=true,B=false``; ``custom_resource_enable`` is the legacy variable CUSTOM_RESOURCE_ENABLE.

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
    values = {name: groups.get(gate.stage, gate.default) for name, gate in GATES.items()}
    enabled_kinds = {kind.strip() for kind in custom_resource_enable.split(",") if kind.strip()}
    if enabled_kinds and "SidecarSet" not in enabled_kinds:
        values["PodWebhook"] = False
    values.update(explicit)  # MGR-73: an explicit gate beats its group
    return FeatureGates(_forced(values), frozenset(explicit))


def _forced(values: dict[str, bool]) -> dict[str, bool]:
    """MGR-70 … MGR-72: forcing overrides explicit settings."""
    for cause, dependants in _FORCED_OFF:
        if not values[cause]:
            values.update(dict.fromkeys(dependants, False))
    if any(values[name] for name in _PRE_DOWNLOAD):
        values["ImagePullJobGate"] = True
    return values


def _boolean(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise FeatureGateError(f"--feature-gates: {name}: expected true or false, got {value.strip()!r}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, GATES, n=1, cutoff=0.7)
    hint = f" (did you mean {near[0]}?)" if near else ""
    known = ", ".join(sorted((*GATES, *GROUPS)))
    return f"--feature-gates: unknown feature gate {name!r}{hint}; known are {known}"
