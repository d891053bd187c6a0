"""The fields of Advanced StatefulSet: what users write and what kubectl explains.

v1beta1 is the hub; v1alpha1 says less, in the same words.
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
    """Pods are updated in another order than from the highest ordinal down."""

    priority_strategy: UpdatePriorityStrategy | None = None
    """Which Pods are updated first."""


class RollingUpdate(ApiModel):
    """How a change of the template reaches the Pods that run already."""

    partition: Int32 | None = None
    """How many Pods keep the old template, those of the lowest ordinals. Lower it step by step to roll a change out; 0
    (the default) updates all."""
    max_unavailable: IntOrString | None = None
    """How many Pods may be unavailable at once because of an update, as a number or a percentage of the replicas
    (rounded down, at least 1); 1 by default. More than 1 needs podManagementPolicy Parallel."""
    pod_update_policy: str = ""
    """ReCreate (the default) replaces a Pod by a new one. InPlaceIfPossible keeps the Pod and changes its images and
    metadata, where nothing else changed. InPlaceOnly refuses changes that need a new Pod. The latter two need the
    readiness gate InPlaceUpdateReady in the template."""
    paused: bool = False
    """Stops the update, and the deletion of Pods by label, until it is set to false again. The number of Pods is kept
    all the same."""
    unordered_update: UnorderedUpdate | None = None
    """Pods are updated in an order of their own, and the partition counts Pods, not ordinals."""
    in_place_update_strategy: InPlaceUpdateStrategy | None = None
    """How Pods are updated in place."""
    min_ready_seconds: Int32 | None = None
    """How long a Pod must be ready, in seconds, before it counts as available, up to 300; 0 by default."""


class UpdateStrategy(ApiModel):
    """How a change of the template reaches the Pods that run already."""

    type: str = ""
    """RollingUpdate (the default) updates them step by step. OnDelete leaves them as they are; only Pods that replace
    deleted ones get the new template."""
    rolling_update: RollingUpdate | None = None
    """The steps of RollingUpdate."""


class ScaleStrategy(ApiModel):
    """How Pods are added."""

    max_unavailable: IntOrString | None = None
    """How many Pods may be unavailable while Pods are added, as a number or a percentage of the replicas (rounded down,
    at least 1). Further Pods are created when those become available. No limit by default."""


class ClaimRetentionPolicy(ApiModel):
    """What becomes of volume claims; Retain by default."""

    when_deleted: str = ""
    """When the StatefulSet is deleted: Retain keeps the claims, Delete deletes them with it."""
    when_scaled: str = ""
    """When a Pod is no longer wanted, because of fewer replicas or because its ordinal was reserved: Retain keeps its
    claims, Delete deletes them with the Pod."""


class VolumeClaimUpdateStrategy(ApiModel):
    """Whether a change of the claim templates reaches claims that are there already."""

    type: str = ""
    """OnDelete (the default) leaves them as they are. OnPodRollingUpdate makes them larger, Pod by Pod, as the update
    goes on."""


class Ordinals(ApiModel):
    """Which numbers Pods have."""

    start: Int32 = 0
    """The first ordinal; 0 by default."""


class StatefulSetV1Alpha1Spec(ApiModel):
    """What Pods there should be, and how they are brought there."""

    replicas: Int32 | None = None
    """How many Pods there should be; 1 by default."""
    selector: LabelSelector
    """The Pods of this StatefulSet, by labels; the template's labels must match. It cannot be changed afterwards."""
    template: RawObject
    """What a Pod is made from: the metadata and spec of a Pod. restartPolicy must be Always."""
    volume_claim_templates: list[dict[str, Any]] | None = None
    """Claims that every Pod gets for itself, each mounted under its name and kept for the Pod's ordinal."""
    service_name: str = ""
    """The headless Service that names the Pods. It cannot be changed afterwards."""
    pod_management_policy: str = ""
    """OrderedReady (the default) creates and deletes Pods one by one, in the order of their ordinals. Parallel waits
    for none. It cannot be changed afterwards."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a change of the template reaches the Pods that run already."""
    revision_history_limit: Int32 | None = None
    """How many old revisions of the template are kept for going back; 10 by default."""


class StatefulSetSpec(StatefulSetV1Alpha1Spec):
    """What Pods there should be, and how they are brought there."""

    volume_claim_update_strategy: VolumeClaimUpdateStrategy = Field(default_factory=VolumeClaimUpdateStrategy)
    """Whether a change of the claim templates reaches claims that are there already."""
    reserve_ordinals: list[IntOrString] | None = None
    """Ordinals that no Pod may have, each as a number or a range such as "3-5"; others take their place."""
    lifecycle: Lifecycle | None = None
    """Hooks at the turning points of a Pod's life."""
    scale_strategy: ScaleStrategy | None = None
    """How Pods are added."""
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy | None = None
    """What becomes of volume claims when their Pod, or all of it, is no longer wanted."""
    ordinals: Ordinals | None = None
    """Which numbers Pods have. It has an effect with the feature gate StatefulSetStartOrdinal."""


class StatefulSetCondition(ApiModel):
    """One aspect of how the StatefulSet is."""

    type: str
    """FailedCreatePod or FailedUpdatePod."""
    status: str
    """True, False or Unknown."""
    last_transition_time: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class StatefulSetStatusV1Alpha1(ApiModel):
    """How many Pods there are, and how far an update has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset(
        {"replicas", "ready_replicas", "available_replicas", "current_replicas", "updated_replicas"}
    )

    observed_generation: Int64 = 0
    """The generation of the StatefulSet these numbers are about."""
    replicas: Int32 = 0
    """Pods there are."""
    ready_replicas: Int32 = 0
    """Those of them that run and are ready."""
    available_replicas: Int32 = 0
    """Those of them that have been ready for minReadySeconds."""
    current_replicas: Int32 = 0
    """Those of them at the current revision."""
    updated_replicas: Int32 = 0
    """Those of them at the update revision."""
    current_revision: str = ""
    """The revision that Pods were at when all of them last had the same."""
    update_revision: str = ""
    """The revision (ControllerRevision) of the present template."""
    collision_count: Int32 | None = None
    """How often the name of a revision was taken already."""
    conditions: list[StatefulSetCondition] | None = None
    """Aspects of how the StatefulSet is."""
    label_selector: str = ""
    """The selector as text, for the scale subresource."""


class VolumeClaimStatus(ApiModel):
    """How far the claims of one template are."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"compatible_replicas", "compatible_ready_replicas"})

    volume_claim_name: str
    """The name of the claim template."""
    compatible_replicas: Int32
    """Pods whose claim asks for no less than the template."""
    compatible_ready_replicas: Int32
    """Those of them whose claim has got it."""


class StatefulSetStatus(StatefulSetStatusV1Alpha1):
    """How many Pods there are, and how far an update has come."""

    updated_ready_replicas: Int32 = 0
    """Pods at the update revision that run and are ready."""
    updated_available_replicas: Int32 = 0
    """Pods at the update revision that have been ready for minReadySeconds."""
    volume_claims: list[VolumeClaimStatus] | None = None
    """How far claims are from what their templates say."""


class StatefulSet(KubeObject):
    """StatefulSet keeps Pods with ordinals running, each with claims of its own, and updates them by replacing them or
    in place."""

    spec: StatefulSetSpec
    """What is wanted."""
    status: StatefulSetStatus | None = None
    """What is observed."""


class StatefulSetV1Alpha1(KubeObject):
    """StatefulSet keeps Pods with ordinals running, each with claims of its own, and updates them by replacing them or
    in place."""

    spec: StatefulSetV1Alpha1Spec
    """What is wanted."""
    status: StatefulSetStatusV1Alpha1 | None = None
    """What is observed."""
