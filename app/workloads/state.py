"""What one reconcile goes by, and what is remembered between reconciles: expectations, outcomes, metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from app.api.model import KubeObject
from app.kube.client import Client, get_or_none
from app.kube.clock import Clock
from app.kube.concurrency import concurrently
from app.kube.controller import Result
from app.kube.errors import UNANSWERED, Conflict, KubeError, is_namespace_ending, message_of
from app.kube.expectations import ResourceVersionExpectations, ScaleAction, ScaleExpectations, is_at_least
from app.kube.objects import ControllerRevision, Meta, PersistentVolumeClaim, Pod, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import KnownStatus, newest_status
from app.kube.store import Change, Store
from app.pods.budget import RETRY_SECONDS
from app.pods.predicates import Owner, is_controlled_by
from app.pods.revisions import Revision, revision_name, short_hash
from app.workloads.pods import InPlaceUpdates, ObservedPods, PodFacts
from app.workloads.settings import OWNER, ResolvedSpec, Revisions

#: Seconds that a timer may fire early.
TIMER_TOLERANCE: Final = 0.005
#: Seconds after a refused creation before the next try, doubled each time, and the longest such wait.
CREATION_BACKOFF: Final = 0.1
MAX_CREATION_BACKOFF: Final = 30.0

R = TypeVar("R", bound=ResolvedSpec[Any])
S = TypeVar("S", bound="WorkloadState[Any]")


@dataclass(slots=True)
class CreationBackoff:
    """After a refused creation none is tried for a while: what was refused a moment ago is not asked again by every
    change of a Pod. Times are on the monotonic scale."""

    refused: int = 0
    until: float = 0.0

    def remaining(self, now: float) -> float:
        """Seconds for which nothing is created; 0: it may be tried."""
        return self.until - now if now < self.until - TIMER_TOLERANCE else 0.0

    def refuse(self, now: float) -> None:
        """A creation was refused."""
        self.until = now + min(CREATION_BACKOFF * 2 ** min(self.refused, 20), MAX_CREATION_BACKOFF)
        self.refused += 1

    def reset(self) -> None:
        """Creations work, or other Pods are wanted."""
        self.refused, self.until = 0, 0.0


@dataclass(slots=True)
class WorkloadState(Generic[R]):
    """One workload. A kind adds its own fields in a subclass."""

    uid: str
    key: ObjectKey
    resolved: R | None = None
    resolved_key: object = None
    facts: dict[str, PodFacts] = field(default_factory=dict)
    in_place: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    last_reconcile: float = 0.0
    #: The time that reconciles asked for by Pods are put off to, until one begins at or after it.
    next_reconcile: float | None = None
    #: Whether somebody else took Pods since a reconcile: the workload may be gone (see the reconciler).
    pods_deleted_by_others: bool = False
    creation_backoff: CreationBackoff = field(default_factory=CreationBackoff)
    #: Why Pods were not updated in place though they should be, as it was reported last (B-22).
    not_in_place_for: str = ""
    #: Names of revisions that Pods or the status speak of, and that are recorded nowhere.
    unrecorded: set[str] = field(default_factory=set)
    #: The update revision, and what was done for it about images to be pulled ahead (CS-140).
    pulls: tuple[str, str] = ("", "")
    #: Image pulls or clean-up failed in this reconcile, which no watch announces the end of.
    side_task_failed: bool = False
    #: The status as we wrote it last, which the cache may not show yet.
    written: KnownStatus | None = None

    def waits_for_change(self, change: Change[Any]) -> bool:  # noqa: ARG002
        """Whether all else waits for this very change, so that no other may come meanwhile."""
        return False

    def resolve_anew(self, resolved: R, key: object) -> None:
        """The spec has changed: what was worked out from the old one goes."""
        self.resolved, self.resolved_key = resolved, key
        self.facts, self.in_place = {}, InPlaceUpdates()
        self.unrecorded.clear()
        self.creation_backoff.reset()

    def present_status(self, workload: KubeObject) -> KnownStatus:
        """The newest status known: that of the cache, or what we wrote if the cache is not there yet."""
        return newest_status(workload, self.written)

    def missing_revisions(self, pods: Iterable[PodFacts], current: str, ordered: Iterable[Revision]) -> list[str]:
        """Revisions that the Pods are at, or the status names, and ``ordered`` lacks; none that is recorded nowhere."""
        known = {short_hash(revision.name) for revision in ordered}
        hashes = {pod.revision for pod in pods}
        if current:
            hashes.add(short_hash(current))
        wanted = (revision_name(self.key.name, one) for one in hashes.difference(known) if one)
        return sorted(set(wanted).difference(self.unrecorded))


class States(Generic[S]):
    """The states of all workloads of a controller. ``make`` makes that of a workload by uid and key."""

    def __init__(self, make: Callable[[str, ObjectKey], S]) -> None:
        self._make = make
        self._states: dict[ObjectKey, S] = {}
        self._namespaces: dict[str, dict[ObjectKey, S]] = {}

    def get(self, key: ObjectKey) -> S | None:
        """The state of that workload, if it has been worked on."""
        return self._states.get(key)

    def of(self, key: ObjectKey, uid: str, forget: Callable[[str], None]) -> S:
        """The state of that workload. Another one of its name is forgotten, by its uid."""
        state = self._states.get(key)
        if state is None or state.uid != uid:
            if state is not None:
                forget(state.uid)
            state = self._states[key] = self._make(uid, key)
            self._namespaces.setdefault(key.namespace, {})[key] = state
        return state

    def pop(self, key: ObjectKey) -> S | None:
        """The state of a workload that is gone."""
        there = self._namespaces.get(key.namespace, {})
        there.pop(key, None)
        if not there:
            self._namespaces.pop(key.namespace, None)
        return self._states.pop(key, None)

    def everywhere(self) -> Iterable[S]:
        """The states of all workloads."""
        return list(self._states.values())

    def in_namespace(self, namespace: str) -> Iterable[S]:
        """The states of a namespace's workloads."""
        return list(self._namespaces.get(namespace, {}).values())


W = TypeVar("W", bound=KubeObject)


@dataclass(frozen=True)
class Caches(Generic[W]):
    """What a controller reads. All but the workloads have index OWNER; a kind without claims has no store of them."""

    workloads: Store[W]
    pods: Store[Pod]
    claims: Store[PersistentVolumeClaim] | None
    revisions: Store[ControllerRevision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Generic[W, S, R]):
    """One workload as it is. ``state`` alone may be changed: it is what the controller remembers of it.

    ``status``: the newest that is known; ``claims``: those it controls and that are not going; ``now``: wall time.
    """

    workload: W
    state: S
    resolved: R
    status: dict[str, Any]
    observed: ObservedPods
    claims: Sequence[PersistentVolumeClaim]
    revisions: Revisions
    now: datetime

    @property
    def owner(self) -> Owner:
        """The workload, as what it creates refers to it."""
        return self.resolved.owner

    @property
    def pods(self) -> Sequence[PodFacts]:
        """The active Pods that match its selector."""
        return self.observed.active

    @property
    def current_hash(self) -> str:
        """The short hash of the current revision."""
        return short_hash(self.revisions.current.name)

    @property
    def update_hash(self) -> str:
        """The short hash of the update revision."""
        return short_hash(self.revisions.update.name)

    def revision_of(self, digest: str) -> Revision:
        """The update revision if that is its short hash, else the current one."""
        return self.revisions.update if digest == self.update_hash else self.revisions.current


#: A snapshot of whatever workload.
AnySnapshot = Snapshot[Any, Any, Any]


class Metrics(Protocol):
    """Hooks for counting."""

    def expectation_leaked(self, namespace: str, name: str) -> None: ...
    def in_place_started(self, namespace: str) -> None: ...
    def in_place_failed(self, namespace: str) -> None: ...
    def in_place_finished(self, namespace: str, seconds: float) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def expectation_leaked(self, namespace: str, name: str) -> None: ...
    def in_place_started(self, namespace: str) -> None: ...
    def in_place_failed(self, namespace: str) -> None: ...
    def in_place_finished(self, namespace: str, seconds: float) -> None: ...


# What of our own writes the cache does not show yet; nothing is decided before it does.
#
# Rules CS-52, CS-57, CS-177, CS-178.

logger = logging.getLogger(__name__)

#: Seconds after which an expectation that was given up is looked at again.
RECHECK_DELAY: Final = 10.0


class Expectations:
    """By the uid of the workload: Pods and claims to come and to go, and versions of Pods that we wrote."""

    def __init__(self, clock: Clock) -> None:
        self.scale: ScaleExpectations[str] = ScaleExpectations(clock)
        self.versions = ResourceVersionExpectations(clock)
        #: Per workload the Pods (uid) whose written version the cache may not show yet.
        self.written: dict[str, set[str]] = {}

    def expect_creation(self, owner_uid: str, name: str) -> None:
        """A request to create a Pod is about to be sent."""
        self.scale.expect(owner_uid, ScaleAction.CREATE, name)

    def creation_observed(self, owner_uid: str, name: str) -> None:
        """The cache shows the Pod, or its creation has failed."""
        self.scale.observe(owner_uid, ScaleAction.CREATE, name)

    def expect_deletion(self, owner_uid: str, name: str) -> None:
        """A request to delete a Pod is about to be sent."""
        self.scale.expect(owner_uid, ScaleAction.DELETE, name)

    def deletion_observed(self, owner_uid: str, name: str) -> bool:
        """The cache shows that the Pod goes, or its deletion has failed; whether we expected it."""
        return self.scale.observe(owner_uid, ScaleAction.DELETE, name)

    def expect_version(self, owner_uid: str, written: Meta) -> None:
        """Nothing more is decided on the Pod before the cache shows this version."""
        self.versions.expect(written)
        self.written.setdefault(owner_uid, set()).add(written.uid or "")

    def forget(self, owner_uid: str) -> None:
        """A workload is gone."""
        self.scale.forget(owner_uid)
        for uid in self.written.pop(owner_uid, ()):
            self.versions.forget(uid)


def claim_expectation(name: str) -> str:
    """How a claim's name is told from a Pod's among expectations."""
    return f"pvc/{name}"


class ExpectationCheck:
    """Whether a workload may be decided upon. ``timeout``: seconds the cache may take to show our writes; ``force``:
    what the cache has not shown by then is given up (gate ForceDeleteTimeoutExpectationGate)."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        expectations: Expectations,
        metrics: Metrics,
        *,
        timeout: float,
        force: bool,
    ) -> None:
        self._client = client
        self._pods = pods
        self._expectations = expectations
        self._metrics = metrics
        self._timeout = timeout
        self._force = force

    async def unsatisfied(self, owner: Owner) -> Result | None:
        """When to ask again; None: the cache shows what we wrote."""
        expected, uid = self._expectations, owner.uid
        unsatisfied = expected.scale.unsatisfied(uid)
        if unsatisfied is not None:
            if unsatisfied.waited < self._timeout:
                return Result(requeue_after=unsatisfied.remaining(self._timeout))
            self._metrics.expectation_leaked(owner.namespace, owner.name)
            logger.warning("%s: the cache does not show: %s", owner, unsatisfied.outstanding)
            if self._force or await self._cache_is_complete(owner):
                expected.scale.forget(uid)
            return Result(requeue_after=RECHECK_DELAY)
        written = expected.written.get(uid)
        if not written:
            return None
        for pod in self._pods.by_index(OWNER, owner.index_key):
            if pod.metadata.uid not in written:
                continue
            late = expected.versions.unsatisfied(pod.metadata)
            if late is None:
                continue
            if late.waited < self._timeout:
                return Result(requeue_after=late.remaining(self._timeout))
            # B-4: whoever is right, waiting longer does not help.
            await self._forget_if_shown(pod)
        written.clear()
        return None

    async def _cache_is_complete(self, owner: Owner) -> bool:
        """Whether the API server has the same Pods as the cache: then what was expected will never come."""
        live = await self._client.list(PODS, owner.namespace, decode=decode_pod)
        present = {pod.metadata.uid for pod in live.items if is_controlled_by(pod.metadata, owner)}
        return present == {pod.metadata.uid for pod in self._pods.by_index(OWNER, owner.index_key)}

    async def _forget_if_shown(self, pod: Pod) -> None:
        live = await get_or_none(self._client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        if live is None:
            return
        if live.metadata.uid == pod.metadata.uid and is_at_least(
            pod.metadata.resource_version, live.metadata.resource_version
        ):
            self._expectations.versions.forget(pod.metadata.uid)


#: Requests of one workload that are under way at once.
MAX_CONCURRENT_WRITES: Final = 48
#: Seconds after which Pods are looked at again that somebody else wrote at the same time.
CONFLICT_DELAY: Final = 1.0

T = TypeVar("T")


class PodHeldError(KubeError):
    """A budget does not let the Pod go now: no failure, but a reason to ask again soon (PUB-90)."""


class PodGoneError(Exception):
    """The Pod is not there any more, or another one has its name."""


@dataclass(slots=True)
class Outcome:
    """What came of one part of a reconcile. ``message``: for the condition; '' for none; None: it says nothing new."""

    changed: bool = False
    error: KubeError | None = None
    message: str | None = ""
    requeue_after: list[float] = field(default_factory=list)
    #: The Pods that wait for the report of their node's agent, in a sentence.
    waiting: str = ""
    #: Why there are fewer Pods than wanted, in one word of the workload's; '' if there are enough.
    shortfall: str = ""


async def gather_results(work: Iterable[Awaitable[T]]) -> list[T | KubeError | PodGoneError]:
    """Side by side, with what each raised of the API server's refusals; other errors are raised."""

    async def caught(one: Awaitable[T]) -> T | KubeError | PodGoneError:
        try:
            return await one
        except (KubeError, PodGoneError) as error:
            return error

    return await concurrently((caught(one) for one in work), MAX_CONCURRENT_WRITES)


def refused_creations(refused: Collection[KubeError], *, made: int, retry_in: float, message: str) -> Outcome:
    """Return the outcome of creations of which some were refused; the next try is in ``retry_in`` seconds.

    In a namespace that is being terminated nothing is created any more: that is no failure, and nothing to retry.
    """
    if all(map(is_namespace_ending, refused)):
        return Outcome(changed=made > 0)
    error = next(iter(refused))
    error.retry_in = retry_in
    return Outcome(changed=made > 0, error=error, message=message)


def most_urgent(errors: Iterable[KubeError | None]) -> KubeError | None:
    """Return the error whose retry is due first."""
    return min((error for error in errors if error is not None), key=lambda error: error.retry_in, default=None)


def failures_of(outcomes: Mapping[str, Outcome]) -> dict[str, str | None]:
    """By the type of its condition, what went wrong; None: it went well. What has nothing new to say is left out."""
    said = {type_: outcome.message for type_, outcome in outcomes.items() if outcome.message is not None}
    return {type_: message or None for type_, message in said.items()}


def outcome_of(found: Sequence[object]) -> Outcome:
    """Changed if anything succeeded, or may have: what had no answer; the first refusal, of which conflicts, Pods that
    are gone and Pods that a budget holds are none."""
    errors = [one for one in found if isinstance(one, KubeError) and not isinstance(one, PodHeldError)]
    refusals = [error for error in errors if not isinstance(error, Conflict)]
    error = refusals[0] if refusals else errors[0] if errors else None
    return Outcome(
        changed=any(not isinstance(one, KubeError | PodGoneError) or isinstance(one, UNANSWERED) for one in found),
        error=error,
        message=message_of(refusals[0]) if refusals else "",
        requeue_after=[RETRY_SECONDS] if any(isinstance(one, PodHeldError) for one in found) else [],
    )
