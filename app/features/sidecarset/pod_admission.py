"""The mutator that injects sidecars, its lookups, and the events about Pods it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from app.api import names
from app.features.sidecarset.history import RECORDED_SET, by_recorded_set
from app.features.sidecarset.injection.inject import InjectionRefusedError, inject, plan_injection
from app.features.sidecarset.injection.prepared import (
    PreparedContent,
    PreparedSet,
    RevisionChoice,
    prepare_revision,
    recorded_revision,
    takes_recorded,
)
from app.features.sidecarset.injection.prepared_containers import UnusableSidecarSetError
from app.features.sidecarset.injection.selection import SidecarSetIndex, in_scope, need_namespace_labels, replaced_bases
from app.features.sidecarset.kind import SIDECAR_SET, read_sidecar_set
from app.features.sidecarset.types import SidecarSet
from app.framework.watched import Scope, Watched
from app.kube.admission import STRANGER, Denied, Review
from app.kube.client import Client, get_or_none
from app.kube.clock import Clock, rfc3339
from app.kube.concurrency import Coalesced
from app.kube.events import EventRecorder, reference
from app.kube.objects import (
    ControllerRevision,
    Namespace,
    Object,
    ObjectMeta,
    decode_controller_revision,
    decode_metadata,
    decode_namespace,
)
from app.kube.resources import CONTROLLERREVISIONS, NAMESPACES
from app.kube.store import Store
from app.pods.admission import MutatorOrder, StepOutcome
from app.pods.admission_draft import PodDraft, PodRefusedError

# The SidecarSet step of Pod admission: find the sets that apply, choose revisions, inject. It is the shell around the
# pure parts of this package and reads from caches. A set, namespace or revision that is not cached yet is read from
# the API server before the Pod is admitted without its sidecars [SS-39] or refused [SS-68].

#: A set that cannot be parsed does not hide the others. [SS-130]
SIDECAR_SETS: Final = dataclasses.replace(Watched.kind(SIDECAR_SET, SidecarSet), decode=read_sidecar_set)
#: The revisions of SidecarSets, which live in the manager's namespace.
RECORDED_REVISIONS: Final = Watched(
    "ControllerRevisions",
    CONTROLLERREVISIONS,
    decode_controller_revision,
    Scope.OWN,
    label_selector=names.SIDECARSET_NAME,
    indexes={RECORDED_SET: by_recorded_set},
)

#: Minimum seconds between two list requests made for known callers.
LIST_INTERVAL: Final = 0.005
#: Minimum seconds between two list requests made for strangers.
STRANGERS_LIST_INTERVAL: Final = 0.02
#: Seconds a review waits for the result.
LIST_SECONDS: Final = 3.0


class NewerSets:
    """Reads recently admitted sets that are not in the index yet.

    Any client that reaches the webhook port may submit a hundred sets that are never stored, so a submission alone
    must not cause a request. One list of metadata serves all reviews that arrive within a few milliseconds, and only
    sets whose listed state is not in the index are read. [SS-39]
    """

    def __init__(self, client: Client, shows: Callable[[str, str, int], bool]) -> None:
        """``shows(name, uid, generation)`` returns whether the index contains this generation of the SidecarSet."""
        # These requests are not subject to the callers' budgets, because the interval limits them and a Pod waits for
        # the result.
        self._client = client.named("admission")
        self._shows = shows
        self._listed: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(
            self._list, interval=LIST_INTERVAL, shared=True
        )
        self._listed_for_strangers: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(
            self._list, interval=STRANGERS_LIST_INTERVAL, shared=True
        )
        self._set: Coalesced[str, Mapping[str, Any] | None] = Coalesced(self._get, shared=True)

    async def __call__(self, set_names: Iterable[str]) -> list[Mapping[str, Any]]:
        """Return the sets newer than the index. Raises KubeError, or TimeoutError after LIST_SECONDS."""
        async with asyncio.timeout(LIST_SECONDS):
            listed = await (self._listed_for_strangers if STRANGER.get() else self._listed)(None)
            newer = [
                name
                for name in set_names
                if (one := listed.get(name)) is not None and not self._shows(name, one.uid, one.generation)
            ]
            found = [await self._set(name) for name in newer]
        return [one for one in found if one is not None]

    async def _list(self, _: None) -> Mapping[str, ObjectMeta]:
        found = await self._client.list(SIDECAR_SET.resource(), metadata_only=True, decode=decode_metadata)
        return {one.metadata.name: one.metadata for one in found.items}

    async def _get(self, name: str) -> Mapping[str, Any] | None:
        return await get_or_none(self._client, SIDECAR_SET.resource(), name)


class InjectionLookups:
    """Lookups for injection: first in the caches, then in the API server if the caches are behind.

    Lookups in the API server raise KubeError, because a Pod must not be admitted if its sets cannot be looked up.
    """

    def __init__(
        self,
        namespaces: Store[Namespace],
        revisions: Store[ControllerRevision],
        client: Client | None,
        own: str,
        newer: NewerSets | None = None,
    ) -> None:
        """``client`` and ``newer`` are None without a cluster; ``own`` is the manager's namespace."""
        self._namespaces = namespaces
        self._revisions = revisions
        self._client = client
        self._own_namespace = own
        self._newer = newer

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        found = self._namespaces.get(namespace)
        return None if found is None else found.metadata.labels

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        """Return the SidecarSets newer than the index."""
        return await self._newer(set_names) if self._newer is not None else ()

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Read the labels of a namespace; None if it does not exist. [SS-35]

        Without a cluster, return only the name label, which every namespace has.
        """
        if self._client is None:
            return {names.NAMESPACE_NAME: namespace}
        found = await get_or_none(self._client, NAMESPACES, namespace, decode=decode_namespace)
        return found.metadata.labels if found is not None else None

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        return await read_revisions(self._client, self._own_namespace, set_name) if self._client is not None else ()


async def read_revisions(client: Client, namespace: str, set_name: str) -> Sequence[ControllerRevision]:
    """Read the revisions of a set by label. Raises KubeError."""
    label = f"{names.SIDECARSET_NAME}={set_name}"
    listing = await client.list(CONTROLLERREVISIONS, namespace, label_selector=label, decode=decode_controller_revision)
    return listing.items


#: Called with the SidecarSet and the message for each Pod refused because of it; must not block. [SS-120]
RefusalReport: TypeAlias = Callable[[str, str], None]


class SidecarSetStep:
    """Injects SidecarSets into one Pod. Stateless except for the revisions it has prepared. [SS-41]"""

    order = MutatorOrder.SIDECARS

    def __init__(
        self,
        index: SidecarSetIndex,
        lookups: InjectionLookups,
        clock: Clock,
        random: Callable[[], float],
        *,
        sort_by_name: bool = False,
        report: RefusalReport | None = None,
    ) -> None:
        self._index = index
        self._lookups = lookups
        self._clock = clock
        self._random = random
        self._sort_by_name = sort_by_name
        self._report = report
        #: By set name: the version of the revision that the set names, and its prepared content.
        self._prepared_revisions: dict[str, tuple[tuple[str, str], PreparedContent]] = {}

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Inject the sets that apply: synchronously from caches, or asynchronously if the caches lack something."""
        if self._index.behind(self._clock.monotonic(), stranger=bool(STRANGER.get())):
            return self._asking(draft, review)
        candidates = self._index.candidates(draft.namespace, draft.labels)
        # Mirror Pods never reach this step [PW-10]. A new Pod's status and deletionTimestamp are ignored, because the
        # API server resets both after admission [SS-40].
        if not candidates:
            return None
        namespace_labels = None
        if need_namespace_labels(candidates):
            namespace_labels = self._lookups.namespace_labels(draft.namespace)
            if namespace_labels is None:
                return self._asking(draft, review)
        sets = in_scope(candidates, namespace_labels)
        if not sets:
            return None
        recorded = self._recorded(sets)
        if None in recorded.values():
            return self._asking(draft, review)
        return self._injected(sets, recorded, draft, review)

    async def _asking(self, draft: PodDraft, review: Review) -> Denied | None:
        """Read from the API server what the caches lack, then inject. [SS-39, SS-68]"""
        if behind := self._index.behind(self._clock.monotonic(), stranger=bool(STRANGER.get())):
            for found in await self._lookups.newer_sidecarsets(behind):
                self._index.update(found)
        candidates = self._index.candidates(draft.namespace, draft.labels)
        namespace_labels = None
        if need_namespace_labels(candidates):
            namespace_labels = self._lookups.namespace_labels(draft.namespace)
            if namespace_labels is None:
                namespace_labels = await self._lookups.live_namespace_labels(draft.namespace)
        sets = in_scope(candidates, namespace_labels)
        recorded = self._recorded(sets)
        if None in recorded.values():
            recorded = {
                s.name: recorded_revision(s.name, s.revision, await self._lookups.live_revisions(s.name))
                for s in sets
                if s.revision is not None
            }
        return self._injected(sets, recorded, draft, review) if sets else None

    def _recorded(self, sets: Sequence[PreparedSet]) -> Mapping[str, ControllerRevision | None]:
        """Resolve recorded revisions even if the current spec is injected in the end, so that a missing one is reported
        immediately. [SS-68]"""
        return {
            s.name: recorded_revision(s.name, s.revision, self._lookups.revisions(s.name))
            for s in sets
            if s.revision is not None
        }

    def _injected(
        self,
        sets: Sequence[PreparedSet],
        recorded: Mapping[str, ControllerRevision | None],
        draft: PodDraft,
        review: Review,
    ) -> Denied | None:
        try:
            draft.refuse_oversized_annotations()
            contents = self._contents(sets, recorded, draft.labels)
            now = rfc3339(self._clock.now())
            inject(plan_injection(draft, contents, now, sort_by_name=self._sort_by_name), draft)
        except PodRefusedError as error:
            return self._refused(error, draft, review)
        return None

    def _refused(self, error: PodRefusedError, draft: PodDraft, review: Review) -> Denied:
        # A dry run records no event.
        if isinstance(error, InjectionRefusedError) and self._report is not None and not review.dry_run:
            reason = error.message.removeprefix(f"{draft.display}: ")
            for set_name in error.sets:
                self._report(set_name, f"{draft.display} refused: {reason}")
        return Denied(error.message, code=error.code)

    def _contents(
        self,
        sets: Sequence[PreparedSet],
        recorded: Mapping[str, ControllerRevision | None],
        labels: Mapping[str, str],
    ) -> list[PreparedContent]:
        contents = []
        replaced = replaced_bases(sets)
        for prepared in sets:
            content = prepared.content
            if prepared.revision is not None:
                content = self._chosen(prepared, prepared.revision, recorded[prepared.name], labels)
            if prepared.name in replaced:
                continue
            if isinstance(content, UnusableSidecarSetError):
                raise InjectionRefusedError(
                    f"{content}; Pods it matches cannot be created until it is fixed or injectionStrategy.paused is "
                    "true",
                    prepared.name,
                )
            contents.append(content)
        return contents

    def _chosen(
        self,
        prepared: PreparedSet,
        choice: RevisionChoice,
        revision: ControllerRevision | None,
        labels: Mapping[str, str],
    ) -> PreparedContent | UnusableSidecarSetError:
        """Return the current spec, or the recorded revision, prepared once per version of the revision. [SS-70]"""
        if revision is None:
            raise InjectionRefusedError(
                f"SidecarSet {prepared.name}: {choice.field}: ControllerRevision not found; Pods it matches cannot be "
                f"created until the field names an existing revision or is removed",
                prepared.name,
            )
        if not takes_recorded(choice, labels, self._random):
            return prepared.content
        version = (revision.metadata.name, revision.metadata.resource_version)
        known = self._prepared_revisions.get(prepared.name)
        if known is not None and known[0] == version:
            return known[1]
        try:
            content = prepare_revision(prepared.name, revision)
        except UnusableSidecarSetError as error:
            return error
        if len(self._prepared_revisions) > len(self._index):
            # Drop the revisions of deleted sets, which would accumulate without limit.
            self._prepared_revisions = {
                name: kept for name, kept in self._prepared_revisions.items() if self._index.get(name) is not None
            }
        self._prepared_revisions[prepared.name] = (version, content)
        return content


# A Pod refused because of a SidecarSet is also reported in an event on the set, for the set's author. [SS-120]

REASON: Final = "FailedInjectPod"


def refusal_events(recorder: EventRecorder, find_set: Callable[[str], Object | None]) -> RefusalReport:
    """Return a callback that reports a refusal (set name, message) in a Warning event. ``find_set`` reads a cache.

    The callback neither blocks nor fails. Many refusals because of one set are aggregated.
    """

    def report(set_name: str, message: str) -> None:
        found = find_set(set_name)
        if found is not None:
            recorder.event(reference(SIDECAR_SET.resource(), found), "Warning", REASON, message)

    return report
