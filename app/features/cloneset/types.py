"""API types of CloneSet. Field docstrings are the descriptions in the CRD and in ``kubectl explain``.

v1beta1 is the hub version. v1alpha1 has a flat update strategy, and uses annotations and a label for some v1beta1
fields.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.fields import (
    IN_PLACE_IF_POSSIBLE,
    IN_PLACE_ONLY,
    IN_PLACE_POLICIES,
    ON_DELETE,
    POD_UPDATE_POLICIES,
    RECREATE,
    ROLLING_UPDATE,
    UPDATE_TYPES,
    InPlaceUpdateStrategy,
    InPlaceUpdateStrategyV1Alpha1,
    Lifecycle,
    UpdatePriorityStrategy,
    UpdateScatterTerm,
)
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, RawObject, schema_default

__all__ = [
    "IN_PLACE_IF_POSSIBLE",
    "IN_PLACE_ONLY",
    "IN_PLACE_POLICIES",
    "ON_DELETE",
    "POD_UPDATE_POLICIES",
    "RECREATE",
    "ROLLING_UPDATE",
    "UPDATE_TYPES",
    "InPlaceUpdateStrategy",
    "InPlaceUpdateStrategyV1Alpha1",
]

NO_DEADLINE: Final = 2**31 - 1
"""Value of progressDeadlineSeconds that means no deadline."""


class _RollingFields(ApiModel):
    """Rollout fields that both versions share."""

    partition: IntOrString | None = None
    """Number or percentage of Pods that keep the old template. A percentage is rounded up, but below 100% at least one
    Pod is updated. Defaults to 0."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage of Pods that may be unavailable during the update, or while Pods to delete are
    replaced. A percentage is rounded up, or down if maxSurge is set. Defaults to 20%."""
    max_surge: IntOrString | None = None
    """Maximum number or percentage (rounded up) of Pods above the desired number of replicas during the update.
    Defaults to 0."""
    paused: bool = False
    """Pauses the update. The number of replicas is still maintained."""
    priority_strategy: UpdatePriorityStrategy | None = None
    """Priorities that determine the order in which Pods are updated."""
    scatter_strategy: list[UpdateScatterTerm] | None = None
    """Spreads Pods with certain labels over the update order."""


class RollingUpdate(_RollingFields):
    """Parameters of a rolling update."""

    pod_update_policy: str = ""
    """ReCreate (the default) replaces Pods. InPlaceIfPossible updates images and metadata in place, and replaces a Pod
    if anything else changed. InPlaceOnly rejects changes that need a new Pod."""
    in_place_update_strategy: InPlaceUpdateStrategy | None = None
    """Parameters of in-place updates."""


class UpdateStrategy(ApiModel):
    """UpdateStrategy describes how a template change is rolled out to existing Pods."""

    type: str = ""
    """RollingUpdate (the default) updates Pods gradually; OnDelete updates a Pod only when it is deleted."""
    rolling_update: RollingUpdate | None = None
    """Parameters of a rolling update."""


class UpdateStrategyV1Alpha1(_RollingFields):
    """UpdateStrategy describes how a template change is rolled out to existing Pods."""

    type: str = ""
    """ReCreate (the default), InPlaceIfPossible and InPlaceOnly work like podUpdatePolicy in v1beta1; OnDelete
    updates Pods only when they are deleted."""
    in_place_update_strategy: InPlaceUpdateStrategyV1Alpha1 | None = None
    """Parameters of in-place updates."""


class _ScaleFields(ApiModel):
    """Scaling fields that both versions share."""

    pods_to_delete: list[str] | None = None
    """Names of Pods to delete first. Unless the replicas are lowered by the same number, each is replaced. The
    controller removes names of Pods that are gone."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (rounded up) of Pods that may be unavailable while scaling out. Defaults to no
    limit."""


class ScaleStrategy(_ScaleFields):
    """ScaleStrategy describes how Pods are created and deleted."""

    enable_pvc_reuse: Annotated[bool, schema_default(False)] = Field(default=False, alias="enablePVCReuse")
    """Whether the replacement of a Pod not deleted by the controller reuses that Pod's claims and name. Otherwise the
    claims are deleted."""
    exclude_preparing_delete: bool = False
    """If true, Pods waiting for their preDelete hook do not count as replicas, so they are replaced at once."""


class ScaleStrategyV1Alpha1(_ScaleFields):
    """ScaleStrategy describes how Pods are created and deleted."""

    disable_pvc_reuse: bool = Field(default=False, alias="disablePVCReuse")
    """Whether to delete the claims of a Pod not deleted by the controller. Otherwise its replacement reuses them and
    its name."""


class _Spec(ApiModel):
    """Spec fields that both versions share."""

    replicas: Int32 | None = None
    """Desired number of Pods. Defaults to 1."""
    selector: LabelSelector
    """Label selector for the Pods. It must match the labels of the template. Immutable."""
    template: RawObject
    """Template of the Pods. Its restartPolicy must be Always."""
    volume_claim_templates: list[dict[str, Any]] | None = None
    """Claims to create for each Pod. Each becomes a volume of the same name. Changes apply only to new Pods."""
    revision_history_limit: Int32 | None = None
    """Number of old revisions to keep. Defaults to 10."""
    min_ready_seconds: Int32 = 0
    """Seconds a Pod must be ready to be available. Defaults to 0."""
    progress_deadline_seconds: Int32 | None = None
    """Seconds without progress after which the condition Progressing reports a failure; the update continues. Must
    exceed minReadySeconds. Defaults to no deadline."""
    lifecycle: Lifecycle | None = None
    """Hooks in the lifecycle of a Pod."""


class CloneSetSpec(_Spec):
    """Desired state of the CloneSet."""

    scale_strategy: ScaleStrategy = Field(default_factory=ScaleStrategy)
    """How Pods are created and deleted."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a template change is rolled out to existing Pods."""


class CloneSetV1Alpha1Spec(_Spec):
    """Desired state of the CloneSet."""

    scale_strategy: ScaleStrategyV1Alpha1 = Field(default_factory=ScaleStrategyV1Alpha1)
    """How Pods are created and deleted."""
    update_strategy: UpdateStrategyV1Alpha1 = Field(default_factory=UpdateStrategyV1Alpha1)
    """How a template change is rolled out to existing Pods."""


class CloneSetCondition(ApiModel):
    """CloneSetCondition describes one aspect of the state of a CloneSet."""

    type: str
    """Type of the condition: Progressing, FailedScale or FailedUpdate."""
    status: str
    """Status of the condition: True, False or Unknown."""
    last_update_time: str = ""
    """Last time the condition was updated."""
    last_transition_time: str = ""
    """Last time the status changed."""
    reason: str = ""
    """Reason for the last change, in CamelCase."""
    message: str = ""
    """Human-readable details about the last change."""


class CloneSetStatus(ApiModel):
    """Observed state of the CloneSet."""

    always_serialized: ClassVar[frozenset[str]] = frozenset(
        {"replicas", "ready_replicas", "available_replicas", "updated_replicas", "updated_ready_replicas"}
    )

    observed_generation: Int64 = 0
    """Generation of the CloneSet that this status describes."""
    replicas: Int32 = 0
    """Number of Pods, excluding terminating and finished ones."""
    ready_replicas: Int32 = 0
    """Number of ready Pods."""
    available_replicas: Int32 = 0
    """Number of available Pods."""
    updated_replicas: Int32 = 0
    """Number of Pods at the update revision."""
    updated_ready_replicas: Int32 = 0
    """Number of ready Pods at the update revision."""
    updated_available_replicas: Int32 = 0
    """Number of available Pods at the update revision."""
    expected_updated_replicas: Int32 = 0
    """Number of Pods that the partition allows to be at the update revision; updatedReplicas reaches it at the end of
    the rollout."""
    update_revision: str = ""
    """Name of the ControllerRevision of the current template."""
    current_revision: str = ""
    """Name of the last ControllerRevision that was rolled out to all Pods."""
    collision_count: Int32 | None = None
    """Number of hash collisions of revision names so far."""
    label_selector: str = ""
    """Label selector in string form, for the scale subresource."""
    conditions: list[CloneSetCondition] | None = None
    """Latest observations of the state of the CloneSet."""


class CloneSet(KubeObject):
    """CloneSet maintains a number of identical Pods, and updates them in place or by replacing them."""

    spec: CloneSetSpec
    """Desired state of the CloneSet."""
    status: CloneSetStatus | None = None
    """Observed state of the CloneSet."""


class CloneSetV1Alpha1(KubeObject):
    """CloneSet maintains a number of identical Pods, and updates them in place or by replacing them."""

    spec: CloneSetV1Alpha1Spec
    """Desired state of the CloneSet."""
    status: CloneSetStatus | None = None
    """Observed state of the CloneSet."""
