"""The ControllerRevisions of a workload: what its Pods are made from, and were (CS-56, CS-69 … CS-77).

The rules are in :mod:`app.pods.revisions`, the writes in :mod:`app.pods.history`; here is what workloads add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.api import names
from app.kube.client import Client
from app.kube.objects import ControllerRevision
from app.kube.selectors import Selector
from app.kube.store import Change, Store
from app.pods.history import RevisionHistory
from app.pods.owners import ownerless
from app.pods.revisions import Create, Revision, current_revision, revision_of, surplus_of_workload
from app.pods.templates import controller_revision
from app.workloads.engine.kind import OWNER, Owner, WorkloadKind


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be recorded of a workload. ``labels``: those of its revisions; ``claims_hash``: that of its claim
    templates, None for a kind without."""

    owner: Owner
    data: bytes
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    claims_hash: str | None = None

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
        return controller_revision(
            create, self.namespace, self.owner.reference, labels=self.labels, annotations=annotations
        )

    def revision_patch(self, revision: Revision, number: int) -> dict[str, Any] | None:
        """What to change on a revision that is used again: its number, then also its hash of the claims (CS-72), and
        its owner where nobody owns it, or it would outlive us or go before us."""
        metadata: dict[str, Any] = {}
        if revision.controller_uid != self.owner.uid:
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


class History:
    """Reads a workload's revisions from ``store`` (with index OWNER) and writes them."""

    def __init__(self, client: Client, store: Store[ControllerRevision], kind: WorkloadKind) -> None:
        self._revisions = RevisionHistory(client)
        self._store = store
        self._kind = kind

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new."""
        self._revisions.observe(change)

    def revisions(self, content: Content, selector: Selector) -> list[Revision]:
        """CS-56: those the workload controls, and those that match and nobody controls; oldest first.

        ``selector``: that of the workload.
        """
        uid = content.owner.uid
        own = [found for found in self._store.by_index(OWNER, uid) if self._kind.manages(found.metadata, uid)]
        nobodys = self._store.by_index(OWNER, ownerless(content.namespace))
        matching = [found for found in nobodys if selector.matches(found.metadata.labels)]
        return self._revisions.of(uid, uid, [*own, *matching])

    async def is_recorded(self, content: Content, name: str) -> bool:
        """Ask the API server for a revision that the cache does not show (PM-10).

        A manager that has just taken over may see Pods, and the status, before the revisions they speak of. One that is
        found is known from now on.
        """
        stored = await self._revisions.get(content, name)
        if stored is None:
            return False
        controller = stored.metadata.controller
        if controller is not None and controller.uid != content.owner.uid:
            return False
        self._revisions.believe(content, stored)
        return True

    async def record(
        self, content: Content, selector: Selector, ordered: list[Revision], recorded: str, collision_count: int
    ) -> Revisions:
        """CS-72, CS-73: make sure that a revision has this content and is the newest.

        ``ordered``: what :meth:`revisions` gave; ``recorded``: the current revision that the status names.
        """
        update, collisions = await self._revisions.record(content, ordered, collision_count)
        if not any(one.name == update.name for one in ordered) or update.number != ordered[-1].number:
            ordered = self.revisions(content, selector)
        return Revisions(current_revision(recorded, ordered, update), update, ordered, collisions)

    async def truncate(
        self, content: Content, ordered: Sequence[Revision], in_use: Collection[str], limit: int
    ) -> None:
        """CS-63: delete the oldest revisions nobody uses, where there are more than the limit."""
        own = [revision for revision in ordered if revision.controller_uid == content.owner.uid]
        await self._revisions.delete(content, surplus_of_workload(own, in_use, limit))

    async def label(self, content: Content, revision: Revision, labels: Mapping[str, str]) -> None:
        """Put labels on a revision."""
        await self._revisions.label(content, revision, labels)
