"""State of a reconcile and what is kept between reconciles: expectations, outcomes, metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from app.api.model import KubeObject
from app.kube.client import Client, get_or_none
from app.kube.clock import Clock
from app.kube.concurrency import settled
from app.kube.controller import Result
from app.kube.errors import UNANSWERED, Conflict, KubeError, is_namespace_ending, message_of
from app.kube.expectations import ResourceVersionExpectations, ScaleAction, ScaleExpectations, is_at_least
from app.kube.objects import ControllerRevision, Meta, PersistentVolumeClaim, Pod, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import KnownStatus, newest_status
from app.kube.store import Change, Store
from app.pods.disruption_budget import RETRY_SECONDS
from app.pods.predicates import Owner, is_controlled_by
from app.pods.revisions import Revision, revision_name, short_hash
from app.workloads.pods import InPlaceUpdates, ObservedPods, PodFacts
from app.workloads.settings import OWNER, ResolvedSpec, Revisions
from app.workloads.steps import Step

#: Seconds by which a timer may fire early.
TIMER_TOLERANCE: Final = 0.005
#: Initial and maximum back-off after a rejected creation, in seconds; it doubles each time.
CREATION_BACKOFF: Final = 0.1
MAX_CREATION_BACKOFF: Final = 30.0

R = TypeVar("R", bound=ResolvedSpec[Any])
S = TypeVar("S", bound="WorkloadState[Any]")


@dataclass(slots=True)
class CreationBackoff:
    """Back-off after a rejected creation, so that changes to Pods do not trigger an immediate retry. Times are
    monotonic."""

    refused: int = 0
    until: float = 0.0

    def remaining(self, now: float) -> float:
        return self.until - now if now < self.until - TIMER_TOLERANCE else 0.0

    def refuse(self, now: float) -> None:
        self.until = now + min(CREATION_BACKOFF * 2 ** min(self.refused, 20), MAX_CREATION_BACKOFF)
        self.refused += 1

    def reset(self) -> None:
        self.refused, self.until = 0, 0.0


@dataclass(slots=True)
class WorkloadState(Generic[R]):
    """State of one workload; kinds add fields in a subclass."""

    uid: str
    key: ObjectKey
    resolved: R | None = None
    resolved_key: object = None
    facts: dict[str, PodFacts] = field(default_factory=dict)
    in_place: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    last_reconcile: float = 0.0
    #: When the next reconcile triggered by Pods may run; None once a reconcile has started at or after that time.
    next_reconcile: float | None = None
    #: Whether others deleted Pods since the last reconcile. If so, the workload may be gone too (see the reconciler).
    pods_deleted_by_others: bool = False
    creation_backoff: CreationBackoff = field(default_factory=CreationBackoff)
    #: Why Pods are not updated in place, as last reported.
    not_in_place_for: str = ""
    #: Names of nonexistent revisions that Pods or the status refer to.
    unrecorded: set[str] = field(default_factory=set)
    #: The update revision and the decision about pre-pulling its images. [PM-162]
    pulls: tuple[str, str] = ("", "")
    #: Whether releasing Pods, pre-pulling or cleanup is left to the next reconcile, which no watch event triggers.
    side_task_left: bool = False
    #: The status as last written, which the cache may not have yet.
    written: KnownStatus | None = None

    def waits_for_change(self, change: Change[Any]) -> bool:  # noqa: ARG002
        """Return whether the workload is waiting for this change, so that its reconcile is not delayed."""
        return False

    def set_resolved(self, resolved: R | None, key: object) -> None:
        """Set the new spec (None if it is invalid), and drop everything derived from the old one."""
        self.resolved, self.resolved_key = resolved, key
        self.facts, self.in_place = {}, InPlaceUpdates()
        self.unrecorded.clear()
        self.creation_backoff.reset()

    def present_status(self, workload: KubeObject) -> KnownStatus:
        """Return the newest known status: the cached one, or our last write if the cache is behind."""
        return newest_status(workload, self.written)

    def missing_revisions(self, pods: Iterable[PodFacts], current: str, ordered: Iterable[Revision]) -> list[str]:
        """Return the revisions that Pods or the status refer to but ``ordered`` lacks, except those known not to
        exist."""
        known = {short_hash(revision.name) for revision in ordered}
        hashes = {pod.revision for pod in pods}
        if current:
            hashes.add(short_hash(current))
        wanted = {revision_name(self.key.name, one) for one in hashes.difference(known) if one}
        # Forget names that are no longer in use: over time, users may label Pods with any number of revisions.
        self.unrecorded &= wanted
        return sorted(wanted - self.unrecorded)


class States(Generic[S]):
    """States of a controller's workloads. ``make`` creates the state of a workload from its UID and key."""

    def __init__(self, make: Callable[[str, ObjectKey], S]) -> None:
        self._make = make
        self._states: dict[ObjectKey, S] = {}
        self._namespaces: dict[str, dict[ObjectKey, S]] = {}

    def get(self, key: ObjectKey) -> S | None:
        """Return the state of a workload; None before its first reconcile."""
        return self._states.get(key)

    def of(self, key: ObjectKey, uid: str, forget: Callable[[str], None]) -> S:
        """Return the state of a workload. The state of an earlier workload with that name is dropped."""
        state = self._states.get(key)
        if state is None or state.uid != uid:
            if state is not None:
                forget(state.uid)
            state = self._states[key] = self._make(uid, key)
            self._namespaces.setdefault(key.namespace, {})[key] = state
        return state

    def pop(self, key: ObjectKey) -> S | None:
        there = self._namespaces.get(key.namespace, {})
        there.pop(key, None)
        if not there:
            self._namespaces.pop(key.namespace, None)
        return self._states.pop(key, None)

    def everywhere(self) -> Iterable[S]:
        return list(self._states.values())

    def in_namespace(self, namespace: str) -> Iterable[S]:
        return list(self._namespaces.get(namespace, {}).values())


W = TypeVar("W", bound=KubeObject)


@dataclass(frozen=True)
class Caches(Generic[W]):
    """Stores of a controller. All except ``workloads`` have the index OWNER; kinds without claims have no claim
    store."""

    workloads: Store[W]
    pods: Store[Pod]
    claims: Store[PersistentVolumeClaim] | None
    revisions: Store[ControllerRevision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Generic[W, S, R]):
    """Snapshot of one workload. Only ``state`` may be changed: the controller keeps it between reconciles.

    ``status`` is the newest known status; ``claims`` are controlled by the workload and not being deleted; ``now`` is
    wall time.
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
        return self.resolved.owner

    @property
    def pods(self) -> Sequence[PodFacts]:
        return self.observed.active

    @property
    def current_hash(self) -> str:
        return short_hash(self.revisions.current.name)

    @property
    def update_hash(self) -> str:
        return short_hash(self.revisions.update.name)

    def revision_of(self, digest: str) -> Revision:
        """Return the update revision if it has this short hash, else the current one."""
        return self.revisions.update if digest == self.update_hash else self.revisions.current


#: A snapshot of any workload.
AnySnapshot = Snapshot[Any, Any, Any]


class Metrics:
    """Hooks for metrics. This base class does nothing."""

    def expectation_leaked(self, namespace: str, name: str) -> None: ...
    def in_place_started(self, namespace: str) -> None: ...
    def in_place_failed(self, namespace: str) -> None: ...
    def in_place_finished(self, namespace: str, seconds: float) -> None: ...


# Our own writes that the cache does not reflect yet. Until it does, the workload is not reconciled. [CS-52, CS-57]

logger = logging.getLogger(__name__)

#: Seconds before an overdue expectation is checked again.
RECHECK_DELAY: Final = 10.0


class Expectations:
    """Expectations by the workload's UID: Pods and claims to be created and deleted, and written versions of Pods."""

    def __init__(self, clock: Clock) -> None:
        self.scale: ScaleExpectations[str] = ScaleExpectations(clock)
        self.versions = ResourceVersionExpectations(clock)
        #: UIDs of written Pods by workload; the cache may not reflect the writes yet.
        self.written: dict[str, set[str]] = {}

    def expect_creation(self, owner_uid: str, name: str) -> None:
        """Expect the creation of a Pod. Called before the request is sent."""
        self.scale.expect(owner_uid, ScaleAction.CREATE, name)

    def creation_observed(self, owner_uid: str, name: str) -> None:
        """Fulfill the expectation: the cache has the Pod, or its creation failed."""
        self.scale.observe(owner_uid, ScaleAction.CREATE, name)

    def expect_deletion(self, owner_uid: str, name: str) -> None:
        """Expect the deletion of a Pod. Called before the request is sent."""
        self.scale.expect(owner_uid, ScaleAction.DELETE, name)

    def deletion_observed(self, owner_uid: str, name: str) -> bool:
        """Fulfill the expectation: the cache reflects the deletion, or it failed. Return whether it was expected."""
        return self.scale.observe(owner_uid, ScaleAction.DELETE, name)

    def expect_version(self, owner_uid: str, written: Meta) -> None:
        self.versions.expect(written)
        self.written.setdefault(owner_uid, set()).add(written.uid or "")

    def forget(self, owner_uid: str) -> None:
        self.scale.forget(owner_uid)
        for uid in self.written.pop(owner_uid, ()):
            self.versions.forget(uid)


def claim_expectation(name: str) -> str:
    """Return the name of a claim in expectations, distinct from Pod names."""
    return f"pvc/{name}"


@dataclass(frozen=True, slots=True)
class ExpectationCheck:
    """Checks whether the cache reflects our writes. The cache may take ``timeout`` seconds; with ``force``, overdue
    expectations are dropped (gate ForceDeleteTimeoutExpectationGate)."""

    client: Client
    pods: Store[Pod]
    expectations: Expectations
    metrics: Metrics
    timeout: float
    force: bool

    async def unsatisfied(self, owner: Owner) -> Result | None:
        """Return when to check again; None if the cache reflects our writes."""
        expected, uid = self.expectations, owner.uid
        unsatisfied = expected.scale.unsatisfied(uid)
        if unsatisfied is not None:
            if unsatisfied.waited < self.timeout:
                return Result(requeue_after=unsatisfied.remaining(self.timeout))
            self.metrics.expectation_leaked(owner.namespace, owner.name)
            logger.warning("%s: the cache is missing our writes: %s", owner, unsatisfied.outstanding)
            if self.force or await self._cache_is_complete(owner):
                expected.scale.forget(uid)
            return Result(requeue_after=RECHECK_DELAY)
        written = expected.written.get(uid)
        if not written:
            return None
        for pod in self.pods.by_index(OWNER, owner.index_key):
            if pod.metadata.uid not in written:
                continue
            late = expected.versions.unsatisfied(pod.metadata)
            if late is None:
                continue
            if late.waited < self.timeout:
                return Result(requeue_after=late.remaining(self.timeout))
            # The cache is behind or the write was lost: drop the expectation if the cached Pod is the live one.
            await self._forget_if_shown(pod)
        written.clear()
        return None

    async def _cache_is_complete(self, owner: Owner) -> bool:
        """Return whether the API server has the same Pods as the cache; if so, the expected change will never come."""
        live = await self.client.list(PODS, owner.namespace, decode=decode_pod)
        present = {pod.metadata.uid for pod in live.items if is_controlled_by(pod.metadata, owner)}
        return present == {pod.metadata.uid for pod in self.pods.by_index(OWNER, owner.index_key)}

    async def _forget_if_shown(self, pod: Pod) -> None:
        live = await get_or_none(self.client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        if live is None:
            return
        if live.metadata.uid == pod.metadata.uid and is_at_least(
            pod.metadata.resource_version, live.metadata.resource_version
        ):
            self.expectations.versions.forget(pod.metadata.uid)


#: Maximum number of concurrent requests of one workload.
MAX_CONCURRENT_WRITES: Final = 48
#: Seconds before Pods are retried after a conflict.
CONFLICT_DELAY: Final = 1.0

T = TypeVar("T")


class PodHeldError(KubeError):
    """A disruption budget does not allow the change now. This is not a failure; the change is retried soon. [PUB-90]"""


class PodGoneError(Exception):
    """The Pod was deleted or replaced by another of the same name."""


@dataclass(slots=True)
class Outcome:
    """Result of one part of a reconcile. ``message`` is for the condition; '' clears it, None leaves it unchanged."""

    changed: bool = False
    error: KubeError | None = None
    message: str | None = ""
    requeue_after: list[float] = field(default_factory=list)
    #: Message about Pods waiting for the report of their node agent.
    waiting: str = ""
    #: The update steps that succeeded.
    done: Sequence[Step] = ()


async def gather_results(work: Iterable[Awaitable[T]]) -> list[T | KubeError | PodGoneError]:
    """Run ``work`` concurrently and return the results and API errors in order. Raises the first other error after all
    have finished."""
    found: list[T | KubeError | PodGoneError] = []
    for one in await settled(work, MAX_CONCURRENT_WRITES):
        if isinstance(one, BaseException) and not isinstance(one, KubeError | PodGoneError):
            raise one
        found.append(one)
    return found


def creation_outcome(
    backoff: CreationBackoff,
    refused: Mapping[str, KubeError],
    *,
    made: int,
    now: float,
    describe: Callable[[str], str],
    waiting: str = "",
) -> Outcome:
    """Return the outcome of creations, and back off if any was rejected. ``now`` is monotonic time; ``describe`` turns
    the first error message into the condition's message; if all succeeded, the message is ``waiting``.

    In a terminating namespace, creations are rejected; that is not a failure and is not retried.
    """
    if not refused:
        backoff.reset()
        return Outcome(changed=made > 0, message=waiting)
    backoff.refuse(now)
    if all(map(is_namespace_ending, refused.values())):
        return Outcome(changed=made > 0)
    error = next(iter(refused.values()))
    error.retry_in = backoff.remaining(now)
    return Outcome(changed=made > 0, error=error, message=describe(message_of(error)))


def most_urgent(errors: Iterable[KubeError | None]) -> KubeError | None:
    """Return the error with the earliest retry."""
    return min((error for error in errors if error is not None), key=lambda error: error.retry_in, default=None)


def failures_of(outcomes: Mapping[str, Outcome]) -> dict[str, str | None]:
    """Return the failure message by condition type, None for success. Outcomes without a message are omitted."""
    messages = {type_: outcome.message for type_, outcome in outcomes.items() if outcome.message is not None}
    return {type_: message or None for type_, message in messages.items()}


def outcome_of(found: Sequence[object]) -> Outcome:
    """Summarize results: whether anything changed (a request succeeded or got no response), and the first error.
    Conflicts, missing Pods and Pods that a budget blocks do not count as failures."""
    errors = [one for one in found if isinstance(one, KubeError) and not isinstance(one, PodHeldError)]
    refusals = [error for error in errors if not isinstance(error, Conflict)]
    error = refusals[0] if refusals else errors[0] if errors else None
    return Outcome(
        changed=any(not isinstance(one, KubeError | PodGoneError) or isinstance(one, UNANSWERED) for one in found),
        error=error,
        message=message_of(refusals[0]) if refusals else "",
        requeue_after=[RETRY_SECONDS] if any(isinstance(one, PodHeldError) for one in found) else [],
    )
