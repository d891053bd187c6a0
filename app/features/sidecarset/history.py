"""The revisions of a SidecarSet, stored as ControllerRevisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.api.gojson import GoTypeError, dumps_go, go_value
from app.features.sidecarset.defaults import REVISION_HISTORY_LIMIT
from app.features.sidecarset.kind import RECORDED_FIELDS, SIDECAR_SET
from app.features.sidecarset.types import SidecarSet, SidecarSetSpec
from app.kube.client import Client
from app.kube.objects import ControllerRevision
from app.kube.store import Change, Store
from app.pods.history import RevisionHistory
from app.pods.predicates import Owner, is_controlled_by
from app.pods.revisions import (
    Create,
    Digest,
    Revision,
    controller_revision,
    oldest_unused,
    revision_hash,
    revision_of,
)

# Content and names of a SidecarSet's ControllerRevisions, and which of them to delete. Pure. The rules for all kinds
# are in :mod:`app.pods.revisions`. [SS-73 … SS-76, SS-121]


def snapshot(spec: SidecarSetSpec) -> bytes:
    """Return the content that a revision of this spec records, byte for byte as OpenKruise writes it. [SS-73]

    A spec that Go could not read (written without admission) is recorded unchanged.
    """
    given = spec.to_dict()
    # An empty list is recorded as null, as in Go.
    content: dict[str, Any] = {field: given.get(field) or None for field in RECORDED_FIELDS}
    for field, go_type in RECORDED_FIELDS.items():
        try:
            content[field] = go_value(go_type, content[field], f"spec.{field}")
        except GoTypeError:
            continue
    return dumps_go({"spec": {"$patch": "replace", **content}}, sort_keys=True).encode()


def set_owner(owner: SidecarSet) -> Owner:
    """Return the set as the owner of its revisions."""
    return Owner.of(SIDECAR_SET.resource(), owner.metadata)


def names_in_use(
    owner: SidecarSet, latest: str, ordered: Sequence[Revision], in_pods: Collection[str]
) -> frozenset[str]:
    """Return the names of the latest revision, of those that Pods refer to, and of the one for new Pods. [SS-76,
    SS-120]"""
    wanted = {latest, *in_pods}
    choice = owner.spec.injection_strategy.revision
    if choice is not None and choice.revision_name:
        wanted.add(choice.revision_name)
    if choice is not None and choice.custom_version:
        tagged = [r for r in ordered if r.labels.get(names.SIDECARSET_CUSTOM_VERSION) == choice.custom_version]
        wanted.update(revision.name for revision in tagged[-1:])
    return frozenset(wanted)


def surplus_revisions(
    owner: SidecarSet, latest: str, ordered: Sequence[Revision], in_pods: Collection[str]
) -> tuple[Revision, ...]:
    """Return the revisions to delete, oldest first. Revisions in use are kept, even beyond the limit. [SS-76]"""
    limit = owner.spec.revision_history_limit
    kept = max(1, REVISION_HISTORY_LIMIT if limit is None else limit)
    standing = sum(1 for revision in ordered if not revision.deleting)
    return oldest_unused(ordered, names_in_use(owner, latest, ordered, in_pods), standing - kept)


RECORDED_SET = "sidecarset"
"""The index of ControllerRevisions by the set they record."""


def by_recorded_set(revision: ControllerRevision) -> Iterable[str]:
    """The index function of :data:`RECORDED_SET`."""
    name = revision.metadata.labels.get(names.SIDECARSET_NAME)
    return (name,) if name else ()


@dataclass(frozen=True, slots=True)
class RecordedSet:
    """A SidecarSet as the input of revision history (:class:`app.pods.history.Recorded`)."""

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
        """Return the ControllerRevision to create, with the set's labels, and its annotations except the conversion
        note. The custom version overrides a label of the set. [SS-73, SS-B]"""
        owner, metadata = self.owner, self.owner.metadata
        labels = {**metadata.labels, names.SIDECARSET_NAME: owner.name}
        if owner.spec.custom_version:
            labels[names.SIDECARSET_CUSTOM_VERSION] = owner.spec.custom_version
        annotations = {key: text for key, text in metadata.annotations.items() if key != names.CONVERSION_DATA}
        reference = set_owner(owner).reference
        return controller_revision(create, self.namespace, reference, labels=labels, annotations=annotations)

    def revision_patch(self, revision: Revision, number: int) -> dict[str, Any] | None:
        """Return the merge patch that reuses this revision, or None if nothing changes.

        The patch sets the number and the set's custom version, if any [SS-75]. It adopts a revision that has no owner,
        or that a deleted set of this name left behind; otherwise the revision would be garbage-collected while new
        Pods still use it [SS-121].
        """
        owner = self.owner
        metadata: dict[str, Any] = {}
        if not is_controlled_by(revision, set_owner(owner)):
            metadata["ownerReferences"] = [set_owner(owner).reference]
            if revision.labels.get(names.SIDECARSET_NAME) != owner.name:
                metadata["labels"] = {names.SIDECARSET_NAME: owner.name}
        version = owner.spec.custom_version
        if version and revision.labels.get(names.SIDECARSET_CUSTOM_VERSION) != version:
            metadata.setdefault("labels", {})[names.SIDECARSET_CUSTOM_VERSION] = version
        patch: dict[str, Any] = {"revision": number} if number != revision.number else {}
        if metadata or patch:
            # The uid is a precondition, so that another revision of the same name is never patched.
            patch["metadata"] = {**metadata, "uid": revision.uid}
        return patch or None

    def reading(self, stored: ControllerRevision) -> Revision:
        return revision_of(stored)


class RevisionRecorder:
    """Records the content of sets as ControllerRevisions in ``namespace``. ``store`` must have index
    :data:`RECORDED_SET`."""

    def __init__(self, client: Client, store: Store[ControllerRevision], namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._history = RevisionHistory(client)
        self._contents: dict[str, tuple[int, bytes]] = {}

    # ---- known revisions

    def observe(self, change: Change[ControllerRevision]) -> None:
        """Drop locally recorded revisions that the cache has caught up with."""
        self._history.known.observe(change)

    def forget(self, owner_uid: str) -> None:
        self._contents.pop(owner_uid, None)

    def revisions(self, owner: SidecarSet) -> list[Revision]:
        """Return the revisions that the set owns, from the cache and from local writes, oldest first. [SS-75]"""
        return self._history.known.of(owner.name, set_owner(owner), self._store.by_index(RECORDED_SET, owner.name))

    def _recorded(self, owner: SidecarSet) -> RecordedSet:
        """Return the set with its content, serialized once per generation."""
        generation, uid = owner.metadata.generation, owner.metadata.uid
        printed = self._contents.get(uid)
        if printed is None or printed[0] != generation:
            printed = self._contents[uid] = (generation, snapshot(owner.spec))
        return RecordedSet(owner, self._namespace, printed[1])

    # ---- writes

    async def record(self, owner: SidecarSet, collision_count: int) -> tuple[str, int]:
        """Make sure that the newest revision has the current content. Return its name and the set's collision count.
        [SS-73 … SS-75]"""
        latest, collisions = await self._history.record(self._recorded(owner), self.revisions(owner), collision_count)
        return latest.name, collisions

    async def truncate(self, owner: SidecarSet, latest: str, in_pods: Collection[str]) -> None:
        """Delete the oldest unused revisions beyond the set's limit. [SS-76]"""
        surplus = surplus_revisions(owner, latest, self.revisions(owner), in_pods)
        await self._history.delete(self._recorded(owner), surplus)
