"""The revisions of SidecarSets: :mod:`app.pods.history` with the content and the rules of this kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.api.sidecarset import SidecarSet
from app.kube.client import Client
from app.kube.objects import ControllerRevision
from app.kube.store import Change, Store
from app.pods.history import RevisionHistory
from app.pods.revisions import Create, Digest, Revision, revision_hash, revision_of
from app.sidecars.sidecarset.revisions import revision_object, revision_patch, set_owner, snapshot, surplus_revisions

RECORDED_SET = "sidecarset"
"""The index of ControllerRevisions by the set they record."""


def by_recorded_set(revision: ControllerRevision) -> Iterable[str]:
    """The index function of :data:`RECORDED_SET`."""
    name = revision.metadata.labels.get(names.SIDECARSET_NAME)
    return (name,) if name else ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The revision with a set's present content, and the set's collision count."""

    latest: str
    collision_count: int


@dataclass(frozen=True, slots=True)
class _RecordedSet:
    """A set as the history sees it (:class:`app.pods.history.Recorded`); its own writes are kept by its name."""

    owner: SidecarSet
    namespace: str
    data: bytes

    @property
    def name(self) -> str:
        return self.owner.name

    @property
    def known_as(self) -> str:
        return self.owner.name

    @property
    def digest(self) -> Digest:
        return revision_hash

    def __str__(self) -> str:
        return f"SidecarSet {self.owner.name}"

    def revision_object(self, create: Create) -> dict[str, Any]:
        return revision_object(self.owner, self.namespace, create)

    def revision_patch(self, revision: Revision, number: int) -> dict[str, Any] | None:
        return revision_patch(self.owner, revision, number)

    def reading(self, stored: ControllerRevision) -> Revision:
        return revision_of(stored)


class RevisionRecorder:
    """Records the content of sets in ``namespace``, reading from ``store`` (with index :data:`RECORDED_SET`)."""

    def __init__(self, client: Client, store: Store[ControllerRevision], namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._history = RevisionHistory(client)
        self._contents: dict[str, tuple[int, bytes]] = {}

    # ---- what is known

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        self._history.observe(change)

    def forget(self, owner_uid: str) -> None:
        """A set is gone."""
        self._contents.pop(owner_uid, None)

    def revisions(self, owner: SidecarSet) -> list[Revision]:
        """The set's revisions as they are by all we know, oldest first, without those of another owner (SS-75)."""
        return self._history.of(owner.name, set_owner(owner), self._store.by_index(RECORDED_SET, owner.name))

    def _recorded(self, owner: SidecarSet) -> _RecordedSet:
        """The set with its content, printed once per generation."""
        generation, uid = owner.metadata.generation, owner.metadata.uid
        printed = self._contents.get(uid)
        if printed is None or printed[0] != generation:
            printed = self._contents[uid] = (generation, snapshot(owner.spec))
        return _RecordedSet(owner, self._namespace, printed[1])

    # ---- what is written

    async def record(self, owner: SidecarSet, collision_count: int) -> Recorded:
        """SS-73 … SS-75: make sure that a revision has the present content and is the newest."""
        latest, collisions = await self._history.record(self._recorded(owner), self.revisions(owner), collision_count)
        return Recorded(latest.name, collisions)

    async def truncate(self, owner: SidecarSet, latest: str, in_pods: Collection[str]) -> None:
        """SS-76: delete the oldest revisions nobody uses, where there are more than the set's limit."""
        surplus = surplus_revisions(owner, latest, self.revisions(owner), in_pods)
        await self._history.delete(self._recorded(owner), surplus)
