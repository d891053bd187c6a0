"""The spec fields and feature gates that the engine reads, and the content it records as a revision. Pure."""

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
"""The index of Pods, claims and revisions by the object that controls them, shared by all workload kinds."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload; ``resource`` is its stored version."""

    resource: Resource

    def owner(self, metadata: Meta) -> Owner:
        """Return the workload with this metadata in the form used in owner references."""
        return Owner.of(self.resource, metadata)

    def managing_reference(self, metadata: ObjectMeta) -> OwnerReference | None:
        """Return an object's controller reference if it refers to a workload of this kind, in any API version."""
        reference = metadata.controller
        if reference is not None and (reference.kind, reference.group) == (self.resource.kind, self.resource.group):
            return reference
        return None


# Content of a workload's revisions, and the revisions of one reconcile. [CS-69 … CS-77]


@dataclass(frozen=True, slots=True)
class Content:
    """Content to record as a revision. ``labels`` are the revisions' labels; ``claims_hash`` is the hash of the claim
    templates (None for kinds without); ``digest`` computes the revision's hash, and ``hash_label`` is its label."""

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
        """Return the revision content of a workload that records its Pod template. ``annotations`` are the
        workload's."""
        labels = (template.get("metadata") or {}).get("labels") or {}
        return cls(owner, template_data(template), labels, annotations, claims_hash, hash_label, digest)

    # ---- app.pods.history.Recorded

    @property
    def name(self) -> str:
        """Prefix of revision names."""
        return self.owner.name

    @property
    def known_as(self) -> str:
        """Key under which our own writes are remembered: the workload's UID."""
        return self.owner.uid

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    def __str__(self) -> str:
        return str(self.owner)

    def revision_object(self, create: Create) -> dict[str, Any]:
        """Return the ControllerRevision to create. [CS-71]"""
        annotations = {key: text for key, text in self.annotations.items() if key != names.CONVERSION_DATA}
        if self.claims_hash is not None:
            annotations[names.CLAIM_TEMPLATES_HASH] = self.claims_hash
        if self.hash_label == names.CONTROLLER_REVISION_HASH:
            # Pods are compared by this label, so it must hold the hash from the revision's name. [DS-53]
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
        """Return the patch for a revision that is reused. It sets the number, the hash of the claim templates
        and, for an orphan, the owner, so that the revision is garbage-collected with the workload. [CS-72]"""
        metadata: dict[str, Any] = {}
        if not is_controlled_by(revision, self.owner):
            metadata["ownerReferences"] = [self.owner.reference]
        hashed = self.claims_hash is None or revision.annotations.get(names.CLAIM_TEMPLATES_HASH) == self.claims_hash
        if number != revision.number and not hashed:
            metadata["annotations"] = {names.CLAIM_TEMPLATES_HASH: self.claims_hash}
        patch: dict[str, Any] = {"revision": number} if number != revision.number else {}
        if metadata or patch:
            # The UID is a precondition: never patch another revision of the same name.
            patch["metadata"] = {**metadata, "uid": revision.uid}
        return patch or None

    def reading(self, stored: ControllerRevision) -> Revision:
        """Return an existing revision with the name of the one to create: unchanged if it is an orphan or was left by a
        deleted workload of this kind and name; otherwise without data, so that the caller tries the next name."""
        controller, found = stored.metadata.controller, revision_of(stored)
        left_behind = (self.owner.kind, self.owner.api_version.rpartition("/")[0], self.owner.name)
        if controller is None or (controller.kind, controller.group, controller.name) == left_behind:
            return found
        return replace(found, data=b"")


@dataclass(frozen=True, slots=True)
class Revisions:
    """Revisions of a workload: current, update, and all of them, oldest first."""

    current: Revision
    update: Revision
    ordered: Sequence[Revision]
    collision_count: int = 0


class UpdatePolicy(StrEnum):
    """How Pods are updated."""

    RECREATE = "ReCreate"
    IN_PLACE_IF_POSSIBLE = "InPlaceIfPossible"
    IN_PLACE_ONLY = "InPlaceOnly"

    @classmethod
    def of(cls, text: str) -> UpdatePolicy:
        """Parse a policy. Values that admission rejects become ReCreate."""
        return cls(text) if text in tuple(cls) else cls.RECREATE


@dataclass(frozen=True, slots=True)
class EngineGates:
    """Feature gates common to all workloads; kinds add their own in a subclass."""

    #: Pods also have the label pod-template-hash.
    template_hash: bool = True
    #: Pods are labeled with the bare hash of their revision instead of its name.
    short_hash: bool = False
    #: In-place updates record the bare hash of the revision instead of its name. [PM-20]
    update_hash: bool = False
    #: In-place updates set lifecycle states on the Pod. [PM-55]
    lifecycle_states: bool = True
    #: In-place updates also set a lifecycle state on Pods without one, such as adopted Pods.
    first_lifecycle_state: bool = True
    #: Without a preNormal hook, only scheduled Pods become Normal. [PM-74]
    normal_needs_node: bool = True
    #: Pods are replaced when a claim template changes.
    recreate_on_claim_change: bool = False
    env_from_metadata: bool = True
    vertical_scaling: bool = False
    #: Pods get the readiness gate KruisePodReady.
    ready_gate: bool = True
    #: ImagePullJobs pre-pull images for in-place updates.
    pre_download: bool = False
    #: Pods are created with managed fields.
    managed_fields: bool = False


def shared_gates(enabled: Callable[[str], bool]) -> dict[str, bool]:
    """Return the fields of EngineGates that are the same for all workloads. ``enabled`` takes a gate's name."""
    return {
        "env_from_metadata": enabled("InPlaceUpdateEnvFromMetadata"),
        "vertical_scaling": enabled("InPlaceWorkloadVerticalScaling"),
        # [CS-138]
        "pre_download": enabled("PreDownloadImageForInPlaceUpdate") and enabled("KruiseDaemon"),
        "ready_gate": enabled("PodWebhook"),
        "managed_fields": enabled("CloneSetPodManagedFields") or not enabled("PodWebhook"),
    }


class WorkloadSettings(Protocol):
    """Workload settings that the engine reads; frozen, resolved once per generation."""

    @property
    def lifecycle(self) -> Lifecycle | None: ...
    @property
    def min_ready_seconds(self) -> int: ...
    @property
    def update_policy(self) -> UpdatePolicy | None:
        """Update policy; None if the spec has no update strategy."""
        ...

    @property
    def grace_seconds(self) -> int | None:
        """Seconds a Pod stays out of service before it changes in place; None if unset."""
        ...

    @property
    def history_limit(self) -> int: ...

    @property
    def gates(self) -> EngineGates: ...


Settings = TypeVar("Settings", bound=WorkloadSettings, covariant=True)


@dataclass(frozen=True, slots=True)
class ImagePullSettings:
    """Spec fields about pre-pulling images; None if unset."""

    parallelism: int | str | None = None
    timeout_seconds: int | None = None
    min_updated_ready: int | None = None

    @classmethod
    def of(cls, strategy: InPlaceUpdateStrategy | None) -> ImagePullSettings:
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
    """A workload's spec at one generation, resolved once and then read-only. ``spec`` is its JSON form."""

    settings: Settings
    selector: Selector
    owner: Owner
    spec: Mapping[str, Any]
    content: Content
    image_pulls: ImagePullSettings = NO_IMAGE_PULL_SETTINGS

    @property
    def template(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.spec.get("template") or {}
        return found

    @property
    def claim_templates(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("volumeClaimTemplates") or ()

    @property
    def selector_labels(self) -> Mapping[str, str]:
        return (self.spec.get("selector") or {}).get("matchLabels") or {}


_percent = re.compile(r"([+-]?(?=\.?[0-9])[0-9]{0,18}(?:\.[0-9]{0,18})?)%", re.ASCII).fullmatch


def share(value: int | str, total: int, *, round_up: bool) -> int | None:
    """Return ``value`` as a count: an integer unchanged, a percentage of ``total`` rounded; None for any other text.

    Percentages may have decimals; they are scaled with exact arithmetic.
    """
    if isinstance(value, int):
        return value
    match = _percent(value)
    if match is None:
        return None
    part = Fraction(match[1]) * total / 100
    return -((-part).__floor__()) if round_up else part.__floor__()
