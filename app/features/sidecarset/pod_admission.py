"""The mutator that injects sidecars, and the events about Pods it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Gauge

from app.features.sidecarset.injection.containers import UnusableSidecarSetError
from app.features.sidecarset.injection.inject import InjectionRefusedError, inject, plan_injection
from app.features.sidecarset.injection.metadata import timestamp
from app.features.sidecarset.injection.prepared import (
    PreparedContent,
    PreparedSet,
    RevisionChoice,
    prepare_revision,
    recorded_revision,
    takes_recorded,
)
from app.features.sidecarset.injection.selection import SidecarSetIndex, in_scope, need_namespace_labels, replaced_bases
from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.types import SidecarSet
from app.kube.admission import Denied, Review
from app.kube.callers import STRANGER
from app.kube.clock import Clock
from app.kube.events import EventRecorder, reference
from app.kube.objects import ControllerRevision, Object
from app.pods.admission import MutatorOrder, StepOutcome
from app.pods.draft import PodDraft, PodRefusedError, is_mirror_pod

# The SidecarSet step of Pod admission: find the sets that apply, choose revisions, inject.
#
# The shell around the pure parts of this package. It answers from caches; only a set, a namespace or a revision that
# the caches do not have yet is asked of the API server before the Pod is let through without its sidecars (SS-39) or
# refused (SS-68).

logger = logging.getLogger(__name__)


class Lookups(Protocol):
    """What the step asks of the cluster. The first two answer from caches, the others from the API server itself."""

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, or None if it is not in the cache."""
        ...

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Cached ControllerRevisions of the manager's namespace that may be of this set."""
        ...

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        """Those of these SidecarSets (v1beta1 JSON, read now) that are in a state the index does not show; none if they
        cannot be read."""
        ...

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, or None if there is none or it cannot be read (SS-35)."""
        ...

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """ControllerRevisions labelled with this set, read now; none if they cannot be read."""
        ...


#: SS-120: told the SidecarSet and the message of each Pod refused because of it; must not block.
RefusalReport: TypeAlias = Callable[[str, str], None]


class SidecarSetStep:
    """SS-41 on one Pod. Holds no state beside the revisions it has prepared."""

    order = MutatorOrder.SIDECARS

    def __init__(
        self,
        index: SidecarSetIndex,
        lookups: Lookups,
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
        #: Set → the version of the revision it names and what that injects.
        self._prepared_revisions: dict[str, tuple[tuple[str, str], PreparedContent]] = {}

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Inject what applies: at once from caches, after a wait where they lack something."""
        if self._index.behind(self._clock.monotonic(), stranger=bool(STRANGER.get())):
            return self._asking(draft, review)
        candidates = self._index.candidates(draft.namespace, draft.labels)
        # PW-10: of a static Pod the kubelet runs the manifest, not this object. SS-40: a status or deletionTimestamp in
        # a new Pod says nothing; the API server resets both, after it has asked us.
        if not candidates or is_mirror_pod(draft, review):
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
        """The same, where caches lack something that the API server may have (SS-39, SS-68)."""
        if is_mirror_pod(draft, review):
            return None
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
        """SS-68: resolved even where the current spec is injected in the end, so that a missing one shows at once."""
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
            now = timestamp(self._clock.now())
            inject(plan_injection(draft, contents, now, sort_by_name=self._sort_by_name), draft)
        except PodRefusedError as error:
            return self._refused(error, draft, review)
        return None

    def _refused(self, error: PodRefusedError, draft: PodDraft, review: Review) -> Denied:
        reason = error.message.removeprefix(f"{draft.display}: ")
        logger.warning("%s refused: %s", draft.display, reason)
        # A dry run leaves no trace.
        if isinstance(error, InjectionRefusedError) and self._report is not None and not review.dry_run:
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
                    f"{content}; Pods it matches cannot be created until it is repaired or injectionStrategy.paused",
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
        """SS-70: the current spec, or what the recorded revision says, prepared once per version of the revision."""
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
            # Sets come and go under ever new names.
            self._prepared_revisions = {
                name: kept for name, kept in self._prepared_revisions.items() if self._index.get(name) is not None
            }
        self._prepared_revisions[prepared.name] = (version, content)
        return content


# SS-120: a Pod that a SidecarSet keeps from being created is told on the set too, where its author looks.

REASON: Final = "FailedInjectPod"
MALFORMED: Final = "Malformed"


def refusal_events(recorder: EventRecorder, find_set: Callable[[str], Object | None]) -> RefusalReport:
    """A report of refusals (set name, message) that writes Warning events; ``find_set`` looks into a cache.

    It neither waits nor fails, and many refusals of one set become few events.
    """

    def report(set_name: str, message: str) -> None:
        found = find_set(set_name)
        if found is not None:
            recorder.event(reference(SIDECAR_SET.resource(), found), "Warning", REASON, message)

    return report


def set_aside_gauge(registry: CollectorRegistry) -> Gauge:
    """How many sets are set aside."""
    return Gauge(
        "kruise_sidecarsets_set_aside",
        "SidecarSets that cannot be read and are injected nowhere; an event on each says why.",
        registry=registry,
    )


def malformed_events(recorder: EventRecorder) -> Callable[[SidecarSet, str], None]:
    """SS-130: a report of sets that are set aside, as Warning events on them."""

    def report(found: SidecarSet, message: str) -> None:
        recorder.event(reference(SIDECAR_SET.resource(), found), "Warning", MALFORMED, message)

    return report
