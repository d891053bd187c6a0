"""The ControllerRevisions of a CloneSet: what its Pods are made from, and were (CS-56, CS-69 … CS-77).

The general rules are in :mod:`app.pods.revisions`; here is what CloneSet adds and who carries it out. Own writes are
known until the cache shows them, so that no revision is recorded twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.client import Client
from app.kube.errors import AlreadyExists, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.kube.resources import CONTROLLERREVISIONS
from app.kube.selectors import Selector
from app.kube.store import Change, Store
from app.pods.revisions import (
    Create,
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
    surplus_of_workload,
)
from app.pods.templates import controller_revision

logger = logging.getLogger(__name__)

OWNER: Final = "cloneset"
"""The index of objects by the uid of the CloneSet that owns them; of revisions also by :func:`ownerless`."""
PATIENCE: Final = 60.0
"""Seconds the cache may take to show a write of ours; after that it is believed again."""


def ownerless(namespace: str) -> str:
    """The index key of revisions nobody controls."""
    return f"none/{namespace}"


def revision_owner(revision: ControllerRevision) -> Iterable[str]:
    """The index function of :data:`OWNER` for revisions."""
    controller = revision.metadata.controller
    if controller is None:
        return (ownerless(revision.metadata.namespace),)
    if (controller.kind, controller.group) == (CLONE_SET.kind, CLONE_SET.group):
        return (controller.uid,)
    return ()


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be recorded of a CloneSet."""

    data: bytes
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_reference: dict[str, Any]
    claims_hash: str


def revision_object(namespace: str, content: Content, create: Create) -> dict[str, Any]:
    """CS-71: the ControllerRevision to create."""
    annotations = {key: text for key, text in content.annotations.items() if key != names.CONVERSION_DATA}
    return controller_revision(
        create,
        namespace,
        content.owner_reference,
        labels=content.labels,
        annotations={**annotations, names.CLAIM_TEMPLATES_HASH: content.claims_hash},
    )


def revision_patch(content: Content, owner_uid: str, revision: Revision, number: int) -> dict[str, Any] | None:
    """What to change on a revision that is used again: its number, then also its hash of the claims (CS-72), and its
    owner where nobody owns it, or it would outlive us or go before us."""
    metadata: dict[str, Any] = {}
    if revision.controller_uid != owner_uid:
        metadata["ownerReferences"] = [content.owner_reference]
    if number != revision.number and revision.annotations.get(names.CLAIM_TEMPLATES_HASH) != content.claims_hash:
        metadata["annotations"] = {names.CLAIM_TEMPLATES_HASH: content.claims_hash}
    patch: dict[str, Any] = {"revision": number} if number != revision.number else {}
    if metadata or patch:
        # The uid is a precondition: never another revision of the same name.
        patch["metadata"] = {**metadata, "uid": revision.uid}
    return patch or None


@dataclass(frozen=True, slots=True)
class _OwnWrite:
    """A revision as our write left it (None: deleted), until the cache shows that."""

    owner_uid: str
    revision: ControllerRevision | None
    believed_until: float


class History:
    """Reads revisions from ``store`` (with index :data:`OWNER`) and writes them."""

    def __init__(self, client: Client, store: Store[ControllerRevision]) -> None:
        self._client = client
        self._clock = client.clock
        self._store = store
        self._writes: dict[str, _OwnWrite] = {}
        self._readings: dict[str, tuple[str, Revision]] = {}

    # ---- what is known

    def seen(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        metadata = change.object.metadata
        write = self._writes.get(metadata.uid)
        if change.new is None:
            self._readings.pop(metadata.uid, None)
        if write is not None and (change.new is None or _shows(change.new, write)):
            del self._writes[metadata.uid]

    def revisions(self, owner: CloneSet, selector: Selector) -> list[Revision]:
        """CS-56: those the CloneSet controls, and those that match and nobody controls; oldest first.

        ``selector``: that of the CloneSet.
        """
        uid, now = owner.metadata.uid, self._clock.monotonic()
        stored = {found.metadata.uid: found for found in self._store.by_index(OWNER, uid)}
        for found in self._store.by_index(OWNER, ownerless(owner.metadata.namespace)):
            if selector.matches(found.metadata.labels):
                stored[found.metadata.uid] = found
        if self._writes:
            for key, write in list(self._writes.items()):
                if write.believed_until < now:
                    del self._writes[key]
                elif write.owner_uid == uid and write.revision is not None:
                    stored[key] = write.revision
                elif write.owner_uid == uid:
                    stored.pop(key, None)
        return in_order(of_owner(map(self._reading, stored.values()), uid))

    def _reading(self, stored: ControllerRevision) -> Revision:
        uid, version = stored.metadata.uid, stored.metadata.resource_version
        reading = self._readings.get(uid)
        if reading is None or reading[0] != version:
            reading = self._readings[uid] = (version, revision_of(stored))
        return reading[1]

    # ---- what is written

    async def record(
        self, owner: CloneSet, content: Content, ordered: list[Revision], collision_count: int
    ) -> tuple[Revision, int]:
        """CS-72: the revision with this content, which is the newest then, and the collision count."""
        plan: RevisionPlan | Reuse = plan_revision(owner.name, content.data, ordered, collision_count)
        namespace = owner.metadata.namespace
        while isinstance(plan, Create):
            collision_count = plan.collision_count
            body = revision_object(namespace, content, plan)
            try:
                created = await self._client.create(
                    CONTROLLERREVISIONS, body, namespace, decode=decode_controller_revision
                )
            except AlreadyExists:
                plan = after_clash(owner.name, plan, await self._existing(owner, plan.name))
            else:
                self._wrote(owner, created.metadata.uid, created)
                logger.info("CloneSet %s/%s: revision %d is %s", namespace, owner.name, plan.number, plan.name)
                return revision_of(created), collision_count
        return await self._use_again(owner, content, plan), collision_count

    async def truncate(self, owner: CloneSet, ordered: list[Revision], in_use: Collection[str], limit: int) -> None:
        """CS-63: delete the oldest revisions nobody uses, where there are more than the limit."""
        namespace = owner.metadata.namespace
        own = [revision for revision in ordered if revision.controller_uid == owner.metadata.uid]
        for revision in surplus_of_workload(own, in_use, limit):
            try:
                await self._client.delete(CONTROLLERREVISIONS, revision.name, namespace, uid=revision.uid)
            except NotFound:
                logger.debug("CloneSet %s/%s: revision %s is gone already", namespace, owner.name, revision.name)
            self._wrote(owner, revision.uid, None)

    async def _existing(self, owner: CloneSet, name: str) -> Revision:
        stored = await self._client.get(
            CONTROLLERREVISIONS, name, owner.metadata.namespace, decode=decode_controller_revision
        )
        controller = stored.metadata.controller
        found = revision_of(stored)
        left_behind = (CLONE_SET.kind, CLONE_SET.group, owner.name)
        if controller is None or (controller.kind, controller.group, controller.name) == left_behind:
            return found
        # A StatefulSet of this name keeps the like under the like name. Its history is never taken: the next name is.
        return replace(found, data=b"")

    async def _use_again(self, owner: CloneSet, content: Content, plan: Unchanged | Renumber | Reuse) -> Revision:
        revision = plan.revision
        number = revision.number if isinstance(plan, Unchanged) else plan.number
        patch = revision_patch(content, owner.metadata.uid, revision, number)
        if patch is None:
            return revision
        namespace = owner.metadata.namespace
        written = await self._client.patch(
            CONTROLLERREVISIONS, revision.name, patch, namespace, decode=decode_controller_revision
        )
        self._wrote(owner, revision.uid, written)
        logger.info("CloneSet %s/%s: revision %s is used again as %d", namespace, owner.name, revision.name, number)
        return revision_of(written)

    def _wrote(self, owner: CloneSet, uid: str, revision: ControllerRevision | None) -> None:
        self._writes[uid] = _OwnWrite(owner.metadata.uid, revision, self._clock.monotonic() + PATIENCE)


def _shows(stored: ControllerRevision, write: _OwnWrite) -> bool:
    """Whether the cached revision is at least as new as our write; a deletion shows by its own event only."""
    return write.revision is not None and is_at_least(
        stored.metadata.resource_version, write.revision.metadata.resource_version
    )
