"""API types of Advanced StatefulSet. Field docstrings are the descriptions in the CRD and in ``kubectl explain``.

v1beta1 is the hub version; v1alpha1 has a subset of its fields.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pydantic import Field

from app.api.fields import InPlaceUpdateStrategy, Lifecycle, UpdatePriorityStrategy
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, RawObject, Time

ORDERED_READY: Final = "OrderedReady"
PARALLEL: Final = "Parallel"
RETAIN: Final = "Retain"
DELETE: Final = "Delete"


class UnorderedUpdate(ApiModel):
    """UnorderedUpdate updates Pods by priority instead of in descending order of their ordinals."""

    priority_strategy: UpdatePriorityStrategy | None = None
    """Priorities that determine the order in which Pods are updated."""


class RollingUpdate(ApiModel):
    """Parameters of a rolling update."""

    partition: Int32 | None = None
    """Number of Pods that keep the old template, counted from the lowest ordinal. Defaults to 0."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (rounded down, to at least 1) of Pods that may be unavailable during the update.
    Defaults to 1. Values above 1 require podManagementPolicy Parallel."""
    pod_update_policy: str = ""
    """ReCreate (the default) replaces Pods. InPlaceIfPossible updates images and metadata in place, and replaces a Pod
    if anything else changed. InPlaceOnly rejects changes that need a new Pod. In-place updates require the readiness
    gate InPlaceUpdateReady in the template."""
    paused: bool = False
    """Pauses the update, and the deletion of Pods labeled apps.kruise.io/specified-delete. The number of replicas is
    still maintained."""
    unordered_update: UnorderedUpdate | None = None
    """Updates Pods by priority. The partition then applies to any Pods, not to those with the lowest ordinals."""
    in_place_update_strategy: InPlaceUpdateStrategy | None = None
    """Parameters of in-place updates."""
    min_ready_seconds: Int32 | None = None
    """Seconds a Pod must be ready to be available, up to 300. Defaults to 0."""


class UpdateStrategy(ApiModel):
    """UpdateStrategy describes how a template change is rolled out to existing Pods."""

    type: str = ""
    """RollingUpdate (the default) updates Pods gradually; OnDelete updates a Pod only when it is deleted."""
    rolling_update: RollingUpdate | None = None
    """Parameters of a rolling update."""


class ScaleStrategy(ApiModel):
    """ScaleStrategy describes how Pods are created."""

    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (rounded down, to at least 1) of Pods that may be unavailable while scaling out.
    Defaults to no limit."""


class ClaimRetentionPolicy(ApiModel):
    """ClaimRetentionPolicy describes when the claims created from volumeClaimTemplates are deleted."""

    when_deleted: str = ""
    """What happens to claims when the StatefulSet is deleted: Retain (the default) or Delete."""
    when_scaled: str = ""
    """What happens to the claims of a Pod that is scaled in or whose ordinal is reserved: Retain (the default) or
    Delete."""


class VolumeClaimUpdateStrategy(ApiModel):
    """VolumeClaimUpdateStrategy describes how changes to volumeClaimTemplates are applied to existing claims."""

    type: str = ""
    """OnDelete (the default) leaves existing claims alone; OnPodRollingUpdate expands them during the rolling
    update."""


class Ordinals(ApiModel):
    """Ordinals describes how Pods are numbered."""

    start: Int32 = 0
    """Ordinal of the first Pod. Defaults to 0."""


class StatefulSetV1Alpha1Spec(ApiModel):
    """Desired state of the StatefulSet."""

    replicas: Int32 | None = None
    """Desired number of Pods. Defaults to 1."""
    selector: LabelSelector
    """Label selector for the Pods. It must match the labels of the template. Immutable."""
    template: RawObject
    """Template of the Pods. Its restartPolicy must be Always."""
    volume_claim_templates: list[dict[str, Any]] | None = None
    """Claims to create for each ordinal. Each becomes a volume of the same name."""
    service_name: str = ""
    """Name of the headless Service that gives the Pods their DNS names. Immutable."""
    pod_management_policy: str = ""
    """OrderedReady (the default) creates and deletes Pods one at a time, in the order of their ordinals; Parallel does
    not wait for others. Immutable."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a template change is rolled out to existing Pods."""
    revision_history_limit: Int32 | None = None
    """Number of old revisions to keep. Defaults to 10."""


class StatefulSetSpec(StatefulSetV1Alpha1Spec):
    """Desired state of the StatefulSet."""

    volume_claim_update_strategy: VolumeClaimUpdateStrategy = Field(default_factory=VolumeClaimUpdateStrategy)
    """How changes to volumeClaimTemplates are applied to existing claims."""
    reserve_ordinals: list[IntOrString] | None = None
    """Ordinals to skip, each a number or a range such as "3-5". The StatefulSet uses higher ordinals instead."""
    lifecycle: Lifecycle | None = None
    """Hooks in the lifecycle of a Pod."""
    scale_strategy: ScaleStrategy | None = None
    """How Pods are created."""
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy | None = None
    """When the claims created from volumeClaimTemplates are deleted."""
    ordinals: Ordinals | None = None
    """How Pods are numbered. Requires the feature gate StatefulSetStartOrdinal."""


class StatefulSetCondition(ApiModel):
    """StatefulSetCondition describes one aspect of the state of a StatefulSet."""

    type: str
    """Type of the condition: FailedCreatePod or FailedUpdatePod."""
    status: str
    """Status of the condition: True, False or Unknown."""
    last_transition_time: Time = ""
    """Last time the status changed."""
    reason: str = ""
    """Reason for the last change, in CamelCase."""
    message: str = ""
    """Human-readable details about the last change."""


class StatefulSetStatusV1Alpha1(ApiModel):
    """Observed state of the StatefulSet."""

    always_serialized: ClassVar[frozenset[str]] = frozenset(
        {"replicas", "ready_replicas", "available_replicas", "current_replicas", "updated_replicas"}
    )

    observed_generation: Int64 = 0
    """Generation of the StatefulSet that this status describes."""
    replicas: Int32 = 0
    """Number of Pods."""
    ready_replicas: Int32 = 0
    """Number of running and ready Pods."""
    available_replicas: Int32 = 0
    """Number of available Pods."""
    current_replicas: Int32 = 0
    """Number of Pods at the current revision."""
    updated_replicas: Int32 = 0
    """Number of Pods at the update revision."""
    current_revision: str = ""
    """Name of the last ControllerRevision that was rolled out to all Pods."""
    update_revision: str = ""
    """Name of the ControllerRevision of the current template."""
    collision_count: Int32 | None = None
    """Number of hash collisions of revision names so far."""
    conditions: list[StatefulSetCondition] | None = None
    """Latest observations of the state of the StatefulSet."""
    label_selector: str = ""
    """Label selector in string form, for the scale subresource."""


class VolumeClaimStatus(ApiModel):
    """VolumeClaimStatus describes the claims of one claim template."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"compatible_replicas", "compatible_ready_replicas"})

    volume_claim_name: str
    """Name of the claim template."""
    compatible_replicas: Int32
    """Number of Pods whose claim requests at least the size in the template."""
    compatible_ready_replicas: Int32
    """Number of compatible Pods whose claim has the requested capacity."""


class StatefulSetStatus(StatefulSetStatusV1Alpha1):
    """Observed state of the StatefulSet."""

    updated_ready_replicas: Int32 = 0
    """Number of running and ready Pods at the update revision."""
    updated_available_replicas: Int32 = 0
    """Number of available Pods at the update revision."""
    volume_claims: list[VolumeClaimStatus] | None = None
    """State of the claims, by claim template."""


class StatefulSet(KubeObject):
    """StatefulSet maintains Pods with ordinals, each with its own claims, and updates them in place or by replacing
    them."""

    spec: StatefulSetSpec
    """Desired state of the StatefulSet."""
    status: StatefulSetStatus | None = None
    """Observed state of the StatefulSet."""


class StatefulSetV1Alpha1(KubeObject):
    """StatefulSet maintains Pods with ordinals, each with its own claims, and updates them in place or by replacing
    them."""

    spec: StatefulSetV1Alpha1Spec
    """Desired state of the StatefulSet."""
    status: StatefulSetStatusV1Alpha1 | None = None
    """Observed state of the StatefulSet."""
