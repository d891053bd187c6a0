"""EphemeralJob controller: adds ephemeral containers and reports their progress."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from app.api import names
from app.features.ephemeraljob.kind import EPHEMERAL_JOB, TTL_SECONDS
from app.features.ephemeraljob.plan import (
    NONE,
    Candidate,
    Record,
    State,
    Step,
    broken,
    candidate,
    container_names,
    containers_of,
    is_meant,
    is_needed,
    marked_by,
    merged,
    next_step,
    recorded,
    written,
)
from app.features.ephemeraljob.types import EphemeralJob
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import BY_NAMESPACE, PODS_BY_NAMESPACE, Watched
from app.kube.client import Client, PatchType, get_or_none
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.controller import Result, Watch
from app.kube.errors import Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder
from app.kube.expectations import ScaleAction
from app.kube.objects import Pod, decode_metadata
from app.kube.resources import PODS, ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector, label_keys, selector_keys
from app.kube.store import Change, Store, key_of
from app.pods.predicates import FINISHED
from app.workloads.jobs import End, JobReconciler, JobState, write_each

# Reads caches, adds containers to Pods, and writes the status. [EJ-3 … EJ-17]

OWNER: Final = EPHEMERAL_JOB.resource()
FINALIZER: Final = names.EPHEMERAL_JOB_CLEANUP
NO_SUBRESOURCE: Final = "the API server has no subresource pods/ephemeralcontainers: upgrade to Kubernetes 1.23"
#: Maximum number of recorded Pods looked up in one reconcile, and seconds until the next lookups. Users can record any
#: number of Pods.
MAX_LOOKUPS: Final = 100
LOOKUPS_AGAIN: Final = 1.0
#: Indexes of the open jobs by selector and by UID.
BY_SELECTOR: Final = "selector of open jobs"
BY_UID: Final = "uid of open jobs"


def by_selector(job: EphemeralJob) -> Sequence[str]:
    """Index function of :data:`BY_SELECTOR`. Jobs with an invalid selector are not indexed."""
    if not by_uid(job):
        return ()
    try:
        return selector_keys(job.metadata.namespace, compile_selector(job.spec.selector))
    except SelectorError:
        return ()


def by_uid(job: EphemeralJob) -> Sequence[str]:
    """Index function of :data:`BY_UID`."""
    return () if job.status is not None and job.status.completion_time else (job.metadata.uid,)


@dataclass(slots=True)
class _State(JobState):
    #: Targeted Pods, evaluated for the current generation, by UID. Other Pods are not kept: a namespace may have many.
    candidates: dict[str, Candidate] = field(default_factory=dict)
    generation: int = 0
    #: The record of started Pods, the stored record, and the last annotation read, with its parsed value. [EJ-17]
    record: Record = field(default_factory=dict)
    saved: Record = field(default_factory=dict)
    read: tuple[str, Record] = ("", NONE)
    #: Resource version after the last write of the record.
    record_version: str = ""
    #: UIDs of recorded Pods that no longer exist.
    gone: set[str] = field(default_factory=set)


class EphemeralJobReconciler(JobReconciler[EphemeralJob, _State]):
    """Reconciles EphemeralJobs. ``options`` are passed to the base class. Expectations are tracked per Pod. [EJ-13]"""

    def __init__(
        self, client: Client, jobs: Store[EphemeralJob], pods: Store[Pod], events: EventRecorder, **options: float
    ) -> None:
        super().__init__(client, OWNER, jobs, events, _State, **options)
        self._pods = pods
        #: Generations and compiled selectors (None if invalid), by job UID. There may be thousands of jobs, and Pod
        #: changes are matched against their selectors.
        self._selectors: dict[str, tuple[int, Selector | None]] = {}

    # ---- event mapping (EJ-13, EJ-16)

    def keys_for_job(self, change: Change[EphemeralJob]) -> Iterable[ObjectKey]:
        """Return the job's key as the base class does, and drop the compiled selector of a deleted job."""
        metadata, state = change.object.metadata, self._states.get(key_of(change.object))
        if change.new is None:
            self._selectors.pop(metadata.uid, None)
        elif state is not None and state.record_version == metadata.resource_version:
            return ()  # caused by our own write of the record
        return super().keys_for_job(change)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the jobs that select the Pod or have containers in it, unless nothing relevant changed."""
        old, new = change.old, change.new
        if old is not None and new is not None and _facts(old) == _facts(new):
            return []
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
        # An expectation is fulfilled once the containers exist or the Pod is gone.
        shown = self._marking(new) if new is not None else self.expected.awaiting(ScaleAction.CREATE, name)
        shown = [key for key in shown if key.namespace == namespace]
        for key in shown:
            self.expected.observe(key, ScaleAction.CREATE, name)
        found = dict.fromkeys(shown)
        for pod in (old, new):
            if pod is not None:
                found |= dict.fromkeys((*self._marking(pod), *self._selecting(pod)))
        return list(found)

    def _marking(self, pod: Pod) -> list[ObjectKey]:
        jobs = (job for uid in marked_by(pod) for job in self.jobs.by_index(BY_UID, uid))
        return [key_of(job) for job in jobs if job.metadata.namespace == pod.metadata.namespace]

    def _selecting(self, pod: Pod) -> Iterator[ObjectKey]:
        labels = pod.metadata.labels
        for at in label_keys(pod.metadata.namespace, labels):
            for job in self.jobs.by_index(BY_SELECTOR, at):
                selector = self._selector(job)
                if selector is not None and selector.matches(labels):
                    yield key_of(job)

    def _selector(self, job: EphemeralJob) -> Selector | None:
        uid, generation = job.metadata.uid, job.metadata.generation
        known = self._selectors.get(uid)
        if known is None or known[0] != generation:
            try:
                known = generation, compile_selector(job.spec.selector)
            except SelectorError:
                known = generation, None
            self._selectors[uid] = known
        return known[1]

    # ---- reconcile

    def end_of(self, job: EphemeralJob) -> End | None:
        """Return when the job ended and how long it is kept, or None if it has not ended. [EJ-4]"""
        if job.status is None or not job.status.completion_time:
            return None
        return End(parsed_rfc3339(job.status.completion_time), _ttl(job))

    async def finalize(self, job: EphemeralJob, state: _State) -> None:
        """Remove the finalizer. Added containers stay: Kubernetes cannot remove ephemeral containers. [EJ-3]"""
        if FINALIZER in job.metadata.finalizers:
            await self._finalize(job, state, lambda there: [one for one in there if one != FINALIZER])

    async def prepare(self, job: EphemeralJob, state: _State) -> bool:
        """Add the finalizer. Return whether the job was changed. [EJ-3]"""
        if FINALIZER in job.metadata.finalizers:
            return False
        containers = [{"resources": {}, **one} for one in job.spec.template.ephemeral_containers]
        # Add ``resources`` as OpenKruise's first write does, because clients compare the containers.
        spec = {"template": {"ephemeralContainers": containers}}
        await self._finalize(job, state, lambda there: [*(one for one in there if one != FINALIZER), FINALIZER], spec)
        return True

    async def _finalize(
        self,
        job: EphemeralJob,
        state: _State,
        wanted: Callable[[Sequence[str]], Sequence[str]],
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        more = {"spec": spec} if spec is not None else {}
        with suppress(NotFound):
            await self.write_object(
                job, state, lambda known: {"metadata": {"finalizers": wanted(known.finalizers)}, **more}
            )

    async def reconcile(self, key: ObjectKey, job: EphemeralJob, state: _State) -> Result | None:
        """Carry out one step of the plan. [EJ-5]"""
        now = self.clock.now()
        started = parsed_rfc3339(job.status.start_time) if job.status is not None else None
        began = started if started is not None else now.replace(microsecond=0)
        passed = (now - began).total_seconds()
        selector, more = self._selector(job), False
        if selector is None:
            step = broken()
        else:
            candidates = self._candidates(job, state, selector)
            state.record = self._known_record(job, state)
            state.candidates = {uid: one for uid, one in candidates.items() if is_meant(one, state.record)}
            unseen, more = await self._unseen(job, state, candidates)
            step = next_step(job, candidates.values(), passed, state.record, unseen)
            begins = {pod.metadata.uid for pod in step.inject}
            if not step.ended and is_needed(step.record, state.saved, begins, candidates):
                if not await self._record(job, state, step.record):
                    return None  # a concurrent change triggers another reconcile
                state.saved = step.record
            if step.ended:
                state.candidates = {}  # no longer needed, and a namespace may have many
            else:
                state.record = step.record
        await self._report(job, state, step, rfc3339(began))
        # [EJ-8, EJ-9]
        await write_each(step.inject, partial(self._put, key, job))
        if step.ended:
            return self.again(key, kept=_ttl(job))
        deadline = job.spec.active_deadline_seconds if not job.spec.paused else None
        waits = [LOOKUPS_AGAIN] if more else []
        if deadline is not None:
            waits.append(deadline - passed)
        return self.again(key, left=min(waits, default=None))

    def _candidates(self, job: EphemeralJob, state: _State, selector: Selector) -> Mapping[str, Candidate]:
        """Evaluate the Pods in the namespace. Evaluations of unchanged targeted Pods are reused."""
        metadata, containers = job.metadata, container_names(job)
        known = state.candidates if state.generation == metadata.generation else {}
        state.generation, found = metadata.generation, dict[str, Candidate]()
        for pod in self._pods.by_index(BY_NAMESPACE, metadata.namespace):
            uid = pod.metadata.uid
            before = known.get(uid)
            found[uid] = (
                before
                if before is not None and before.pod is pod
                else candidate(pod, selector, metadata.uid, containers)
            )
        state.objects = len(found)
        return found

    def _known_record(self, job: EphemeralJob, state: _State) -> Record:
        """Merge the record in the annotation, our last writes that are not in the cache yet, and our observations.
        [EJ-17]"""
        if job.spec.replicas is None:
            return NONE
        text = job.metadata.annotations.get(names.EPHEMERAL_JOB_BEGUN, "")
        if text != state.read[0]:
            state.read = text, recorded(text)
        state.saved = merged(state.read[1], state.saved)
        return merged(state.saved, state.record)

    async def _unseen(self, job: EphemeralJob, state: _State, there: Container[str]) -> tuple[set[str], bool]:
        """Return the recorded Pods that exist but are missing from the cache, and whether some of them have not been
        looked up yet. Pods found to be gone are not looked up again. [EJ-17]"""
        state.gone &= state.record.keys()
        lost = [uid for uid in state.record if uid not in there and uid not in state.gone]
        left = lost[MAX_LOOKUPS:]
        found = set(left)
        for uid in lost[:MAX_LOOKUPS]:
            name, namespace = state.record[uid].pod, job.metadata.namespace
            live = await get_or_none(self.client, PODS, name, namespace, decode=decode_metadata)
            (found if live is not None and live.metadata.uid == uid else state.gone).add(uid)
        return found, bool(left)

    # ---- writing

    async def _record(self, job: EphemeralJob, state: _State, record: Record) -> bool:
        """Persist the record before adding containers to Pods that are not in it yet. [EJ-17]"""
        patch = {"metadata": {"annotations": {names.EPHEMERAL_JOB_BEGUN: written(record)}}}
        if not await self.write_object(job, state, lambda _: patch):
            return False
        state.record_version = state.written.version if state.written is not None else ""
        return True

    def _current(self, decided: Pod) -> Pod | None:
        """Return the cached Pod, or None if it changed since the decision or lacks our last write. The Pod's next event
        requeues all its jobs."""
        name, namespace = decided.metadata.name, decided.metadata.namespace
        pod = self._pods.by_key(key_of(decided))
        if pod is None or pod.metadata.uid != decided.metadata.uid or _facts(pod) != _facts(decided):
            return None
        written = (key.namespace == namespace for key in self.expected.awaiting(ScaleAction.CREATE, name))
        return None if any(written) else pod

    async def _put(self, key: ObjectKey, job: EphemeralJob, decided: Pod) -> KubeError | None:
        pod = self._current(decided)
        if pod is None:
            return None
        metadata = pod.metadata
        # The API server ignores the UID in a patch of this subresource, but checks the version.
        same = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = {"metadata": same, "spec": {"ephemeralContainers": containers_of(job)}}
        self.expected.expect(key, ScaleAction.CREATE, metadata.name)
        try:
            await self.client.patch(
                PODS,
                metadata.name,
                patch,
                metadata.namespace,
                kind=PatchType.STRATEGIC,
                subresource="ephemeralcontainers",
                decode=decode_metadata,
            )
        except KubeError as error:
            self.expected.observe(key, ScaleAction.CREATE, metadata.name)
            if isinstance(error, Conflict):
                return error  # the name now belongs to another Pod, or the Pod has just changed
            if isinstance(error, NotFound) and error.status.details is not None and error.status.details.name:
                return None  # the Pod is gone
            message = NO_SUBRESOURCE if isinstance(error, NotFound) else message_of(error)
            self.record_event(job, "Warning", "CreateFailed", message)
            return error
        return None

    async def _report(self, job: EphemeralJob, state: _State, step: Step, began: str) -> None:
        now = rfc3339(self.clock.now())
        counts = step.counts
        wanted: dict[str, Any] = {
            "startTime": began,
            "phase": step.phase,
            "match": step.match,
            "running": counts[State.RUNNING],
            "succeeded": counts[State.SUCCEEDED],
            "waiting": counts[State.WAITING],
            "failed": counts[State.FAILED],
        }
        if step.ended:
            wanted["completionTime"] = now
        conditions = [("Initialized", "Initialized", ""), *step.conditions]

        def difference(present: Any) -> dict[str, Any]:
            if present.get("completionTime"):
                return {}  # the cache lags behind
            kept = {"startTime": present["startTime"]} if present.get("startTime") else {}
            merged = _with_conditions(present.get("conditions") or [], conditions, now)
            new = {**wanted, **kept, "conditions": merged}
            return {key: value for key, value in new.items() if present.get(key) != value}

        await self.write_status(job, state, difference)


def _ttl(job: EphemeralJob) -> int:
    ttl = job.spec.ttl_seconds_after_finished
    return TTL_SECONDS if ttl is None else ttl


def _with_conditions(
    present: Sequence[Any], conditions: Iterable[tuple[str, str, str]], now: str
) -> list[dict[str, str]]:
    """Add new conditions, replace conditions that differ, and keep the others. [EJ-12]"""
    found = {str(one.get("type")): one for one in present if isinstance(one, dict)}
    for type_, reason, message in conditions:
        old = found.get(type_)
        if old is not None and (
            type_ == "Initialized" or (old.get("reason"), old.get("message", "")) == (reason, message)
        ):
            continue
        new = {"type": type_, "status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": reason}
        found[type_] = {**new, "message": message} if message else new
    return list(found.values())


def _facts(pod: Pod) -> tuple[object, ...]:
    metadata, status = pod.metadata, pod.status
    return (
        metadata.labels,
        metadata.deletion_timestamp,
        status.phase in FINISHED,
        pod.spec.ephemeral_containers,
        status.ephemeral_container_statuses,
    )


NAME: Final = "ephemeraljob-controller"
EPHEMERAL_JOBS: Final = Watched.kind(EPHEMERAL_JOB, EphemeralJob, **{BY_SELECTOR: by_selector, BY_UID: by_uid})
WATCHED: Final = (EPHEMERAL_JOBS, PODS_BY_NAMESPACE)


def ephemeraljob_controller(context: ControllerContext) -> Reconciling:
    """Return the EphemeralJob controller."""
    jobs, pods = context.stores(EPHEMERAL_JOBS), context.stores(PODS_BY_NAMESPACE)
    reconciler = EphemeralJobReconciler(
        context.client, jobs, pods, context.events, expectation_timeout=context.flags.seconds("expectation-timeout")
    )
    of_pods = Watch(pods, reconciler.keys_for_pod, reconciler.coalesce_delay)
    return Reconciling(reconciler, [of_pods, Watch(jobs, reconciler.keys_for_job)])
