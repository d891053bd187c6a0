"""What the engine asks of a workload's spec and feature gates, and what it records as a revision. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from app.api import names
from app.api.fields import InPlaceUpdateStrategy
from app.kube.objects import ControllerRevision, Meta, ObjectMeta, OwnerReference
from app.kube.resources import Resource
from app.kube.selectors import Selector
from app.pods.lifecycle import Lifecycle
from app.pods.predicates import BY_CONTROLLER, Owner, is_controlled_by
from app.pods.revisions import (
    Create,
    Digest,
    Revision,
    controller_revision,
    revision_hash,
    revision_of,
    short_hash,
    template_data,
)

OWNER: Final = BY_CONTROLLER
"""The index of Pods, claims and revisions by the object that controls them; one for all workloads."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload; ``resource`` is that of the stored version."""

    resource: Resource

    def owner(self, metadata: Meta) -> Owner:
        """Return the workload with this metadata as its dependents refer to it."""
        return Owner.of(self.resource, metadata)

    def managing_reference(self, metadata: ObjectMeta) -> OwnerReference | None:
        """Return the reference to the workload of this kind that manages an object, in whatever version (D-2)."""
        reference = metadata.controller
        if reference is not None and (reference.kind, reference.group) == (self.resource.kind, self.resource.group):
            return reference
        return None


# What a workload records as a revision, and the revisions of one reconcile (CS-69 … CS-77). Pure.


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be recorded of a workload. ``labels``: those of its revisions; ``claims_hash``: that of its claim
    templates, None for a kind without; ``hash_label``: the label that holds the hash of a revision; ``digest``: how its
    hash is made."""

    owner: Owner
    data: bytes
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    claims_hash: str | None = None
    hash_label: str = names.CONTROLLER_HASH
    digest: Digest = revision_hash

    @classmethod
    def of_template(
        cls,
        owner: Owner,
        template: Mapping[str, Any],
        annotations: Mapping[str, str],
        *,
        claims_hash: str | None = None,
        hash_label: str = names.CONTROLLER_HASH,
        digest: Digest = revision_hash,
    ) -> Self:
        """Of a workload that records its Pod template. ``annotations``: its own."""
        labels = (template.get("metadata") or {}).get("labels") or {}
        return cls(owner, template_data(template), labels, annotations, claims_hash, hash_label, digest)

    # ---- app.pods.history.Recorded

    @property
    def name(self) -> str:
        """What names of revisions begin with."""
        return self.owner.name

    @property
    def known_as(self) -> str:
        """Own writes are kept by the workload's uid."""
        return self.owner.uid

    @property
    def namespace(self) -> str:
        """Where the revisions are."""
        return self.owner.namespace

    def __str__(self) -> str:
        return str(self.owner)

    def revision_object(self, create: Create) -> dict[str, Any]:
        """CS-71: the ControllerRevision to create."""
        annotations = {key: text for key, text in self.annotations.items() if key != names.CONVERSION_DATA}
        if self.claims_hash is not None:
            annotations[names.CLAIM_TEMPLATES_HASH] = self.claims_hash
        if self.hash_label == names.CONTROLLER_REVISION_HASH:
            # DS-53: this label is what Pods are compared with, and their hash is the name's.
            create = replace(create, label_hash=short_hash(create.name))
        return controller_revision(
            create,
            self.namespace,
            self.owner.reference,
            labels=self.labels,
            annotations=annotations,
            hash_label=self.hash_label,
        )

    def revision_patch(self, revision: Revision, number: int) -> dict[str, Any] | None:
        """What to change on a revision that is used again: its number, then also its hash of the claims (CS-72), and
        its owner where nobody owns it, or it would outlive us or go before us."""
        metadata: dict[str, Any] = {}
        if not is_controlled_by(revision, self.owner):
            metadata["ownerReferences"] = [self.owner.reference]
        hashed = self.claims_hash is None or revision.annotations.get(names.CLAIM_TEMPLATES_HASH) == self.claims_hash
        if number != revision.number and not hashed:
            metadata["annotations"] = {names.CLAIM_TEMPLATES_HASH: self.claims_hash}
        patch: dict[str, Any] = {"revision": number} if number != revision.number else {}
        if metadata or patch:
            # The uid is a precondition: never another revision of the same name.
            patch["metadata"] = {**metadata, "uid": revision.uid}
        return patch or None

    def reading(self, stored: ControllerRevision) -> Revision:
        """A revision that has our name: nobody's, or one left behind by a workload of this kind and name, may be used.

        Another kind of the same name keeps the like under the like name. Its history is never taken: the next name is.
        """
        controller, found = stored.metadata.controller, revision_of(stored)
        left_behind = (self.owner.kind, self.owner.api_version.rpartition("/")[0], self.owner.name)
        if controller is None or (controller.kind, controller.group, controller.name) == left_behind:
            return found
        return replace(found, data=b"")


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of a workload: the one its Pods were at, the one they are to be at, and all, oldest first."""

    current: Revision
    update: Revision
    ordered: Sequence[Revision]
    collision_count: int = 0


class UpdatePolicy(StrEnum):
    """How a Pod gets to another revision."""

    RECREATE = "ReCreate"
    IN_PLACE_IF_POSSIBLE = "InPlaceIfPossible"
    IN_PLACE_ONLY = "InPlaceOnly"

    @classmethod
    def of(cls, text: str) -> UpdatePolicy:
        """By its name; ReCreate for what admission refuses."""
        return cls(text) if text in tuple(cls) else cls.RECREATE


@dataclass(frozen=True, slots=True)
class EngineGates:
    """The feature gates that work alike in all workloads; a workload adds its own in a subclass."""

    #: Pods have the label pod-template-hash beside that of their revision.
    template_hash: bool = True
    #: Pods carry the bare hash of their revision, not its name.
    short_hash: bool = False
    #: An update in place bears the bare hash of its revision, not its name (PM-20).
    update_hash: bool = False
    #: An update in place is shown as states of the Pod's lifecycle (PM-55).
    lifecycle_states: bool = True
    #: A change of the claim templates replaces Pods.
    recreate_on_claim_change: bool = False
    #: Budgets are asked before a Pod is updated.
    budget: bool = False
    env_from_metadata: bool = True
    vertical_scaling: bool = False
    #: Pods get the readiness gate KruisePodReady.
    ready_gate: bool = True
    #: Images are pulled ahead of an update in place, by ImagePullJobs.
    pre_download: bool = False
    #: Pods are created with an account of who manages which field.
    managed_fields: bool = False


def shared_gates(enabled: Callable[[str], bool]) -> dict[str, bool]:
    """The fields of EngineGates that one gate sets for all workloads; ``enabled`` takes a gate's name."""
    return {
        "budget": enabled("PodUnavailableBudgetUpdateGate"),
        "env_from_metadata": enabled("InPlaceUpdateEnvFromMetadata"),
        "vertical_scaling": enabled("InPlaceWorkloadVerticalScaling"),
        # CS-138
        "pre_download": enabled("PreDownloadImageForInPlaceUpdate") and enabled("KruiseDaemon"),
        "ready_gate": enabled("PodWebhook"),
        "managed_fields": enabled("CloneSetPodManagedFields") or not enabled("PodWebhook"),
    }


class WorkloadSettings(Protocol):
    """What the engine reads of a workload's settings; frozen, resolved once per generation."""

    @property
    def lifecycle(self) -> Lifecycle | None: ...
    @property
    def min_ready_seconds(self) -> int: ...
    @property
    def update_policy(self) -> UpdatePolicy | None:
        """None: the spec has no block that says how Pods are updated."""
        ...

    @property
    def grace_seconds(self) -> int | None:
        """How long a Pod stays out of service before it is changed in place; None: the spec says nothing of it."""
        ...

    @property
    def history_limit(self) -> int:
        """How many old revisions are kept."""
        ...

    @property
    def gates(self) -> EngineGates: ...


Settings = TypeVar("Settings", bound=WorkloadSettings, covariant=True)


@dataclass(frozen=True, slots=True)
class ImagePullSettings:
    """What the spec says of images that are pulled ahead; None: nothing."""

    parallelism: int | str | None = None
    timeout_seconds: int | None = None
    min_updated_ready: int | None = None

    @classmethod
    def of(cls, strategy: InPlaceUpdateStrategy | None) -> ImagePullSettings:
        """What a strategy of updates in place says."""
        if strategy is None:
            return NO_IMAGE_PULL_SETTINGS
        return cls(
            strategy.image_pre_download_parallelism,
            strategy.image_pre_download_timeout_seconds,
            strategy.image_pre_download_min_updated_ready_pods,
        )


NO_IMAGE_PULL_SETTINGS: Final = ImagePullSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec(Generic[Settings]):
    """A workload at one generation, worked out once and then only read. ``spec`` is its JSON form."""

    settings: Settings
    selector: Selector
    owner: Owner
    spec: Mapping[str, Any]
    content: Content
    image_pulls: ImagePullSettings = NO_IMAGE_PULL_SETTINGS

    @property
    def template(self) -> Mapping[str, Any]:
        """The Pod template."""
        found: Mapping[str, Any] = self.spec.get("template") or {}
        return found

    @property
    def claim_templates(self) -> Sequence[Mapping[str, Any]]:
        """The volumeClaimTemplates."""
        return self.spec.get("volumeClaimTemplates") or ()

    @property
    def selector_labels(self) -> Mapping[str, str]:
        """The matchLabels of the selector."""
        return (self.spec.get("selector") or {}).get("matchLabels") or {}


DEFAULT_MAX_UNAVAILABLE: Final = "20%"
"""What an unset maxUnavailable means."""

_percent = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)%", re.ASCII).fullmatch


def share(value: int | str, total: int, *, round_up: bool) -> int | None:
    """``value`` as a count: an integer as it is, a percentage of ``total`` rounded; None for any other text.

    Percentages may have decimals (B-5); they are scaled in exact arithmetic.
    """
    if isinstance(value, int):
        return value
    match = _percent(value)
    if match is None:
        return None
    part = Fraction(match[1]) * total / 100
    return -((-part).__floor__()) if round_up else part.__floor__()
