"""Write ControllerRevisions, and remember revisions that the cache does not show yet."""

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
    Renumber,
    Reuse,
    Revision,
    RevisionPlan,
    Unchanged,
    after_clash,
    in_order,
    of_owner,
    plan_revision,
    revision_of,
)

# Revisions as they are by all we know: what the cache shows, and our own writes until it shows them.
#
# So no revision is recorded twice because a watch is behind. Every workload that keeps a history reads it through
# this.

OWN_WRITE_TTL: Final = 60.0
"""Seconds the cache may take to show a write of ours; after that it is believed again."""


@dataclass(frozen=True, slots=True)
class _OwnWrite:
    """A revision as our write left it (None: deleted), or as it was read live, until the cache shows that."""

    owner: str
    revision: ControllerRevision | None
    expires: float


class KnownRevisions:
    """``owner`` is whatever the caller tells its workloads apart by: a uid, a name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By uid, the oldest first, and which of them are of an owner.
        self._writes: dict[str, _OwnWrite] = {}
        self._written_of: dict[str, set[str]] = {}
        #: Revision's uid → its version and what was read from that.
        self._readings: dict[str, tuple[str, Revision]] = {}

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        metadata = change.object.metadata
        write = self._writes.get(metadata.uid)
        if change.new is None:
            self._readings.pop(metadata.uid, None)
        if write is not None and (change.new is None or _includes(change.new, write)):
            self._drop(metadata.uid)

    def record_write(self, owner: str, uid: str, revision: ControllerRevision | None) -> None:
        """The API server took a write of ours, or was asked: this is how it has the revision (None: deleted)."""
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
        """Drop what is too old: costs no more than there is to drop, however many owners there are."""
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
    """Whether the cached revision is at least as new as our write; a deletion shows by its own event only."""
    return write.revision is not None and is_at_least(
        stored.metadata.resource_version, write.revision.metadata.resource_version
    )


# Carrying out what revision plans say: create, number anew, adopt, delete, label. The shell of
# :mod:`app.pods.revisions`, for whatever keeps a history.
#
# Own writes are known until the cache shows them, so that no revision is recorded twice because a watch is behind.

logger = logging.getLogger(__name__)


class Recorded(Protocol):
    """An object whose content is recorded. ``str()`` of it names it in logs."""

    @property
    def name(self) -> str:
        """What names of its revisions begin with."""
        ...

    @property
    def known_as(self) -> str:
        """What tells its revisions from those of others: a uid, or a name."""
        ...

    @property
    def namespace(self) -> str:
        """Where its revisions are."""
        ...

    @property
    def data(self) -> bytes:
        """Its present content."""
        ...

    @property
    def digest(self) -> Digest:
        """What names of its revisions end with."""
        ...

    def revision_object(self, create: Create) -> dict[str, Any]:
        """The ControllerRevision to create."""
        ...

    def revision_patch(self, revision: Revision, number: int) -> Mapping[str, Any] | None:
        """What makes a revision that is there its own, under that number; None: nothing has to change."""
        ...

    def reading(self, stored: ControllerRevision) -> Revision:
        """A revision that has the wanted name already; without its data where it must not be used."""
        ...


class RevisionHistory:
    """Writes revisions and knows what it wrote."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known = KnownRevisions(client.clock)

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        self._known.observe(change)

    def of(self, known_as: str, owner: Owner, cached: Iterable[ControllerRevision]) -> list[Revision]:
        """Return the cached revisions that nobody or ``owner`` controls, with our own writes, oldest first."""
        return self._known.of(known_as, owner, cached)

    async def get(self, recorded: Recorded, name: str) -> ControllerRevision | None:
        """Ask the API server for a revision; None: there is none."""
        return await get_or_none(
            self._client, CONTROLLERREVISIONS, name, recorded.namespace, decode=decode_controller_revision
        )

    def record_write(self, recorded: Recorded, stored: ControllerRevision) -> None:
        """This revision is known from now on though the cache does not show it yet."""
        self._known.record_write(recorded.known_as, stored.metadata.uid, stored)

    async def record(self, recorded: Recorded, ordered: list[Revision], collision_count: int) -> tuple[Revision, int]:
        """The revision with the present content, which is the newest then, and the collision count.

        ``ordered``: the revisions there are, oldest first.
        """
        digest = recorded.digest
        plan: RevisionPlan | Reuse = plan_revision(recorded.name, recorded.data, ordered, collision_count, digest)
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
                logger.info("%s: revision %d is %s", recorded, plan.number, plan.name)
                return revision_of(created), collision_count
        return await self._use_again(recorded, plan), collision_count

    async def _use_again(self, recorded: Recorded, plan: Unchanged | Renumber | Reuse) -> Revision:
        revision = plan.revision
        number = revision.number if isinstance(plan, Unchanged) else plan.number
        patch = recorded.revision_patch(revision, number)
        if patch is None:
            return revision
        written = await self._patch(recorded, revision, patch)
        logger.info("%s: revision %s is used again as %d", recorded, revision.name, number)
        return revision_of(written)

    async def adopt(self, recorded: Recorded, revision: Revision) -> None:
        """Make a revision that nobody controls its own, under the number it has."""
        patch = recorded.revision_patch(revision, revision.number)
        if patch is not None:
            await self._patch(recorded, revision, patch)

    async def label(self, recorded: Recorded, revision: Revision, labels: Mapping[str, str]) -> None:
        """Put labels on a revision."""
        await self._patch(recorded, revision, {"metadata": {"uid": revision.uid, "labels": dict(labels)}})

    async def _patch(self, recorded: Recorded, revision: Revision, body: Mapping[str, Any]) -> ControllerRevision:
        written = await self._client.patch(
            CONTROLLERREVISIONS, revision.name, body, recorded.namespace, decode=decode_controller_revision
        )
        self._known.record_write(recorded.known_as, revision.uid, written)
        return written

    async def delete(self, recorded: Recorded, revisions: Iterable[Revision]) -> None:
        """Delete these; each only as long as it is the one that was seen."""
        for revision in revisions:
            try:
                await self._client.delete(CONTROLLERREVISIONS, revision.name, recorded.namespace, uid=revision.uid)
            except NotFound:
                logger.debug("%s: revision %s is gone already", recorded, revision.name)
            self._known.record_write(recorded.known_as, revision.uid, None)
