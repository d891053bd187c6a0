"""Carrying out what the revision plans of a SidecarSet say: create, renumber, adopt, delete.

The shell of :mod:`app.sidecars.sidecarset.revisions`. It knows its own writes until the cache shows them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from app.api import names
from app.api.sidecarset import SidecarSet
from app.kube.client import Client
from app.kube.errors import AlreadyExists, NotFound
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.kube.resources import CONTROLLERREVISIONS
from app.kube.store import Change, Store
from app.pods.knownrevisions import KnownRevisions
from app.pods.revisions import (
    Create,
    Renumber,
    Reuse,
    Revision,
    RevisionPlan,
    Unchanged,
    after_clash,
    plan_revision,
    revision_of,
)
from app.sidecars.sidecarset.revisions import revision_object, revision_patch, snapshot, surplus_revisions

logger = logging.getLogger(__name__)

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


class RevisionRecorder:
    """Records the content of sets in ``namespace``, reading from ``store`` (with index :data:`RECORDED_SET`)."""

    def __init__(self, client: Client, store: Store[ControllerRevision], namespace: str) -> None:
        self._client = client
        self._store = store
        self._namespace = namespace
        self._known = KnownRevisions(client.clock)
        self._contents: dict[str, tuple[int, bytes]] = {}

    # ---- what is known

    def seen(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        self._known.observe(change)

    def forget(self, owner_uid: str) -> None:
        """A set is gone."""
        self._contents.pop(owner_uid, None)

    def revisions(self, owner: SidecarSet) -> list[Revision]:
        """The set's revisions as they are by all we know, oldest first, without those of another owner (SS-75)."""
        return self._known.of(owner.name, owner.metadata.uid, self._store.by_index(RECORDED_SET, owner.name))

    def _content(self, owner: SidecarSet) -> bytes:
        """The set's content, printed once per generation."""
        generation, uid = owner.metadata.generation, owner.metadata.uid
        printed = self._contents.get(uid)
        if printed is None or printed[0] != generation:
            printed = self._contents[uid] = (generation, snapshot(owner.spec))
        return printed[1]

    # ---- what is written

    async def record(self, owner: SidecarSet, collision_count: int) -> Recorded:
        """SS-73 … SS-75: make sure that a revision has the present content and is the newest."""
        plan: RevisionPlan | Reuse = plan_revision(
            owner.name, self._content(owner), self.revisions(owner), collision_count
        )
        while isinstance(plan, Create):
            collision_count = plan.collision_count
            try:
                created = await self._client.create(
                    CONTROLLERREVISIONS,
                    revision_object(owner, self._namespace, plan),
                    self._namespace,
                    decode=decode_controller_revision,
                )
            except AlreadyExists:
                plan = after_clash(owner.name, plan, await self._existing(plan.name))
            else:
                self._known.record_write(owner.name, created.metadata.uid, created)
                logger.info("SidecarSet %s: revision %d is %s", owner.name, plan.number, plan.name)
                return Recorded(plan.name, collision_count)
        await self._patch(owner, plan)
        return Recorded(plan.revision.name, collision_count)

    async def truncate(self, owner: SidecarSet, latest: str, in_pods: Collection[str]) -> None:
        """SS-76: delete the oldest revisions nobody uses, where there are more than the set's limit."""
        for revision in surplus_revisions(owner, latest, self.revisions(owner), in_pods):
            try:
                await self._client.delete(CONTROLLERREVISIONS, revision.name, self._namespace, uid=revision.uid)
            except NotFound:
                logger.debug("SidecarSet %s: revision %s is gone already", owner.name, revision.name)
            self._known.record_write(owner.name, revision.uid, None)

    async def _existing(self, name: str) -> Revision:
        return revision_of(
            await self._client.get(CONTROLLERREVISIONS, name, self._namespace, decode=decode_controller_revision)
        )

    async def _patch(self, owner: SidecarSet, plan: Unchanged | Renumber | Reuse) -> None:
        revision = plan.revision
        number = revision.number if isinstance(plan, Unchanged) else plan.number
        patch = revision_patch(owner, revision, number)
        if patch is None:
            return
        written = await self._client.patch(
            CONTROLLERREVISIONS, revision.name, patch, self._namespace, decode=decode_controller_revision
        )
        self._known.record_write(owner.name, revision.uid, written)
        logger.info("SidecarSet %s: revision %s is used again as %d", owner.name, revision.name, number)
