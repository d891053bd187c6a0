"""API types of WorkloadSpread. v1beta1 is the hub."""

from __future__ import annotations

from typing import Annotated, Any, Final

from app.api.fields import NodeSelectorTerm, PreferredSchedulingTerm, Toleration, WorkloadReference
from app.api.model import LIST_MAP_KEYS, LIST_TYPE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, Time, enum, minimum

ADAPTIVE: Final = "Adaptive"
FIXED: Final = "Fixed"
#: The only condition type of a subset, and its reasons. [WS-66]
SCHEDULABLE: Final = "Schedulable"
UNSCHEDULABLE_REASON: Final = "PodUnschedulable"
SCHEDULABLE_REASON: Final = "Sufficient"


class TargetReference(WorkloadReference):
    """TargetReference refers to the workload, in the same namespace, whose Pods are spread."""


class TargetFilter(ApiModel):
    """TargetFilter selects a part of the workload's Pods."""

    selector: LabelSelector | None = None
    """Selects Pods by label. An empty selector selects all Pods of the workload."""
    replicas_path_list: list[str] | None = None
    """Paths of replica counts in the workload, such as spec.groups.0.replicas. Percentages refer to their sum."""


class WorkloadSpreadSubsetV1Alpha1(ApiModel):
    """WorkloadSpreadSubset defines a subset of the workload's Pods: its scheduling constraints, maximum number of
    replicas, and Pod patch."""

    name: str
    """Name of the subset. Must be unique in the object."""
    required_node_selector_term: NodeSelectorTerm | None = None
    """Required node selector term, added to the node affinity of the subset's Pods."""
    preferred_node_selector_terms: list[PreferredSchedulingTerm] | None = None
    """Preferred node selector terms, added to the node affinity of the subset's Pods."""
    tolerations: list[Toleration] | None = None
    """Tolerations added to the subset's Pods."""
    max_replicas: IntOrString | None = None
    """Maximum number of Pods, or a percentage (rounded up) of the workload's replicas. Unlimited by default."""
    patch: Any = None
    """Strategic merge patch applied to new Pods of the subset."""


class WorkloadSpreadSubset(ApiModel):
    """WorkloadSpreadSubset defines a subset of the workload's Pods: its scheduling constraints, maximum number of
    replicas, and Pod patch."""

    name: str
    """Name of the subset. Must be unique in the object."""
    required_node_selector: NodeSelectorTerm | None = None
    """Required node selector term, added to the node affinity of the subset's Pods."""
    preferred_node_selector: list[PreferredSchedulingTerm] | None = None
    """Preferred node selector terms, added to the node affinity of the subset's Pods."""
    tolerations: list[Toleration] | None = None
    """Tolerations added to the subset's Pods."""
    max_replicas: IntOrString | None = None
    """Maximum number of Pods, or a percentage (rounded up) of the workload's replicas. Unlimited by default."""
    patch: Any = None
    """Strategic merge patch applied to new Pods of the subset."""


class AdaptiveStrategy(ApiModel):
    """AdaptiveStrategy configures the rescheduling of unschedulable Pods."""

    disable_simulation_schedule: bool = False
    """Accepted but has no effect."""
    reschedule_critical_seconds: Int32 | None = None
    """Seconds a Pod may stay unscheduled before it is recreated in the next subset. 0 (the default) means never."""


class ScheduleStrategy(ApiModel):
    """ScheduleStrategy defines whether unschedulable Pods are moved to another subset."""

    type: Annotated[str, enum(ADAPTIVE, FIXED, "")] = ""
    """Fixed (the default) leaves unschedulable Pods pending; Adaptive recreates them in the next subset."""
    adaptive: AdaptiveStrategy | None = None
    """Settings of the Adaptive strategy."""


class _SpecFields(ApiModel):
    """Fields of the spec that both versions share."""

    target_ref: TargetReference
    """Workload whose Pods are distributed over the subsets."""
    target_filter: TargetFilter | None = None
    """Selects a part of the workload's Pods. Defaults to all."""
    schedule_strategy: ScheduleStrategy | None = None
    """Defines whether unschedulable Pods are moved to another subset."""


class WorkloadSpreadSpec(_SpecFields):
    """WorkloadSpreadSpec defines how the Pods of a workload are spread over subsets."""

    subsets: list[WorkloadSpreadSubset]
    """Subsets in the order in which they are filled. They are emptied in reverse order."""


class WorkloadSpreadSpecV1Alpha1(_SpecFields):
    """WorkloadSpreadSpec defines how the Pods of a workload are spread over subsets."""

    subsets: list[WorkloadSpreadSubsetV1Alpha1]
    """Subsets in the order in which they are filled. They are emptied in reverse order."""


class SubsetCondition(ApiModel):
    """SubsetCondition is a condition of a subset."""

    type: Annotated[
        str,
        Keywords(
            {
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            }
        ),
    ]
    """Type of the condition. Schedulable: the subset accepts new Pods."""
    status: Annotated[str, enum("True", "False", "Unknown")]
    """Status of the condition: True, False or Unknown."""
    observed_generation: Annotated[Int64, minimum(0)] = 0
    """Generation of the object that the condition reflects."""
    last_transition_time: Time
    """Last time the status of the condition changed."""
    reason: Annotated[
        str, Keywords({"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"})
    ]
    """Reason for the last transition, as a CamelCase word."""
    message: Annotated[str, Keywords({"maxLength": 32768})]
    """Human-readable details about the last transition."""


class SubsetConditionV1Alpha1(ApiModel):
    """SubsetCondition is a condition of a subset."""

    type: str
    """Type of the condition. Schedulable: the subset accepts new Pods."""
    status: str
    """Status of the condition: True, False or Unknown."""
    last_transition_time: Time = ""
    """Last time the status of the condition changed."""
    reason: str = ""
    """Reason for the last transition, as a CamelCase word."""
    message: str = ""
    """Human-readable details about the last transition."""


class _SubsetStatusFields(ApiModel):
    """Fields of a subset's status that both versions share."""

    name: str
    """Name of the subset."""
    replicas: Int32
    """Number of active Pods of the subset."""
    missing_replicas: Int32
    """Number of Pods the subset can still take; -1 means unlimited."""
    creating_pods: dict[str, Time] | None = None
    """Time at which each Pod that has not been observed yet was admitted, by its name or generated UID."""
    deleting_pods: dict[str, Time] | None = None
    """Time at which each Pod deletion that has not been observed yet was admitted, by Pod name."""


class SubsetStatus(_SubsetStatusFields):
    """SubsetStatus reports the state of a subset."""

    conditions: Annotated[list[SubsetCondition] | None, Keywords({LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]})] = None
    """Conditions of the subset; Schedulable is set with the Adaptive strategy."""


class SubsetStatusV1Alpha1(_SubsetStatusFields):
    """SubsetStatus reports the state of a subset."""

    conditions: list[SubsetConditionV1Alpha1] | None = None
    """Conditions of the subset; Schedulable is set with the Adaptive strategy."""


class WorkloadSpreadStatus(ApiModel):
    """WorkloadSpreadStatus reports the state of the subsets."""

    observed_generation: Int64 = 0
    """Generation of the object that this status reflects."""
    subset_statuses: list[SubsetStatus] | None = None
    """Status of each subset across all Pod versions, in the order of the spec."""
    versioned_subset_statuses: dict[str, list[SubsetStatus]] | None = None
    """Status of each subset by Pod version. maxReplicas applies to each version separately."""


class WorkloadSpreadStatusV1Alpha1(ApiModel):
    """WorkloadSpreadStatus reports the state of the subsets."""

    observed_generation: Int64 = 0
    """Generation of the object that this status reflects."""
    subset_statuses: list[SubsetStatusV1Alpha1] | None = None
    """Status of each subset across all Pod versions, in the order of the spec."""
    versioned_subset_statuses: dict[str, list[SubsetStatusV1Alpha1]] | None = None
    """Status of each subset by Pod version. maxReplicas applies to each version separately."""


class WorkloadSpread(KubeObject):
    """WorkloadSpread spreads the Pods of a workload over subsets, each with its own scheduling constraints, maximum
    number of replicas, and Pod patch."""

    spec: WorkloadSpreadSpec
    """Desired state of the WorkloadSpread."""
    status: WorkloadSpreadStatus | None = None
    """Observed state of the WorkloadSpread."""

    @property
    def strategy(self) -> ScheduleStrategy:
        return self.spec.schedule_strategy or ScheduleStrategy()


class WorkloadSpreadV1Alpha1(KubeObject):
    """WorkloadSpread spreads the Pods of a workload over subsets, each with its own scheduling constraints, maximum
    number of replicas, and Pod patch."""

    spec: WorkloadSpreadSpecV1Alpha1
    """Desired state of the WorkloadSpread."""
    status: WorkloadSpreadStatusV1Alpha1 | None = None
    """Observed state of the WorkloadSpread."""
