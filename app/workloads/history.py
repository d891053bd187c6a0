"""Read, record, adopt and truncate the revisions of a workload. [PM-85, CS-69 … CS-77]

The rules are in :mod:`app.pods.revisions` and the writes in :mod:`app.pods.history`; this module adds what is
specific to workloads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from app.kube.client import Client
from app.kube.objects import ControllerRevision
from app.kube.selectors import Selector
from app.kube.store import Change, Store
from app.pods.history import RevisionHistory
from app.pods.predicates import is_controlled_by, ownerless
from app.pods.revisions import Revision, current_revision, surplus_of_workload
from app.workloads.settings import OWNER, Content, Revisions


class History:
    """Reads a workload's revisions from ``store`` (with index OWNER) and writes them."""

    def __init__(self, client: Client, store: Store[ControllerRevision]) -> None:
        self._revisions = RevisionHistory(client)
        self._store = store

    def observe(self, change: Change[ControllerRevision]) -> None:
        self._revisions.known.observe(change)

    def revisions(self, content: Content, selector: Selector) -> list[Revision]:
        """Return the workload's revisions and the orphans that its ``selector`` matches, oldest first. [PM-85]"""
        owner = content.owner
        own = self._store.by_index(OWNER, owner.index_key)
        orphans = self._store.by_index(OWNER, ownerless(content.namespace))
        matching = [found for found in orphans if selector.matches(found.metadata.labels)]
        return self._revisions.known.of(owner.uid, owner, [*own, *matching])

    async def is_recorded(self, content: Content, name: str) -> bool:
        """Return whether the API server has a revision of this name that the cache lacks. [PM-10]

        A new leader may see Pods and the status before their revisions. Revisions found this way are remembered.
        """
        stored = await self._revisions.get(content, name)
        if stored is None:
            return False
        if stored.metadata.controller is not None and not is_controlled_by(stored.metadata, content.owner):
            return False
        self._revisions.record_write(content, stored)
        return True

    async def record(
        self, content: Content, selector: Selector, ordered: list[Revision], recorded: str, collision_count: int
    ) -> Revisions:
        """Ensure that a revision has this content and is the newest. [CS-72, CS-73]

        ``ordered`` is the result of :meth:`revisions`; ``recorded`` is the current revision in the status.
        """
        update, collisions = await self._revisions.record(content, ordered, collision_count)
        if not any(one.name == update.name for one in ordered) or update.number != ordered[-1].number:
            ordered = self.revisions(content, selector)
        return Revisions(current_revision(recorded, ordered, update), update, ordered, collisions)

    async def adopt(self, content: Content, ordered: Iterable[Revision]) -> None:
        """Adopt orphaned revisions, which would otherwise outlive the workload."""
        for revision in ordered:
            if revision.controller is None:
                await self._revisions.adopt(content, revision)

    async def truncate(
        self, content: Content, ordered: Sequence[Revision], in_use: Collection[str], limit: int
    ) -> None:
        """Delete the oldest unused revisions above the limit. [PM-93]"""
        own = [revision for revision in ordered if is_controlled_by(revision, content.owner)]
        await self._revisions.delete(content, surplus_of_workload(own, in_use, limit))

    async def label(self, content: Content, revision: Revision, labels: Mapping[str, str]) -> None:
        await self._revisions.label(content, revision, labels)
