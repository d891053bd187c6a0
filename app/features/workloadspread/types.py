"""The fields of WorkloadSpread: what users write and what kubectl explains. v1beta1 is the hub."""

from __future__ import annotations

from typing import Annotated, Any, Final

from app.api.fields import NodeSelectorTerm, PreferredSchedulingTerm, Toleration
from app.api.model import LIST_MAP_KEYS, LIST_TYPE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, Time, enum, minimum

ADAPTIVE: Final = "Adaptive"
FIXED: Final = "Fixed"
#: The one type of condition of a subset, and its reasons (WS-66).
SCHEDULABLE: Final = "Schedulable"
UNSCHEDULABLE_REASON: Final = "PodUnschedulable"
SCHEDULABLE_REASON: Final = "Sufficient"


class TargetReference(ApiModel):
    """The workload whose Pods are spread. It lives in the same namespace."""

    api_version: str
    """Its API group and version."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""


class TargetFilter(ApiModel):
    """Which of the workload's Pods are spread, where that is not all."""

    selector: LabelSelector | None = None
    """Selects Pods by their labels; left out or empty: all."""
    replicas_path_list: list[str] | None = None
    """Where the workload says how many Pods it wants: paths such as spec.groups.0.replicas, whose integers are added
    up. Percentages are of this number."""


class WorkloadSpreadSubsetV1Alpha1(ApiModel):
    """A part of the workload's Pods: where they run, how many at most, and what is different about them."""

    name: str
    """The subset's name, unique in the object."""
    required_node_selector_term: NodeSelectorTerm | None = None
    """Nodes that its Pods may run on."""
    preferred_node_selector_terms: list[PreferredSchedulingTerm] | None = None
    """Nodes that its Pods should rather run on."""
    tolerations: list[Toleration] | None = None
    """Taints that do not keep its Pods away."""
    max_replicas: IntOrString | None = None
    """How many Pods it takes: a number, or a percentage of what the workload wants, rounded up; left out: any."""
    patch: Any = None
    """A strategic merge patch that its new Pods get."""


class WorkloadSpreadSubset(ApiModel):
    """A part of the workload's Pods: where they run, how many at most, and what is different about them."""

    name: str
    """The subset's name, unique in the object."""
    required_node_selector: NodeSelectorTerm | None = None
    """Nodes that its Pods may run on."""
    preferred_node_selector: list[PreferredSchedulingTerm] | None = None
    """Nodes that its Pods should rather run on."""
    tolerations: list[Toleration] | None = None
    """Taints that do not keep its Pods away."""
    max_replicas: IntOrString | None = None
    """How many Pods it takes: a number, or a percentage of what the workload wants, rounded up; left out: any."""
    patch: Any = None
    """A strategic merge patch that its new Pods get."""


class AdaptiveStrategy(ApiModel):
    """How Pods that find no node are moved on."""

    disable_simulation_schedule: bool = False
    """Accepted, but without effect."""
    reschedule_critical_seconds: Int32 | None = None
    """After how many seconds a Pod without a node is made anew in the next subset; left out or 0: never."""


class ScheduleStrategy(ApiModel):
    """Whether Pods that find no node in their subset are moved on."""

    type: Annotated[str, enum(ADAPTIVE, FIXED, "")] = ""
    """Adaptive: they are. Fixed, the default: they wait."""
    adaptive: AdaptiveStrategy | None = None
    """Settings of Adaptive."""


class _SpecFields(ApiModel):
    """What both versions say."""

    target_ref: TargetReference
    """The workload."""
    target_filter: TargetFilter | None = None
    """Which of its Pods, if not all."""
    schedule_strategy: ScheduleStrategy | None = None
    """Whether Pods that find no node in their subset are moved on."""


class WorkloadSpreadSpec(_SpecFields):
    """How the Pods of a workload are spread."""

    subsets: list[WorkloadSpreadSubset]
    """The subsets, in the order in which they are filled; they are emptied from the last."""


class WorkloadSpreadSpecV1Alpha1(_SpecFields):
    """How the Pods of a workload are spread."""

    subsets: list[WorkloadSpreadSubsetV1Alpha1]
    """The subsets, in the order in which they are filled; they are emptied from the last."""


class SubsetCondition(ApiModel):
    """One aspect of a subset's state."""

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
    """Schedulable: whether new Pods are put into the subset."""
    status: Annotated[str, enum("True", "False", "Unknown")]
    """True, False or Unknown."""
    observed_generation: Annotated[Int64, minimum(0)] = 0
    """The generation of the object this is about."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[
        str, Keywords({"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"})
    ]
    """Why, as a word."""
    message: Annotated[str, Keywords({"maxLength": 32768})]
    """Why, as a sentence."""


class SubsetConditionV1Alpha1(ApiModel):
    """One aspect of a subset's state."""

    type: str
    """Schedulable: whether new Pods are put into the subset."""
    status: str
    """True, False or Unknown."""
    last_transition_time: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as a word."""
    message: str = ""
    """Why, as a sentence."""


class _SubsetStatusFields(ApiModel):
    """What both versions say of a subset."""

    name: str
    """The subset."""
    replicas: Int32
    """Its active Pods."""
    missing_replicas: Int32
    """How many more it takes: 0 is none, -1 any number."""
    creating_pods: dict[str, Time] | None = None
    """Pods that were admitted but not seen yet, by name or generated uid, and when they were admitted."""
    deleting_pods: dict[str, Time] | None = None
    """Pods whose deletion was admitted but not seen yet, by name, and when it was admitted."""


class SubsetStatus(_SubsetStatusFields):
    """The state of a subset."""

    conditions: Annotated[list[SubsetCondition] | None, Keywords({LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]})] = None
    """Schedulable, under the strategy Adaptive."""


class SubsetStatusV1Alpha1(_SubsetStatusFields):
    """The state of a subset."""

    conditions: list[SubsetConditionV1Alpha1] | None = None
    """Schedulable, under the strategy Adaptive."""


class WorkloadSpreadStatus(ApiModel):
    """The state of the subsets."""

    observed_generation: Int64 = 0
    """The generation of the object this is about."""
    subset_statuses: list[SubsetStatus] | None = None
    """The subsets, over all versions of Pods, in the order of the spec."""
    versioned_subset_statuses: dict[str, list[SubsetStatus]] | None = None
    """The subsets by version of Pods. Each version has all places for itself."""


class WorkloadSpreadStatusV1Alpha1(ApiModel):
    """The state of the subsets."""

    observed_generation: Int64 = 0
    """The generation of the object this is about."""
    subset_statuses: list[SubsetStatusV1Alpha1] | None = None
    """The subsets, over all versions of Pods, in the order of the spec."""
    versioned_subset_statuses: dict[str, list[SubsetStatusV1Alpha1]] | None = None
    """The subsets by version of Pods. Each version has all places for itself."""


class WorkloadSpread(KubeObject):
    """WorkloadSpread puts the Pods of one workload into subsets, each with its nodes, its places and its patch."""

    spec: WorkloadSpreadSpec
    """What is wanted."""
    status: WorkloadSpreadStatus | None = None
    """What is."""

    @property
    def strategy(self) -> ScheduleStrategy:
        """The strategy, whether it is written or not."""
        return self.spec.schedule_strategy or ScheduleStrategy()


class WorkloadSpreadV1Alpha1(KubeObject):
    """WorkloadSpread puts the Pods of one workload into subsets, each with its nodes, its places and its patch."""

    spec: WorkloadSpreadSpecV1Alpha1
    """What is wanted."""
    status: WorkloadSpreadStatusV1Alpha1 | None = None
    """What is."""
