"""The revisions of a workload carried out, and its status written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from app.kube.client import Client
from app.kube.objects import ControllerRevision
from app.kube.resources import Resource
from app.kube.selectors import Selector
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store
from app.pods.history import RevisionHistory
from app.pods.predicates import is_controlled_by, ownerless
from app.pods.revisions import Revision, current_revision, short_hash, surplus_of_workload
from app.workloads.report import Status, status_patch
from app.workloads.settings import OWNER, Content, Revisions
from app.workloads.state import AnySnapshot

# The ControllerRevisions of a workload: what its Pods are made from, and were (CS-56, CS-69 … CS-77).
#
# The rules are in :mod:`app.pods.revisions`, the writes in :mod:`app.pods.history`; here is what workloads add.


class History:
    """Reads a workload's revisions from ``store`` (with index OWNER) and writes them."""

    def __init__(self, client: Client, store: Store[ControllerRevision]) -> None:
        self._revisions = RevisionHistory(client)
        self._store = store

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new."""
        self._revisions.observe(change)

    def revisions(self, content: Content, selector: Selector) -> list[Revision]:
        """CS-56: those the workload controls, and those that match and nobody controls; oldest first.

        ``selector``: that of the workload.
        """
        owner = content.owner
        own = self._store.by_index(OWNER, owner.index_key)
        nobodys = self._store.by_index(OWNER, ownerless(content.namespace))
        matching = [found for found in nobodys if selector.matches(found.metadata.labels)]
        return self._revisions.of(owner.uid, owner, [*own, *matching])

    async def is_recorded(self, content: Content, name: str) -> bool:
        """Ask the API server for a revision that the cache does not show (PM-10).

        A manager that has just taken over may see Pods, and the status, before the revisions they speak of. One that is
        found is known from now on.
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
        """CS-72, CS-73: make sure that a revision has this content and is the newest.

        ``ordered``: what :meth:`revisions` gave; ``recorded``: the current revision that the status names.
        """
        update, collisions = await self._revisions.record(content, ordered, collision_count)
        if not any(one.name == update.name for one in ordered) or update.number != ordered[-1].number:
            ordered = self.revisions(content, selector)
        return Revisions(current_revision(recorded, ordered, update), update, ordered, collisions)

    async def adopt(self, content: Content, ordered: Iterable[Revision]) -> None:
        """Take over the revisions that nobody controls, or they would outlive the workload."""
        for revision in ordered:
            if revision.controller is None:
                await self._revisions.adopt(content, revision)

    async def truncate(
        self, content: Content, ordered: Sequence[Revision], in_use: Collection[str], limit: int
    ) -> None:
        """CS-63: delete the oldest revisions nobody uses, where there are more than the limit."""
        own = [revision for revision in ordered if is_controlled_by(revision, content.owner)]
        await self._revisions.delete(content, surplus_of_workload(own, in_use, limit))

    async def label(self, content: Content, revision: Revision, labels: Mapping[str, str]) -> None:
        """Put labels on a revision."""
        await self._revisions.label(content, revision, labels)


# Writing a workload's status, and taking away what no longer serves (CS-58, CS-61, CS-63).


async def write_workload_status(
    client: Client,
    resource: Resource,
    snapshot: AnySnapshot,
    wanted: Status,
    required: Collection[str],
) -> None:
    """Write the status where it differs, and remember what was written until the cache shows it.

    ``required``: fields that the schema wants to be there. Raises what the API server says.
    """

    def difference(present: Status) -> dict[str, Any]:
        return status_patch(present, wanted, required=required)

    workload, state = snapshot.workload, snapshot.state
    known = state.present_status(workload)
    written = await write_status(client, resource, workload.metadata, known, difference)
    if written is not None:
        state.written = KnownStatus(wanted, written.version)


async def truncate_history(history: History, snapshot: AnySnapshot, needed: Collection[Revision], limit: int) -> None:
    """CS-63: delete old revisions nobody uses.

    ``needed``: those needed beside what the Pods are at and what the status, as it is now, calls the current one: its
    write wakes nobody, so this is the last look after a roll-out.
    """
    ordered, workload = snapshot.revisions.ordered, snapshot.workload
    if len(ordered) <= limit:
        return
    hashes = {pod.revision for pod in snapshot.pods}
    in_use = {one.name for one in ordered if short_hash(one.name) in hashes}
    in_use.update(one.name for one in needed)
    in_use.add(str(snapshot.state.present_status(workload).status.get("currentRevision") or ""))
    await history.truncate(snapshot.resolved.content, ordered, in_use, limit)
