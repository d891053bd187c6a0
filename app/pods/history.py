"""Write ControllerRevisions, and remember revisions that the cache does not contain yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.kube.client import Client, get_or_none
from app.kube.clock import Clock
from app.kube.errors import AlreadyExists, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.kube.resources import CONTROLLERREVISIONS
from app.kube.store import Change
from app.pods.predicates import Owner
from app.pods.revisions import (
    Create,
    Digest,
    Reuse,
    Revision,
    after_clash,
    in_order,
    of_owner,
    plan_revision,
    revision_of,
)

# The best known state of revisions: the cache, overlaid with our own writes until the cache reflects them. A lagging
# watch therefore never causes a duplicate revision. Every workload kind reads its revision history through this class.

OWN_WRITE_TTL: Final = 60.0
"""Seconds the cache may take to reflect one of our writes; after that, the cached state is used."""


@dataclass(frozen=True, slots=True)
class _OwnWrite:
    """A revision as we wrote it (None if deleted) or read it live, kept until the cache contains it."""

    owner: str
    revision: ControllerRevision | None
    expires: float


class KnownRevisions:
    """The cached revisions, overlaid with our own writes. ``owner`` is the caller's key for a workload: a uid or a
    name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Writes by uid, oldest first, and the uids by owner.
        self._writes: dict[str, _OwnWrite] = {}
        self._written_of: dict[str, set[str]] = {}
        #: Revision uid → its resourceVersion and the parsed revision.
        self._readings: dict[str, tuple[str, Revision]] = {}

    def observe(self, change: Change[ControllerRevision]) -> None:
        """Drop locally recorded revisions that the cache has caught up with."""
        metadata = change.object.metadata
        write = self._writes.get(metadata.uid)
        if change.new is None:
            self._readings.pop(metadata.uid, None)
        if write is not None and (change.new is None or _includes(change.new, write)):
            self._drop(metadata.uid)

    def record_write(self, owner: str, uid: str, revision: ControllerRevision | None) -> None:
        """Record a revision as the API server returned it on a write or read (None if deleted)."""
        self._expire()
        self._drop(uid)
        self._writes[uid] = _OwnWrite(owner, revision, self._clock.monotonic() + OWN_WRITE_TTL)
        self._written_of.setdefault(owner, set()).add(uid)

    def of(self, known_as: str, owner: Owner, cached: Iterable[ControllerRevision]) -> list[Revision]:
        """Return the revisions without a controller and those that ``owner`` controls, oldest first. [PM-85, PM-86]"""
        known = {stored.metadata.uid: stored for stored in cached}
        self._expire()
        for uid in self._written_of.get(known_as, ()):
            revision = self._writes[uid].revision
            if revision is not None:
                known[uid] = revision
            else:
                known.pop(uid, None)
        return in_order(of_owner(map(self._reading, known.values()), owner))

    def _expire(self) -> None:
        """Drop expired entries. The cost depends on the number of entries dropped, not on the number of owners."""
        now = self._clock.monotonic()
        while self._writes:
            uid, write = next(iter(self._writes.items()))
            if write.expires >= now:
                return
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        write = self._writes.pop(uid, None)
        if write is None:
            return
        same_owner = self._written_of[write.owner]
        same_owner.discard(uid)
        if not same_owner:
            del self._written_of[write.owner]

    def _reading(self, stored: ControllerRevision) -> Revision:
        uid, version = stored.metadata.uid, stored.metadata.resource_version
        reading = self._readings.get(uid)
        if reading is None or reading[0] != version:
            reading = self._readings[uid] = (version, revision_of(stored))
        return reading[1]


def _includes(stored: ControllerRevision, write: _OwnWrite) -> bool:
    """Return whether the cached revision is at least as new as our write. For a deletion, return False: only a delete
    event confirms it."""
    return write.revision is not None and is_at_least(
        stored.metadata.resource_version, write.revision.metadata.resource_version
    )


logger = logging.getLogger(__name__)


class Recorded(Protocol):
    """An object whose content is recorded in revisions. ``str()`` returns its name for logs."""

    @property
    def name(self) -> str:
        """Prefix of the names of its revisions."""
        ...

    @property
    def known_as(self) -> str:
        """Key that distinguishes its revisions from those of other objects: a uid or a name."""
        ...

    @property
    def namespace(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def digest(self) -> Digest:
        """Function that computes the suffix of a revision's name."""
        ...

    def revision_object(self, create: Create) -> dict[str, Any]: ...

    def revision_patch(self, revision: Revision, number: int) -> Mapping[str, Any] | None:
        """Return the patch that adopts an existing revision as ``number``, or None if nothing changes."""
        ...

    def reading(self, stored: ControllerRevision) -> Revision:
        """Parse an existing revision that has the name of a new one. Omit its data if it must not be reused."""
        ...


class RevisionHistory:
    """Writes revisions and remembers what it wrote."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.known = KnownRevisions(client.clock)

    async def get(self, recorded: Recorded, name: str) -> ControllerRevision | None:
        """Read a revision from the API server; None if it does not exist."""
        return await get_or_none(
            self._client, CONTROLLERREVISIONS, name, recorded.namespace, decode=decode_controller_revision
        )

    def record_write(self, recorded: Recorded, stored: ControllerRevision) -> None:
        """Remember this revision until the cache contains it."""
        self.known.record_write(recorded.known_as, stored.metadata.uid, stored)

    async def record(self, recorded: Recorded, ordered: list[Revision], collision_count: int) -> tuple[Revision, int]:
        """Make the revision with the current content the newest, and return it and the collision count.

        ``ordered`` are the existing revisions, oldest first.
        """
        digest = recorded.digest
        plan = plan_revision(recorded.name, recorded.data, ordered, collision_count, digest)
        while isinstance(plan, Create):
            collision_count = plan.collision_count
            try:
                created = await self._client.create(
                    CONTROLLERREVISIONS,
                    recorded.revision_object(plan),
                    recorded.namespace,
                    decode=decode_controller_revision,
                )
            except AlreadyExists:
                existing = await self._client.get(
                    CONTROLLERREVISIONS, plan.name, recorded.namespace, decode=decode_controller_revision
                )
                plan = after_clash(recorded.name, plan, recorded.reading(existing), digest)
            else:
                self.record_write(recorded, created)
                logger.info("%s: recorded revision %d as %s", recorded, plan.number, plan.name)
                return revision_of(created), collision_count
        return await self._use_again(recorded, plan), collision_count

    async def _use_again(self, recorded: Recorded, plan: Reuse) -> Revision:
        revision = plan.revision
        patch = recorded.revision_patch(revision, plan.number)
        if patch is None:
            return revision
        written = await self._patch(recorded, revision, patch)
        logger.info("%s: reusing revision %s as number %d", recorded, revision.name, plan.number)
        return revision_of(written)

    async def adopt(self, recorded: Recorded, revision: Revision) -> None:
        """Adopt a revision without a controller and keep its number."""
        patch = recorded.revision_patch(revision, revision.number)
        if patch is not None:
            await self._patch(recorded, revision, patch)

    async def label(self, recorded: Recorded, revision: Revision, labels: Mapping[str, str]) -> None:
        await self._patch(recorded, revision, {"metadata": {"uid": revision.uid, "labels": dict(labels)}})

    async def _patch(self, recorded: Recorded, revision: Revision, body: Mapping[str, Any]) -> ControllerRevision:
        written = await self._client.patch(
            CONTROLLERREVISIONS, revision.name, body, recorded.namespace, decode=decode_controller_revision
        )
        self.known.record_write(recorded.known_as, revision.uid, written)
        return written

    async def delete(self, recorded: Recorded, revisions: Iterable[Revision]) -> None:
        """Delete these revisions, each only if it is still the one observed."""
        for revision in revisions:
            try:
                await self._client.delete(CONTROLLERREVISIONS, revision.name, recorded.namespace, uid=revision.uid)
            except NotFound:
                logger.debug("%s: revision %s is already deleted", recorded, revision.name)
            self.known.record_write(recorded.known_as, revision.uid, None)
