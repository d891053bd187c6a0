"""API types of UnitedDeployment, and the shares of its subsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import Field

from app.api.fields import NodeSelectorTerm, Toleration
from app.api.model import PRESERVE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, RawObject, SchemaOf, Time, enum

FIXED: Final = "Fixed"
ADAPTIVE: Final = "Adaptive"
MANUAL: Final = "Manual"
STATEFUL_SET: Final = "statefulSetTemplate"
ADVANCED_STATEFUL_SET: Final = "advancedStatefulSetTemplate"
CLONE_SET: Final = "cloneSetTemplate"
DEPLOYMENT: Final = "deploymentTemplate"
TEMPLATES: Final = (STATEFUL_SET, ADVANCED_STATEFUL_SET, CLONE_SET, DEPLOYMENT)

_COMMON_FIELDS: Final[Mapping[str, str]] = {
    "minReadySeconds": "Minimum number of seconds a Pod must be ready before it is considered available.",
    "replicas": "Ignored: the number of replicas is set per subset.",
    "revisionHistoryLimit": "Number of old revisions to keep.",
    "selector": "Ignored: spec.selector is used instead.",
    "template": "Template of the Pods.",
}
#: Descriptions of fields of the native kinds, whose schema this project does not own.
NATIVE_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    STATEFUL_SET: {
        **_COMMON_FIELDS,
        "ordinals": "Ordinal of the first Pod.",
        "persistentVolumeClaimRetentionPolicy": "Whether claims are deleted with the StatefulSet or on scale-in.",
        "podManagementPolicy": "OrderedReady or Parallel.",
        "serviceName": "Name of the Service that governs the StatefulSet.",
        "updateStrategy": "RollingUpdate or OnDelete; the partition is set per subset.",
        "volumeClaimTemplates": "Claims to create for each Pod.",
    },
    DEPLOYMENT: {
        **_COMMON_FIELDS,
        "paused": "Whether the rollout is paused.",
        "progressDeadlineSeconds": "Maximum seconds without progress before a rollout is considered failed.",
        "strategy": "RollingUpdate or Recreate.",
    },
}


def _native(name: str) -> Keywords:
    fields = NATIVE_FIELDS[name]
    return Keywords({"properties": {key: {"description": fields[key], PRESERVE: True} for key in sorted(fields)}})


def _clone_set_spec() -> type[ApiModel]:
    from app.features.cloneset.types import CloneSetSpec

    return CloneSetSpec


def _clone_set_spec_of_either_version() -> type[ApiModel]:
    """Return the v1beta1 spec with a strategy that may also have the flat form of v1alpha1, which conversion nests."""
    from app.features.cloneset.types import CloneSetSpec, ScaleStrategy, UpdateStrategy, UpdateStrategyV1Alpha1

    # Conversion to v1alpha1 omits false. If the schema had a default, each write of an unchanged object would therefore
    # increment the generation.
    class Scale(ScaleStrategy):
        __doc__ = ScaleStrategy.__doc__

        enable_pvc_reuse: bool = Field(default=False, alias="enablePVCReuse")

    class Strategy(UpdateStrategyV1Alpha1, UpdateStrategy):
        __doc__ = UpdateStrategy.__doc__

    class Spec(CloneSetSpec):
        __doc__ = CloneSetSpec.__doc__

        scale_strategy: Scale | None = None  # type: ignore[assignment]
        update_strategy: Strategy | None = None  # type: ignore[assignment]

    return Spec


def _stateful_set_spec() -> type[ApiModel]:
    from app.features.statefulset.types import StatefulSetSpec

    return StatefulSetSpec


class WorkloadTemplate(ApiModel):
    """Template of a workload without its replicas."""

    metadata: RawObject | None = None
    """Labels and annotations of each workload."""


class StatefulSetTemplate(WorkloadTemplate):
    """Template of a native StatefulSet without its replicas."""

    spec: Annotated[RawObject, _native(STATEFUL_SET)]
    """Spec of each StatefulSet. Replicas, selector and partition are set per subset."""


class DeploymentTemplate(WorkloadTemplate):
    """Template of a Deployment without its replicas."""

    spec: Annotated[RawObject, _native(DEPLOYMENT)]
    """Spec of each Deployment. Replicas and selector are set per subset."""


class AdvancedStatefulSetTemplate(WorkloadTemplate):
    """Template of an Advanced StatefulSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_stateful_set_spec)]
    """Spec of each StatefulSet. Replicas, selector and partition are set per subset."""


class CloneSetTemplate(WorkloadTemplate):
    """Template of a CloneSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_clone_set_spec)]
    """Spec of each CloneSet. Replicas, selector and partition are set per subset."""


class CloneSetTemplateV1Alpha1(WorkloadTemplate):
    """Template of a CloneSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_clone_set_spec_of_either_version)]
    """Spec of each CloneSet. Replicas, selector and partition are set per subset."""


class SubsetTemplate(ApiModel):
    """Template for the subsets' workloads. Exactly one of its fields must be set."""

    stateful_set_template: StatefulSetTemplate | None = None
    """Template for native StatefulSets."""
    advanced_stateful_set_template: AdvancedStatefulSetTemplate | None = None
    """Template for Advanced StatefulSets (apps.kruise.io)."""
    clone_set_template: CloneSetTemplate | None = None
    """Template for CloneSets."""
    deployment_template: DeploymentTemplate | None = None
    """Template for Deployments."""


class SubsetTemplateV1Alpha1(SubsetTemplate):
    """Template for the subsets' workloads. Exactly one of its fields must be set."""

    clone_set_template: CloneSetTemplateV1Alpha1 | None = None  # type: ignore[assignment]
    """Template for CloneSets."""


class Subset(ApiModel):
    """Subset describes a workload and where its Pods run."""

    name: str
    """Name of the subset, unique in the topology."""
    node_selector_term: NodeSelectorTerm | None = None
    """Node affinity term that selects the nodes of the subset. Immutable."""
    tolerations: list[Toleration] | None = None
    """Additional tolerations of the Pods. Immutable."""
    replicas: IntOrString | None = None
    """Number of Pods, or a percentage of spec.replicas. Defaults to an equal share of the remaining Pods."""
    min_replicas: IntOrString | None = None
    """Minimum number or percentage of Pods."""
    max_replicas: IntOrString | None = None
    """Maximum number or percentage of Pods. Defaults to no limit."""
    patch: RawObject | None = None
    """Strategic merge patch for the Pod template."""


class AdaptiveStrategy(ApiModel):
    """AdaptiveStrategy describes when a subset is considered unschedulable, and for how long."""

    reschedule_critical_seconds: Int32 | None = None
    """Seconds a Pod may be pending before its subset is considered unschedulable. Defaults to 30."""
    unschedulable_duration: Int32 | None = None
    """Seconds for which a subset is considered unschedulable. Defaults to 300."""
    reserve_unschedulable_pods: bool = False
    """Whether Pods that cannot run are kept, even though substitutes for them run in other subsets."""


class ScheduleStrategy(ApiModel):
    """ScheduleStrategy describes what happens if Pods of a subset cannot be scheduled."""

    type: Annotated[str, enum(ADAPTIVE, FIXED, "")] = ""
    """Fixed (the default) leaves unschedulable Pods in their subset; Adaptive moves them to other subsets."""
    adaptive: AdaptiveStrategy | None = None
    """Parameters of the Adaptive strategy."""


class Topology(ApiModel):
    """Topology describes the subsets."""

    subsets: list[Subset] | None = None
    """Subsets, in the order in which they are filled."""
    schedule_strategy: ScheduleStrategy | None = None
    """What happens if Pods of a subset cannot be scheduled."""


class ManualUpdate(ApiModel):
    """ManualUpdate sets the partition of each subset."""

    partitions: dict[str, Int32] | None = None
    """Number of Pods that keep the old template, by subset name. Defaults to 0."""


class UpdateStrategy(ApiModel):
    """UpdateStrategy describes how a template change is rolled out to the subsets."""

    type: Annotated[str, enum(MANUAL, "")] = ""
    """Must be Manual."""
    manual_update: ManualUpdate | None = None
    """Partition of each subset."""


class UnitedDeploymentSpec(ApiModel):
    """Desired state of the UnitedDeployment."""

    replicas: Int32 | None = None
    """Total desired number of Pods across all subsets. Defaults to 1."""
    selector: LabelSelector
    """Label selector for the Pods. Immutable."""
    template: SubsetTemplate | None = None
    """Template for the subsets' workloads."""
    topology: Topology | None = None
    """The subsets and their schedule strategy."""
    update_strategy: UpdateStrategy | None = None
    """How a template change is rolled out to the subsets."""
    revision_history_limit: Int32 | None = None
    """Number of old revisions to keep. Defaults to 10."""

    @property
    def subsets(self) -> Sequence[Subset]:
        """The subsets, in the order in which they are filled."""
        return (self.topology.subsets or ()) if self.topology is not None else ()

    @property
    def schedule_strategy(self) -> ScheduleStrategy:
        return (self.topology.schedule_strategy if self.topology is not None else None) or ScheduleStrategy()

    @property
    def partitions(self) -> Mapping[str, int]:
        """Number of Pods that stay at the old revision, by subset."""
        manual = self.update_strategy.manual_update if self.update_strategy is not None else None
        return (manual.partitions or {}) if manual is not None else {}


class UnitedDeploymentV1Alpha1Spec(UnitedDeploymentSpec):
    """Desired state of the UnitedDeployment."""

    template: SubsetTemplateV1Alpha1 | None = None
    """Template for the subsets' workloads."""


class Condition(ApiModel):
    """Condition describes one aspect of the state."""

    type: str = ""
    """Type of the condition."""
    status: str = ""
    """Status of the condition: True, False or Unknown."""
    last_transition_time: Time = ""
    """Last time the status changed."""
    reason: str = ""
    """Reason for the last change, in CamelCase."""
    message: str = ""
    """Human-readable details about the last change."""


class SubsetStatus(ApiModel):
    """Observed state of one subset."""

    name: str = ""
    """Name of the subset."""
    replicas: Int32 = 0
    """Number of Pods allocated to the subset."""
    ready_replicas: Int32 = 0
    """Number of ready Pods."""
    partition: Int32 = 0
    """Number of Pods that keep the old template."""
    reserved_pods: Int32 = 0
    """Number of unschedulable Pods that are replaced in other subsets."""
    conditions: list[Condition] | None = None
    """Whether the subset is schedulable."""


class _StatusFields(ApiModel):
    """Status fields that both versions share."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"replicas", "updated_replicas", "current_revision"})

    observed_generation: Int64 = 0
    """Generation of the UnitedDeployment that this status describes."""
    ready_replicas: Int32 = 0
    """Number of ready Pods."""
    replicas: Int32 = 0
    """Number of Pods."""
    updated_replicas: Int32 = 0
    """Number of Pods at the updated revision."""
    updated_ready_replicas: Int32 = 0
    """Number of ready Pods at the updated revision."""
    reserved_pods: Int32 = 0
    """Number of unschedulable Pods that are replaced in other subsets."""
    collision_count: Int32 | None = None
    """Number of hash collisions of revision names so far."""
    current_revision: str = ""
    """Name of the last revision that was rolled out to all Pods."""
    subset_statuses: list[SubsetStatus] | None = None
    """Status of each subset."""
    conditions: list[Condition] | None = None
    """Latest observations of the state of the UnitedDeployment."""
    label_selector: str = ""
    """Label selector in string form, for autoscalers."""


class UnitedDeploymentStatus(_StatusFields):
    """Observed state of the UnitedDeployment."""

    updated_revision: str = ""
    """Name of the revision of the current template."""


class UpdateStatus(ApiModel):
    """Progress of the update."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"updated_revision"})
    always_required: ClassVar[bool] = False

    updated_revision: str = ""
    """Name of the revision of the current template."""
    current_partitions: dict[str, Int32] | None = None
    """Number of Pods that keep the old template, by subset name."""


class UnitedDeploymentStatusV1Alpha1(_StatusFields):
    """Observed state of the UnitedDeployment."""

    subset_replicas: dict[str, Int32] | None = None
    """Number of allocated Pods, by subset name."""
    update_status: UpdateStatus | None = None
    """Progress of the update."""


class UnitedDeployment(KubeObject):
    """UnitedDeployment runs one workload per subset of a topology, all from the same template."""

    spec: UnitedDeploymentSpec
    """Desired state of the UnitedDeployment."""
    status: UnitedDeploymentStatus | None = None
    """Observed state of the UnitedDeployment."""


class UnitedDeploymentV1Alpha1(KubeObject):
    """UnitedDeployment runs one workload per subset of a topology, all from the same template."""

    spec: UnitedDeploymentV1Alpha1Spec
    """Desired state of the UnitedDeployment."""
    status: UnitedDeploymentStatusV1Alpha1 | None = None
    """Observed state of the UnitedDeployment."""


def template_of(spec: UnitedDeploymentSpec) -> tuple[str, dict[str, Any]] | None:
    """Return the name of the template that is set and its content as JSON, or None."""
    given = spec.template.to_dict() if spec.template is not None else {}
    return next(((name, given[name]) for name in TEMPLATES if given.get(name) is not None), None)


# Shares of a UnitedDeployment's replicas. Pure. [UD-34]

#: A number, or a percentage of the replicas.
Share: TypeAlias = int | str

#: Greater than any number of replicas: no limit.
UNLIMITED: Final = 1_000_000
_PERCENT: Final = re.compile(r"[+-]?[0-9]{1,9}%")


class ShareError(ValueError):
    """An invalid share."""


def count_of(share: Share, replicas: int | None) -> int:
    """Return a share as a number; percentages are rounded half up. Raises ShareError. [UD-34]"""
    if isinstance(share, int):
        if share < 0:
            raise ShareError(f"{share} should not be less than 0")
        return share
    if not _PERCENT.fullmatch(share):
        raise ShareError(f"{share[:64]!r} is neither a number nor a percentage such as 30%")
    if replicas is None:
        raise ShareError(f"{share} is a percentage of spec.replicas, which is not set")
    percent = int(share[:-1])
    if not 0 <= percent <= 100:
        raise ShareError(f"{share} should be between 0% and 100%")
    return (percent * replicas * 2 + 100) // 200
