"""What a workload records as a revision, and the revisions of one reconcile (CS-69 … CS-77). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from app.api import names
from app.kube.objects import ControllerRevision
from app.pods.owners import is_controlled_by
from app.pods.revisions import Create, Digest, Revision, revision_hash, revision_of, short_hash
from app.pods.templates import controller_revision, template_data
from app.workloads.engine.kind import Owner


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
