"""The fields of CloneSet: what users write and what kubectl explains.

v1beta1 is the hub. v1alpha1 says the same with a flat update strategy, and with annotations and a label for what
v1beta1 has fields for.
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
"""progressDeadlineSeconds: none."""


class _RollingFields(ApiModel):
    """What both versions say about a roll-out."""

    partition: IntOrString | None = None
    """How many Pods keep the old template, as a number or a percentage such as 30% (rounded up, though below 100% at
    least one Pod is updated). Lower it step by step to roll a change out; 0 (the default) updates all."""
    max_unavailable: IntOrString | None = None
    """How many Pods may be unavailable at once because of an update or of Pods to be replaced, as a number or a
    percentage of the replicas (rounded up, with maxSurge down); 20% by default."""
    max_surge: IntOrString | None = None
    """How many Pods may be created beyond the replicas during an update, as a number or a percentage (rounded up); 0
    by default."""
    paused: bool = False
    """Stops the update until it is set to false again. The number of Pods is kept all the same."""
    priority_strategy: UpdatePriorityStrategy | None = None
    """Which Pods are updated first."""
    scatter_strategy: list[UpdateScatterTerm] | None = None
    """Spreads Pods with certain labels over the update, so that not all of them are updated at once."""


class RollingUpdate(_RollingFields):
    """How a change of the template reaches the Pods that run already."""

    pod_update_policy: str = ""
    """ReCreate (the default) replaces a Pod by a new one. InPlaceIfPossible keeps the Pod and changes its images and
    metadata, where nothing else changed. InPlaceOnly refuses changes that need a new Pod."""
    in_place_update_strategy: InPlaceUpdateStrategy | None = None
    """How Pods are updated in place."""


class UpdateStrategy(ApiModel):
    """How a change of the template reaches the Pods that run already."""

    type: str = ""
    """RollingUpdate (the default) updates them step by step. OnDelete leaves them as they are; only Pods that replace
    deleted ones get the new template."""
    rolling_update: RollingUpdate | None = None
    """The steps of RollingUpdate."""


class UpdateStrategyV1Alpha1(_RollingFields):
    """How a change of the template reaches the Pods that run already."""

    type: str = ""
    """ReCreate (the default) replaces a Pod by a new one. InPlaceIfPossible keeps the Pod and changes its images and
    metadata, where nothing else changed. InPlaceOnly refuses changes that need a new Pod. OnDelete leaves Pods as they
    are; only Pods that replace deleted ones get the new template."""
    in_place_update_strategy: InPlaceUpdateStrategyV1Alpha1 | None = None
    """How Pods are updated in place."""


class _ScaleFields(ApiModel):
    """What both versions say about scaling."""

    pods_to_delete: list[str] | None = None
    """Names of Pods to delete before all others. Lower the replicas by as many to get rid of them; with unchanged
    replicas each is replaced by a new one. A name leaves the list when its Pod is gone."""
    max_unavailable: IntOrString | None = None
    """How many Pods may be unavailable while Pods are added, as a number or a percentage of the replicas (rounded up).
    Further Pods are created when those become available. No limit by default."""


class ScaleStrategy(_ScaleFields):
    """How Pods are added and removed."""

    enable_pvc_reuse: Annotated[bool, schema_default(False)] = Field(default=False, alias="enablePVCReuse")
    """Whether the claims of a Pod that somebody else deleted are used again by the Pod that replaces it, which then
    also has its name. Otherwise they go with the Pod."""
    exclude_preparing_delete: bool = False
    """Whether Pods that wait for their preDelete hook no longer count, so that they are replaced at once."""


class ScaleStrategyV1Alpha1(_ScaleFields):
    """How Pods are added and removed."""

    disable_pvc_reuse: bool = Field(default=False, alias="disablePVCReuse")
    """Whether the claims of a Pod that somebody else deleted go with it. Otherwise they are used again by the Pod that
    replaces it, which then also has its name."""


class _Spec(ApiModel):
    """What both versions of the spec say in the same words."""

    replicas: Int32 | None = None
    """How many Pods there should be; 1 by default."""
    selector: LabelSelector
    """The Pods of this CloneSet, by labels; the template's labels must match. It cannot be changed afterwards."""
    template: RawObject
    """What a Pod is made from: the metadata and spec of a Pod. restartPolicy must be Always."""
    volume_claim_templates: list[dict[str, Any]] | None = None
    """Claims that every Pod gets for itself, each mounted under its name. A change is for Pods created from then on."""
    revision_history_limit: Int32 | None = None
    """How many old revisions of the template are kept for going back; 10 by default."""
    min_ready_seconds: Int32 = 0
    """How long a Pod must be ready, in seconds, before it counts as available; 0 by default."""
    progress_deadline_seconds: Int32 | None = None
    """After how many seconds without progress the condition Progressing says so. The update goes on. Larger than
    minReadySeconds; no deadline by default."""
    lifecycle: Lifecycle | None = None
    """Hooks at the turning points of a Pod's life."""


class CloneSetSpec(_Spec):
    """What Pods there should be, and how they are brought there."""

    scale_strategy: ScaleStrategy = Field(default_factory=ScaleStrategy)
    """How Pods are added and removed."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How a change of the template reaches the Pods that run already."""


class CloneSetV1Alpha1Spec(_Spec):
    """What Pods there should be, and how they are brought there."""

    scale_strategy: ScaleStrategyV1Alpha1 = Field(default_factory=ScaleStrategyV1Alpha1)
    """How Pods are added and removed."""
    update_strategy: UpdateStrategyV1Alpha1 = Field(default_factory=UpdateStrategyV1Alpha1)
    """How a change of the template reaches the Pods that run already."""


class CloneSetCondition(ApiModel):
    """One aspect of how the CloneSet is."""

    type: str
    """Progressing, FailedScale or FailedUpdate."""
    status: str
    """True, False or Unknown."""
    last_update_time: str = ""
    """When status or reason were last set."""
    last_transition_time: str = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class CloneSetStatus(ApiModel):
    """How many Pods there are, and how far an update has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset(
        {"replicas", "ready_replicas", "available_replicas", "updated_replicas", "updated_ready_replicas"}
    )

    observed_generation: Int64 = 0
    """The generation of the CloneSet these numbers are about."""
    replicas: Int32 = 0
    """Pods there are, without those that end or have ended."""
    ready_replicas: Int32 = 0
    """Those of them that are ready."""
    available_replicas: Int32 = 0
    """Those of them that have been ready for minReadySeconds."""
    updated_replicas: Int32 = 0
    """Those of them at the update revision."""
    updated_ready_replicas: Int32 = 0
    """Those of them at the update revision and ready."""
    updated_available_replicas: Int32 = 0
    """Those of them at the update revision and available."""
    expected_updated_replicas: Int32 = 0
    """How many Pods shall be at the update revision, as the partition has it. The roll-out has come as far as it
    should when updatedReplicas is no less."""
    update_revision: str = ""
    """The revision (ControllerRevision) of the present template."""
    current_revision: str = ""
    """The revision that Pods were at when all of them last had the same."""
    collision_count: Int32 | None = None
    """How often the name of a revision was taken already."""
    label_selector: str = ""
    """The selector as text, for the scale subresource."""
    conditions: list[CloneSetCondition] | None = None
    """Aspects of how the CloneSet is."""


class CloneSet(KubeObject):
    """CloneSet keeps a number of equal Pods running, and updates them by replacing them or in place."""

    spec: CloneSetSpec
    """What is wanted."""
    status: CloneSetStatus | None = None
    """What is observed."""


class CloneSetV1Alpha1(KubeObject):
    """CloneSet keeps a number of equal Pods running, and updates them by replacing them or in place."""

    spec: CloneSetV1Alpha1Spec
    """What is wanted."""
    status: CloneSetStatus | None = None
    """What is observed."""
