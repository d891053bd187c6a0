"""The fields of UnitedDeployment, and the shares of its subsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias

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
RESCHEDULE_CRITICAL_SECONDS: Final = 30
"""rescheduleCriticalSeconds where it is not set."""
UNSCHEDULABLE_SECONDS: Final = 300
"""unschedulableDuration where it is not set."""

_COMMON_FIELDS: Final[Mapping[str, str]] = {
    "minReadySeconds": "Seconds a Pod must be ready to count as available.",
    "replicas": "Not used: each subset has its own number.",
    "revisionHistoryLimit": "Number of old revisions kept.",
    "selector": "Not used: spec.selector counts.",
    "template": "The Pod template.",
}
#: Fields of the native kinds whose schema this project does not own, with their descriptions.
NATIVE_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    STATEFUL_SET: {
        **_COMMON_FIELDS,
        "ordinals": "The first ordinal.",
        "persistentVolumeClaimRetentionPolicy": "Whether claims are deleted with the StatefulSet or when it scales in.",
        "podManagementPolicy": "OrderedReady or Parallel.",
        "serviceName": "The Service that governs the StatefulSet.",
        "updateStrategy": "RollingUpdate or OnDelete; the partition is set per subset.",
        "volumeClaimTemplates": "Claims that each Pod gets.",
    },
    DEPLOYMENT: {
        **_COMMON_FIELDS,
        "paused": "Whether the rollout is paused.",
        "progressDeadlineSeconds": "Seconds a rollout may make no progress before it counts as failed.",
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
    """The spec of v1beta1, whose strategy may be written as in v1alpha1; conversion nests it."""
    from app.features.cloneset.types import CloneSetSpec, UpdateStrategy, UpdateStrategyV1Alpha1

    class Strategy(UpdateStrategyV1Alpha1, UpdateStrategy):
        __doc__ = UpdateStrategy.__doc__

    class Spec(CloneSetSpec):
        __doc__ = CloneSetSpec.__doc__

        update_strategy: Strategy | None = None  # type: ignore[assignment]

    Spec.model_fields["update_strategy"].description = CloneSetSpec.model_fields["update_strategy"].description
    return Spec


def _stateful_set_spec() -> type[ApiModel]:
    from app.features.statefulset.types import StatefulSetSpec

    return StatefulSetSpec


class WorkloadTemplate(ApiModel):
    """A workload without its replicas."""

    metadata: RawObject | None = None
    """Labels and annotations of each workload."""


class StatefulSetTemplate(WorkloadTemplate):
    """A native StatefulSet without its replicas."""

    spec: Annotated[RawObject, _native(STATEFUL_SET)]
    """The spec of each StatefulSet. Replicas, selector and partition are filled in per subset."""


class DeploymentTemplate(WorkloadTemplate):
    """A Deployment without its replicas."""

    spec: Annotated[RawObject, _native(DEPLOYMENT)]
    """The spec of each Deployment. Replicas and selector are filled in per subset."""


class AdvancedStatefulSetTemplate(WorkloadTemplate):
    """An Advanced StatefulSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_stateful_set_spec)]
    """The spec of each StatefulSet. Replicas, selector and partition are filled in per subset."""


class CloneSetTemplate(WorkloadTemplate):
    """A CloneSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_clone_set_spec)]
    """The spec of each CloneSet. Replicas, selector and partition are filled in per subset."""


class CloneSetTemplateV1Alpha1(WorkloadTemplate):
    """A CloneSet without its replicas."""

    spec: Annotated[RawObject, SchemaOf(_clone_set_spec_of_either_version)]
    """The spec of each CloneSet. Replicas, selector and partition are filled in per subset."""


class SubsetTemplate(ApiModel):
    """The template of the subsets' workloads: exactly one of these."""

    stateful_set_template: StatefulSetTemplate | None = None
    """Native StatefulSets."""
    advanced_stateful_set_template: AdvancedStatefulSetTemplate | None = None
    """Advanced StatefulSets (apps.kruise.io)."""
    clone_set_template: CloneSetTemplate | None = None
    """CloneSets."""
    deployment_template: DeploymentTemplate | None = None
    """Deployments."""


class SubsetTemplateV1Alpha1(SubsetTemplate):
    """The template of the subsets' workloads: exactly one of these."""

    clone_set_template: CloneSetTemplateV1Alpha1 | None = None  # type: ignore[assignment]
    """CloneSets."""


class Subset(ApiModel):
    """One subset: a workload, and where its Pods run."""

    name: str
    """Its name, once in the topology."""
    node_selector_term: RawObject | None = None
    """The nodes of its Pods, as a term of a node affinity. Cannot be changed."""
    tolerations: list[RawObject] | None = None
    """Tolerations that its Pods get in addition. Cannot be changed."""
    replicas: IntOrString | None = None
    """How many Pods it has, as a number or a percentage of spec.replicas; without it, an equal part of the rest."""
    min_replicas: IntOrString | None = None
    """The fewest Pods it has, as a number or a percentage."""
    max_replicas: IntOrString | None = None
    """The most Pods it has, as a number or a percentage; no limit by default."""
    patch: RawObject | None = None
    """A strategic merge patch of its Pod template."""


class AdaptiveStrategy(ApiModel):
    """When a subset counts as unschedulable, and for how long."""

    reschedule_critical_seconds: Int32 | None = None
    """How long a Pod may be pending before its subset counts as unschedulable, in seconds; 30 by default."""
    unschedulable_duration: Int32 | None = None
    """How long a subset counts as unschedulable, in seconds; 300 by default."""
    reserve_unschedulable_pods: bool = False
    """Whether Pods that cannot run are kept, with others in their place until they do."""


class ScheduleStrategy(ApiModel):
    """What happens where Pods of a subset cannot be scheduled."""

    type: Annotated[str, enum(ADAPTIVE, FIXED, "")] = ""
    """Fixed (the default) leaves them where they are. Adaptive gives them to other subsets."""
    adaptive: AdaptiveStrategy | None = None
    """The limits of Adaptive."""


class Topology(ApiModel):
    """The subsets."""

    subsets: list[Subset] | None = None
    """The subsets, in the order in which they are filled."""
    schedule_strategy: ScheduleStrategy | None = None
    """What happens where Pods of a subset cannot be scheduled."""


class ManualUpdate(ApiModel):
    """How far each subset is updated."""

    partitions: dict[str, Int32] | None = None
    """Subset name to how many of its Pods keep the old template; 0 by default."""


class UpdateStrategy(ApiModel):
    """How a change of the template reaches the subsets."""

    type: Annotated[str, enum(MANUAL, "")] = ""
    """Manual, the only one."""
    manual_update: ManualUpdate | None = None
    """How far each subset is updated."""


class UnitedDeploymentSpec(ApiModel):
    """What is wanted."""

    replicas: Int32 | None = None
    """How many Pods there should be over all subsets; 1 by default."""
    selector: LabelSelector
    """The Pods, by labels; cannot be changed."""
    template: SubsetTemplate | None = None
    """What each subset's workload is made from."""
    topology: Topology | None = None
    """The subsets."""
    update_strategy: UpdateStrategy | None = None
    """How a change of the template reaches the subsets."""
    revision_history_limit: Int32 | None = None
    """How many old revisions are kept; 10 by default."""


class UnitedDeploymentV1Alpha1Spec(UnitedDeploymentSpec):
    """What is wanted."""

    template: SubsetTemplateV1Alpha1 | None = None
    """What each subset's workload is made from."""


class Condition(ApiModel):
    """One aspect of the state."""

    type: str = ""
    """Which aspect."""
    status: str = ""
    """True, False or Unknown."""
    last_transition_time: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in words."""


class SubsetStatus(ApiModel):
    """The state of one subset."""

    name: str = ""
    """The subset."""
    replicas: Int32 = 0
    """How many Pods it is given."""
    ready_replicas: Int32 = 0
    """How many of its Pods are ready."""
    partition: Int32 = 0
    """How many of its Pods keep the old template."""
    reserved_pods: Int32 = 0
    """How many of its Pods have others in their place."""
    conditions: list[Condition] | None = None
    """Whether it can be scheduled."""


class _StatusFields(ApiModel):
    """What both versions say of the state."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"replicas", "updated_replicas", "current_revision"})

    observed_generation: Int64 = 0
    """The generation of the object this is about."""
    ready_replicas: Int32 = 0
    """How many Pods are ready."""
    replicas: Int32 = 0
    """How many Pods there are."""
    updated_replicas: Int32 = 0
    """How many Pods have the updated revision."""
    updated_ready_replicas: Int32 = 0
    """How many of them are ready."""
    reserved_pods: Int32 = 0
    """How many Pods have others in their place."""
    collision_count: Int32 | None = None
    """How often the hash of a revision was taken."""
    current_revision: str = ""
    """The revision that all Pods had last."""
    subset_statuses: list[SubsetStatus] | None = None
    """The subsets."""
    conditions: list[Condition] | None = None
    """What has come of the last changes."""
    label_selector: str = ""
    """The Pods, for autoscalers."""


class UnitedDeploymentStatus(_StatusFields):
    """What is."""

    updated_revision: str = ""
    """The revision of the template."""


class UpdateStatus(ApiModel):
    """How far the update is."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"updated_revision"})
    always_required: ClassVar[bool] = False

    updated_revision: str = ""
    """The revision of the template."""
    current_partitions: dict[str, Int32] | None = None
    """Subset name to how many of its Pods keep the old template."""


class UnitedDeploymentStatusV1Alpha1(_StatusFields):
    """What is."""

    subset_replicas: dict[str, Int32] | None = None
    """Subset name to how many Pods it is given."""
    update_status: UpdateStatus | None = None
    """How far the update is."""


class UnitedDeployment(KubeObject):
    """UnitedDeployment runs one workload per subset of a topology, all from one template."""

    spec: UnitedDeploymentSpec
    """What is wanted."""
    status: UnitedDeploymentStatus | None = None
    """What is."""


class UnitedDeploymentV1Alpha1(KubeObject):
    """UnitedDeployment runs one workload per subset of a topology, all from one template."""

    spec: UnitedDeploymentV1Alpha1Spec
    """What is wanted."""
    status: UnitedDeploymentStatusV1Alpha1 | None = None
    """What is."""


def template_of(spec: UnitedDeploymentSpec) -> tuple[str, dict[str, Any]] | None:
    """The template that is given and its content as JSON; None without one."""
    given = spec.template.to_dict() if spec.template is not None else {}
    return next(((name, given[name]) for name in TEMPLATES if given.get(name) is not None), None)


# Shares of a UnitedDeployment's replicas as users write them (UD-34). Pure.

#: A share as users write it: a number, or a percentage of the replicas.
Share: TypeAlias = int | str

#: More than any workload has; stands for "no limit".
UNLIMITED: Final = 1_000_000
_PERCENT: Final = re.compile(r"[+-]?[0-9]{1,9}%")


class ShareError(ValueError):
    """A share that is none; the text says why."""


def count_of(share: Share, replicas: int | None) -> int:
    """UD-34: a share as a number; percentages are rounded half up. Raises ShareError."""
    if isinstance(share, int):
        if share < 0:
            raise ShareError(f"{share} should not be less than 0")
        return share
    if not _PERCENT.fullmatch(share):
        raise ShareError(f"{share[:64]!r} is neither a number nor a percentage such as 30%")
    if replicas is None:
        raise ShareError(f"{share} of nothing: spec.replicas is not set")
    percent = int(share[:-1])
    if not 0 <= percent <= 100:
        raise ShareError(f"{share} should be between 0% and 100%")
    return (percent * replicas * 2 + 100) // 200
