"""The fields of Advanced DaemonSet: what users write and what kubectl explains.

v1beta1 is the hub. v1alpha1 has an annotation where v1beta1 has ``scaleStrategy``, one more word for an update with
surge, and another name for the revision in the status.
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
    """How a change of the template reaches the Pods that run already."""

    rolling_update_type: str = ""
    """Standard (the default) replaces a Pod by a new one. InPlaceIfPossible keeps the Pod and changes its images and
    metadata, where nothing else changed."""
    max_unavailable: IntOrString | None = None
    """On how many nodes the Pod may be unavailable at once because of the update, as a number or a percentage of the
    nodes that run one (rounded up); 1 by default."""
    max_surge: IntOrString | None = None
    """On how many nodes a new Pod may be started beside the old one, which goes once the new one is available; as a
    number or a percentage of the nodes that run one (rounded up). Only one of maxSurge and maxUnavailable may be set;
    0 by default."""
    selector: LabelSelector | None = None
    """Only on nodes with these labels are Pods updated; on all by default."""
    partition: IntOrString | None = None
    """On how many nodes the Pod keeps the old template, as a number or a percentage (rounded down). Lower it step by
    step to roll a change out; 0 (the default) updates all."""
    paused: bool = False
    """Stops the update until it is set to false again. Nodes without a Pod still get one."""


class UpdateStrategy(ApiModel):
    """How a change of the template reaches the Pods that run already."""

    type: str = ""
    """RollingUpdate (the default) updates them step by step. OnDelete leaves them as they are; only Pods that replace
    deleted ones get the new template."""
    rolling_update: RollingUpdate | None = None
    """The steps of RollingUpdate."""


class ScaleStrategy(ApiModel):
    """How Pods are added."""

    partitioned_scaling: bool = False
    """Whether the partition holds for Pods that are missing too: only on as many nodes as the partition lets through
    one is created. Otherwise every node gets its Pod at once."""


class _Spec(ApiModel):
    """What both versions of the spec say in the same words."""

    selector: LabelSelector
    """The Pods of this DaemonSet, by labels; the template's labels must match. It cannot be changed afterwards."""
    template: RawObject
    """What a Pod is made from: the metadata and spec of a Pod. Its node selector, node affinity and tolerations decide
    which nodes get one. restartPolicy must be Always."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a change of the template reaches the Pods that run already."""
    min_ready_seconds: Int32 = 0
    """How long a Pod must be ready, in seconds, before it counts as available; 0 by default."""
    burst_replicas: IntOrString | None = None
    """How many Pods are created at once, and how many deleted, as a number or a percentage of the nodes that run one
    (rounded down, though at least one); 250 by default."""
    revision_history_limit: Int32 | None = None
    """How many old revisions of the template are kept for going back; 10 by default."""
    lifecycle: Lifecycle | None = None
    """Hooks at the turning points of a Pod's life. Only preDelete has an effect here."""


class DaemonSetSpec(_Spec):
    """What Pods there should be, and how they are brought there."""

    scale_strategy: ScaleStrategy | None = None
    """How Pods are added."""


class DaemonSetV1Alpha1Spec(_Spec):
    """What Pods there should be, and how they are brought there."""


class DaemonSetCondition(ApiModel):
    """One aspect of how the DaemonSet is."""

    type: str
    """What it is about."""
    status: str
    """True, False or Unknown."""
    last_transition_time: str = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class _Status(ApiModel):
    """How many nodes there are, how many have a Pod, and how far an update has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset(
        {
            "current_number_scheduled",
            "number_misscheduled",
            "desired_number_scheduled",
            "number_ready",
            "updated_number_scheduled",
        }
    )

    current_number_scheduled: Int32 = 0
    """Nodes that should have a Pod and have one."""
    number_misscheduled: Int32 = 0
    """Nodes that have a Pod and should have none."""
    desired_number_scheduled: Int32 = 0
    """Nodes that should have a Pod."""
    number_ready: Int32 = 0
    """Nodes whose Pod is ready."""
    observed_generation: Int64 = 0
    """The generation of the DaemonSet these numbers are about."""
    updated_number_scheduled: Int32 = 0
    """Nodes whose Pod is of the present template."""
    number_available: Int32 = 0
    """Nodes whose Pod has been ready for minReadySeconds."""
    number_unavailable: Int32 = 0
    """Nodes that should have a Pod and have none that is available."""
    collision_count: Int32 | None = None
    """How often the name of a revision was taken already."""
    conditions: list[DaemonSetCondition] | None = None
    """Aspects of how the DaemonSet is; none is set today."""


class DaemonSetStatus(_Status):
    """How many nodes there are, how many have a Pod, and how far an update has come."""

    update_revision: str = ""
    """The hash of the present template, which its Pods carry as the label controller-revision-hash."""


class DaemonSetV1Alpha1Status(_Status):
    """How many nodes there are, how many have a Pod, and how far an update has come."""

    daemon_set_hash: str = ""
    """The hash of the present template, which its Pods carry as the label controller-revision-hash."""


class DaemonSet(KubeObject):
    """DaemonSet runs one Pod on every node that takes it, and updates them node by node or in place."""

    spec: DaemonSetSpec
    """What is wanted."""
    status: DaemonSetStatus | None = None
    """What is observed."""


class DaemonSetV1Alpha1(KubeObject):
    """DaemonSet runs one Pod on every node that takes it, and updates them node by node or in place."""

    spec: DaemonSetV1Alpha1Spec
    """What is wanted."""
    status: DaemonSetV1Alpha1Status | None = None
    """What is observed."""
