"""Revisions as they are by all we know: what the cache shows, and our own writes until it shows them.

So no revision is recorded twice because a watch is behind. Every workload that keeps a history reads it through this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.kube.clock import Clock
from app.kube.expectations import is_at_least
from app.kube.objects import ControllerRevision
from app.kube.store import Change
from app.pods.owners import Owner
from app.pods.revisions import Revision, in_order, of_owner, revision_of

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
