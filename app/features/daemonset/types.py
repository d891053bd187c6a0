"""API types of Advanced DaemonSet.

v1beta1 is the hub version. v1alpha1 has an annotation instead of ``scaleStrategy``, an additional rolling update type
(Surging), and a different name for the revision in the status.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from app.api.fields import Lifecycle
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, LabelSelector, RawObject

ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
UPDATE_TYPES: Final = (ROLLING_UPDATE, ON_DELETE)
STANDARD: Final = "Standard"
SURGING: Final = "Surging"
IN_PLACE_IF_POSSIBLE: Final = "InPlaceIfPossible"
ROLLING_UPDATE_TYPES: Final = (STANDARD, IN_PLACE_IF_POSSIBLE)
ROLLING_UPDATE_TYPES_V1ALPHA1: Final = (STANDARD, SURGING, IN_PLACE_IF_POSSIBLE)


class RollingUpdate(ApiModel):
    """Parameters of a rolling update."""

    rolling_update_type: str = ""
    """Standard (the default) replaces Pods. InPlaceIfPossible updates images and metadata in place, and replaces a Pod
    if anything else changed."""
    max_unavailable: IntOrString | None = None
    """Maximum number or percentage (of eligible nodes, rounded up) of nodes whose Pod may be unavailable during the
    update. Defaults to 1."""
    max_surge: IntOrString | None = None
    """Maximum number or percentage (of eligible nodes, rounded up) of nodes that may run a new Pod beside the old one
    during the update. The old Pod is deleted once the new one is available. Mutually exclusive with maxUnavailable.
    Defaults to 0."""
    selector: LabelSelector | None = None
    """Label selector for the nodes whose Pods are updated. Defaults to all nodes."""
    partition: IntOrString | None = None
    """Number or percentage of nodes whose Pod keeps the old template. A percentage is rounded down. Defaults to 0."""
    paused: bool = False
    """Pauses the update. Nodes without a Pod still get one."""


class UpdateStrategy(ApiModel):
    """UpdateStrategy describes how a template change is rolled out to existing Pods."""

    type: str = ""
    """RollingUpdate (the default) updates Pods gradually; OnDelete updates a Pod only when it is deleted."""
    rolling_update: RollingUpdate | None = None
    """Parameters of a rolling update."""


class ScaleStrategy(ApiModel):
    """ScaleStrategy describes how Pods are created."""

    partitioned_scaling: bool = False
    """Whether missing Pods are created only on as many nodes as the partition allows to be updated. Otherwise every
    node gets its Pod at once."""


class _Spec(ApiModel):
    """Spec fields that both versions share."""

    selector: LabelSelector
    """Label selector for the Pods. It must match the labels of the template. Immutable."""
    template: RawObject
    """Template of the Pods. Its node selector, node affinity and tolerations determine which nodes run a Pod. Its
    restartPolicy must be Always."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a template change is rolled out to existing Pods."""
    min_ready_seconds: Int32 = 0
    """Seconds a Pod must be ready to be available. Defaults to 0."""
    burst_replicas: IntOrString | None = None
    """Maximum number or percentage (of eligible nodes, rounded down, at least 1) of Pods that are created, or
    deleted, at once. Defaults to 250."""
    revision_history_limit: Int32 | None = None
    """Number of old revisions to keep. Defaults to 10."""
    lifecycle: Lifecycle | None = None
    """Hooks in the lifecycle of a Pod. Only preDelete has an effect."""


class DaemonSetSpec(_Spec):
    """Desired state of the DaemonSet."""

    scale_strategy: ScaleStrategy | None = None
    """How Pods are created."""


class DaemonSetV1Alpha1Spec(_Spec):
    """Desired state of the DaemonSet."""


class DaemonSetCondition(ApiModel):
    """DaemonSetCondition describes one aspect of the state of a DaemonSet."""

    type: str
    """Type of the condition."""
    status: str
    """Status of the condition: True, False or Unknown."""
    last_transition_time: str = ""
    """Last time the status changed."""
    reason: str = ""
    """Reason for the last change, in CamelCase."""
    message: str = ""
    """Human-readable details about the last change."""


class _Status(ApiModel):
    """Observed state of the DaemonSet."""

    always_serialized: ClassVar[frozenset[str]] = frozenset(
        {
            "current_number_scheduled",
            "number_misscheduled",
            "desired_number_scheduled",
            "number_ready",
            "updated_number_scheduled",
        }
    )

    current_number_scheduled: Int32 = 0
    """Number of nodes that should run a Pod and have one."""
    number_misscheduled: Int32 = 0
    """Number of nodes that have a Pod but should not run one."""
    desired_number_scheduled: Int32 = 0
    """Number of nodes that should run a Pod."""
    number_ready: Int32 = 0
    """Number of nodes with a ready Pod."""
    observed_generation: Int64 = 0
    """Generation of the DaemonSet that this status describes."""
    updated_number_scheduled: Int32 = 0
    """Number of nodes with a Pod from the current template."""
    number_available: Int32 = 0
    """Number of nodes with an available Pod."""
    number_unavailable: Int32 = 0
    """Number of nodes that should run a Pod but have no available one."""
    collision_count: Int32 | None = None
    """Number of hash collisions of revision names so far."""
    conditions: list[DaemonSetCondition] | None = None
    """Latest observations of the state of the DaemonSet."""


class DaemonSetStatus(_Status):
    """Observed state of the DaemonSet."""

    update_revision: str = ""
    """Hash of the current template. Pods created from it carry it in the label controller-revision-hash."""


class DaemonSetV1Alpha1Status(_Status):
    """Observed state of the DaemonSet."""

    daemon_set_hash: str = ""
    """Hash of the current template. Pods created from it carry it in the label controller-revision-hash."""


class DaemonSet(KubeObject):
    """DaemonSet runs one Pod on every eligible node, and updates Pods node by node, by replacing them or in place."""

    spec: DaemonSetSpec
    """Desired state of the DaemonSet."""
    status: DaemonSetStatus | None = None
    """Observed state of the DaemonSet."""


class DaemonSetV1Alpha1(KubeObject):
    """DaemonSet runs one Pod on every eligible node, and updates Pods node by node, by replacing them or in place."""

    spec: DaemonSetV1Alpha1Spec
    """Desired state of the DaemonSet."""
    status: DaemonSetV1Alpha1Status | None = None
    """Observed state of the DaemonSet."""
