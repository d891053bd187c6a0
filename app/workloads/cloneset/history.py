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
from app.kube.objects import ControllerRevision, decode_controller_revision
from app.kube.resources import CONTROLLERREVISIONS
from app.kube.selectors import Selector
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
    surplus_of_workload,
)
from app.pods.templates import controller_revision

logger = logging.getLogger(__name__)

OWNER: Final = "cloneset"
"""The index of objects by the uid of the CloneSet that owns them; of revisions also by :func:`ownerless`."""


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


class History:
    """Reads revisions from ``store`` (with index :data:`OWNER`) and writes them."""

    def __init__(self, client: Client, store: Store[ControllerRevision]) -> None:
        self._client = client
        self._store = store
        self._known = KnownRevisions(client.clock)

    # ---- what is known

    def observe(self, change: Change[ControllerRevision]) -> None:
        """The cache shows something new: what we know better no more is dropped."""
        self._known.observe(change)

    def revisions(self, owner: CloneSet, selector: Selector) -> list[Revision]:
        """CS-56: those the CloneSet controls, and those that match and nobody controls; oldest first.

        ``selector``: that of the CloneSet.
        """
        uid = owner.metadata.uid
        nobodys = self._store.by_index(OWNER, ownerless(owner.metadata.namespace))
        matching = [found for found in nobodys if selector.matches(found.metadata.labels)]
        return self._known.of(uid, uid, [*self._store.by_index(OWNER, uid), *matching])

    async def is_recorded(self, owner: CloneSet, name: str) -> bool:
        """Ask the API server for a revision that the cache does not show (PM-10).

        A manager that has just taken over may see Pods, and the status, before the revisions they speak of. One that is
        found is known from now on.
        """
        try:
            stored = await self._client.get(
                CONTROLLERREVISIONS, name, owner.metadata.namespace, decode=decode_controller_revision
            )
        except NotFound:
            return False
        controller = stored.metadata.controller
        if controller is not None and controller.uid != owner.metadata.uid:
            return False
        self._known.record_write(owner.metadata.uid, stored.metadata.uid, stored)
        return True

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
                self._known.record_write(owner.metadata.uid, created.metadata.uid, created)
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
            self._known.record_write(owner.metadata.uid, revision.uid, None)

    async def label(self, owner: CloneSet, revision: Revision, labels: Mapping[str, str]) -> None:
        """Put labels on a revision."""
        body = {"metadata": {"uid": revision.uid, "labels": dict(labels)}}
        written = await self._client.patch(
            CONTROLLERREVISIONS, revision.name, body, owner.metadata.namespace, decode=decode_controller_revision
        )
        self._known.record_write(owner.metadata.uid, revision.uid, written)

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
        self._known.record_write(owner.metadata.uid, revision.uid, written)
        logger.info("CloneSet %s/%s: revision %s is used again as %d", namespace, owner.name, revision.name, number)
        return revision_of(written)
