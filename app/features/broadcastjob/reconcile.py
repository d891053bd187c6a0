"""BroadcastJob controller: creates Pods and reports their progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from app.api import names
from app.api.gojson import go_error
from app.api.gopod import POD_TEMPLATE
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.plan import (
    OWNER,
    Counts,
    Fit,
    Next,
    Step,
    counted_pods,
    fit_of,
    has_ended,
    has_failed,
    is_finished,
    new_pod,
    next_step,
    restart_limit,
    restarts,
    seen_failures,
    status_after,
)
from app.features.broadcastjob.types import NEVER, PAUSED, BroadcastJob
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import NODES, Watched
from app.framework.watched import PODS as WATCHED_PODS
from app.kube.client import Client
from app.kube.clock import parsed_rfc3339
from app.kube.controller import Result, Watch
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, message_of
from app.kube.events import INVALID_SPEC, EventRecorder
from app.kube.expectations import ScaleAction
from app.kube.fielderrors import quote
from app.kube.objects import Node, Pod, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.pods.predicates import BY_CONTROLLER, Owner, is_active, is_controlled_by, refers_to
from app.workloads.jobs import End, JobReconciler, JobState, write_each
from app.workloads.state import MAX_CONCURRENT_WRITES

# Reconcile: read caches, apply the plan, write the status. [BJ-7 … BJ-26]

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches the controller reads."""

    jobs: Store[BroadcastJob]
    pods: Store[Pod]
    nodes: Store[Node]


@dataclass(slots=True)
class _State(JobState):
    #: The generation whose template was validated last, and the error found in it.
    validated: int | None = None
    invalid: str = ""
    template: Any = None
    fit: Fit | None = None
    #: By node name: the evaluated node, and whether the Pod fits.
    nodes: dict[str, tuple[Node, bool]] = field(default_factory=dict)
    #: By Pod UID: the evaluated node, and whether the Pod fits there according to its own spec.
    own: dict[str, tuple[Node, bool]] = field(default_factory=dict)
    #: UIDs of stopped Pods that the status does not count as failed yet.
    stopped: set[str] = field(default_factory=set)


class BroadcastJobReconciler(JobReconciler[BroadcastJob, _State]):
    """Reconciles BroadcastJobs. ``options`` are passed to the base class; expectations are tracked per node. [BJ-19]"""

    def __init__(
        self, client: Client, caches: Caches, events: EventRecorder, *, by_scheduler: bool = True, **options: float
    ) -> None:
        super().__init__(client, OWNER, caches.jobs, events, _State, **options)
        self._caches = caches
        self._by_scheduler = by_scheduler

    # ---- event mapping (BJ-19)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the job that owns the Pod, unless nothing relevant changed."""
        old, new = change.old, change.new
        pod = change.object
        owner = pod.metadata.controller
        if owner is None or (owner.group, owner.kind) != (OWNER.group, OWNER.kind):
            return ()
        key, node = ObjectKey(pod.metadata.namespace, owner.name), pod.spec.target_node
        job = self.jobs.by_key(key)
        if job is None or not refers_to(owner, key.namespace, Owner.of(OWNER, job.metadata)):
            return (key,)  # an earlier job of this name, or a forged reference: no expectation applies
        if new is not None:
            self.expected.observe(key, ScaleAction.CREATE, node)
        if new is None or new.metadata.deletion_timestamp is not None:
            self.expected.observe(key, ScaleAction.DELETE, pod.metadata.name)
        return () if old is not None and new is not None and _counts_of(old) == _counts_of(new) else (key,)

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the unfinished jobs if the node changed in a relevant way; most changes are heartbeats."""
        old, new = change.old, change.new
        if old is not None and new is not None and _same_node(old, new):
            return []
        return [key_of(job) for job in self.jobs.list() if not is_finished(job)]

    # ---- reconcile

    def end_of(self, job: BroadcastJob) -> End | None:
        """Return when the job ended and how long to keep it; None if it has not ended. [BJ-10, BJ-16]"""
        if not is_finished(job):
            return None
        ended = parsed_rfc3339(job.status.completion_time) if job.status is not None else None
        return End(ended, job.spec.completion_policy.ttl_seconds_after_finished)

    async def reconcile(self, key: ObjectKey, job: BroadcastJob, state: _State) -> Result | None:
        if state.validated != job.metadata.generation:
            # Validating a large template is slow, and every Pod change triggers a reconcile.
            state.validated = job.metadata.generation
            state.invalid = go_error(POD_TEMPLATE, job.spec.template, "spec.template")
        if state.invalid:
            self.warn_once(job, state, INVALID_SPEC, state.invalid)
            return None
        now = self.clock.now()
        status = job.status
        started = (parsed_rfc3339(status.start_time) if status is not None else None) or now.replace(microsecond=0)
        pods = self._caches.pods.by_index(BY_CONTROLLER, Owner.of(OWNER, job.metadata).index_key)
        fitting = self._fitting(job, state)
        state.objects = len(state.nodes) + len(pods)
        fitting |= await self._keeping(state, fitting, pods)
        seen = seen_failures(job)
        step = next_step(job, fitting, state.nodes, pods, now, started, seen)
        if status is not None and status.phase == PAUSED and step.next is not Next.PAUSE:
            self.record_event(job, "Normal", "Continue", "continue to process job")
        for node, found in step.duplicates.items():
            self.warn_once(
                job,
                state,
                "DuplicatePodCreatedOnSameNode",
                f"Duplicated pod {found[-1].metadata.name} found on same node {node}",
            )
        counts = step.counts
        if step.next is Next.PAUSE and step.reason:
            await self._pause(job, state, counts.failed)
        if step.next is Next.RUN and counts.failed < seen and not await self._note_seen(job, state, counts.failed):
            return None  # a concurrent change triggers another reconcile
        if step.next in (Next.FAIL, Next.RUN):
            counts = await self._carry_out(key, job, state, step, pods)
        await self._report(job, state, step, counts, started)
        state.stopped.clear()
        return self._again(key, job, step, started)

    async def _carry_out(
        self, key: ObjectKey, job: BroadcastJob, state: _State, step: Step, pods: Iterable[Pod]
    ) -> Counts:
        """Delete and create Pods, and return the resulting counts. [BJ-12, BJ-24]"""
        limit, counts = restart_limit(job), step.counts
        stopped = {pod.metadata.uid for pod in step.delete if not has_failed(pod, limit)}
        # ``before`` counts Pods stopped by an earlier reconcile in which a write failed. They are no longer active,
        # but their phase is not final yet.
        counted = {pod.metadata.uid for pod in pods if has_failed(pod, limit) or pod.status.phase == "Succeeded"}
        if step.next is Next.RUN:
            state.stopped &= {pod.metadata.uid for pod in pods}  # while the job runs, Pods that are gone do not count
        before = len(state.stopped - stopped - counted)
        state.stopped |= stopped
        # Failed deletions are retried before the job counts as ended. [BJ-24]
        await write_each(step.delete, partial(self._drop, key, job), first=MAX_CONCURRENT_WRITES)
        counts = Counts(counts.active - len(stopped), counts.succeeded, counts.failed + len(stopped) + before)
        if step.crowded:
            self.warn_once(job, state, "TooManyActivePods", "Number of active pods exceed parallelism limit")
        if step.unreadable:
            given = quote(str(job.spec.parallelism))
            message = f"spec.parallelism: {given} is neither a number nor a percentage; use 10 or 10%"
            self.warn_once(job, state, "InvalidParallelism", message)
        await write_each(step.create, partial(self._make, key, job))  # [BJ-12]
        return Counts(counts.active + len(step.create), counts.succeeded, counts.failed)

    def _again(self, key: ObjectKey, job: BroadcastJob, step: Step, started: datetime) -> Result | None:
        """Return when to reconcile again: at the deadline, or when the job's TTL expires. [BJ-16, BJ-20]"""
        policy = job.spec.completion_policy
        kept = left = None
        if policy.type != NEVER and step.next in (Next.FAIL, Next.COMPLETE):
            kept = policy.ttl_seconds_after_finished
        elif policy.type != NEVER and policy.active_deadline_seconds is not None and step.next is Next.RUN:
            left = policy.active_deadline_seconds - (self.clock.now() - started).total_seconds()
        return self.again(key, kept=kept, left=left)

    def _fitting(self, job: BroadcastJob, state: _State) -> set[str]:
        """Return the nodes that can run a Pod. Unchanged nodes are not evaluated again."""
        if state.fit is None or state.template != job.spec.template:
            state.template, state.fit = job.spec.template, fit_of(job.spec.template)
            state.nodes.clear()
        known = state.nodes
        state.nodes = {}
        for node in self._caches.nodes.list():
            before = known.get(node.metadata.name)
            same = before is not None and (before[0] is node or _same_node(before[0], node))
            fits = before[1] if before is not None and same else state.fit.fits(node)
            state.nodes[node.metadata.name] = (node, fits)
        return {name for name, (_, fits) in state.nodes.items() if fits}

    async def _keeping(self, state: _State, fitting: Collection[str], pods: Iterable[Pod]) -> set[str]:
        """Return the nodes outside ``fitting`` whose running Pod fits according to its own spec, which may come from an
        earlier template. Pods are read from the API server: no cache holds the whole spec, and it is rarely needed.
        [BJ-4, BJ-7]"""
        known, state.own = state.own, {}
        found = set()
        for pod in pods:
            name, uid = pod.spec.target_node, pod.metadata.uid
            if name in fitting or name not in state.nodes or not is_active(pod):
                continue
            node = state.nodes[name][0]
            before = known.get(uid)
            if before is None or before[0] is not node:
                before = (node, await self._fits_as_it_is(pod, node))
            state.own[uid] = before
            if before[1]:
                found.add(name)
        return found

    async def _fits_as_it_is(self, pod: Pod, node: Node) -> bool:
        metadata = pod.metadata
        try:
            live = await self.client.get(PODS, metadata.name, metadata.namespace)
        except NotFound:
            return False
        return fit_of(live).fits(node)

    # ---- writing

    async def _drop(self, key: ObjectKey, job: BroadcastJob, pod: Pod) -> KubeError | None:
        metadata = pod.metadata
        self.expected.expect(key, ScaleAction.DELETE, metadata.name)
        try:
            await self.client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except (NotFound, Conflict):
            self.expected.observe(key, ScaleAction.DELETE, metadata.name)
        except KubeError as error:
            self.expected.observe(key, ScaleAction.DELETE, metadata.name)
            self.record_event(job, "Warning", "FailedDelete", f"Error deleting: {message_of(error)}")
            return error
        else:
            self.record_event(job, "Normal", "SuccessfulDelete", f"Delete pod: {metadata.name}")
        return None

    async def _make(self, key: ObjectKey, job: BroadcastJob, node: str) -> KubeError | None:
        body = new_pod(job, node, by_scheduler=self._by_scheduler)
        name, namespace = body["metadata"]["name"], job.metadata.namespace
        self.expected.expect(key, ScaleAction.CREATE, node)
        try:
            await self.client.create(PODS, body, namespace, decode=decode_pod)
        except KubeError as error:
            if isinstance(error, AlreadyExists) and await self._is_ours(job, name):
                # A response was lost or the cache lags behind.
                if self._caches.pods.get(name, namespace) is not None:
                    self.expected.observe(key, ScaleAction.CREATE, node)
                return None
            self.expected.observe(key, ScaleAction.CREATE, node)
            self.record_event(job, "Warning", "FailedCreate", f"Error creating: {message_of(error)}")
            return error
        self.record_event(job, "Normal", "SuccessfulCreate", f"Created pod: {name}")
        return None

    async def _is_ours(self, job: BroadcastJob, name: str) -> bool:
        try:
            found = await self.client.get(PODS, name, job.metadata.namespace, decode=decode_pod)
        except KubeError:
            return False
        return is_controlled_by(found.metadata, Owner.of(OWNER, job.metadata))

    async def _pause(self, job: BroadcastJob, state: _State, failed: int) -> None:
        """Pause the job by setting spec.paused, so that the user can resume it. [BJ-22]"""
        if await self._note_seen(job, state, failed, {"spec": {"paused": True}}):
            self.record_event(job, "Warning", "Paused", "job is paused, due to failed pod")

    async def _note_seen(
        self, job: BroadcastJob, state: _State, failed: int, more: Mapping[str, Any] = NOTHING
    ) -> bool:
        """Store the number of failed Pods for which the job was already paused. The number is lowered when some of
        these Pods are deleted, so that the next failure counts as new. [BJ-22]"""
        annotations = {names.BROADCAST_JOB_SEEN_FAILURES: str(failed)}
        return await self.write_object(job, state, lambda _: {"metadata": {"annotations": annotations}, **more})

    async def _report(self, job: BroadcastJob, state: _State, step: Step, counts: Counts, started: datetime) -> None:
        wanted = status_after(job, step, counts, started, self.clock.now())

        def difference(present: Any) -> dict[str, Any]:
            if has_ended(present) and job.spec.completion_policy.type != NEVER:
                return {}  # the cache lags behind
            kept = {"startTime": present["startTime"]} if present.get("startTime") else {}
            return {key: value for key, value in (wanted | kept).items() if present.get(key) != value}

        if not await self.write_status(job, state, difference):
            return
        counted = counted_pods(counts)
        if step.next is Next.FAIL:
            # [BJ-11]
            self.record_event(job, "Warning", step.reason, f"{step.message}: {counted}")
        elif step.next is Next.COMPLETE:
            self.record_event(
                job, "Normal", "JobComplete", f"Job {job.metadata.namespace}/{job.name} is completed, {counted}"
            )


def _counts_of(pod: Pod) -> tuple[object, ...]:
    return pod.status.phase, is_active(pod), restarts(pod)


def _same_node(old: Node, new: Node) -> bool:
    """Return whether nothing that affects Pod placement changed on the node."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
    )


NAME: Final = "broadcastjob-controller"
BROADCAST_JOBS: Final = Watched.kind(BROADCAST_JOB, BroadcastJob)
WATCHED: Final = (BROADCAST_JOBS, WATCHED_PODS, NODES)


def broadcastjob_controller(context: ControllerContext) -> Reconciling:
    """Return the BroadcastJob controller."""
    caches = Caches(context.stores(BROADCAST_JOBS), context.stores(WATCHED_PODS), context.stores(NODES))
    reconciler = BroadcastJobReconciler(
        context.client,
        caches,
        context.events,
        by_scheduler=context.flags.boolean("assign-bcj-pods-by-scheduler"),
        expectation_timeout=context.flags.seconds("expectation-timeout"),
    )
    delay = reconciler.coalesce_delay
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, reconciler.keys_for_pod, delay),
            Watch(caches.nodes, reconciler.keys_for_node, delay),
            Watch(caches.jobs, reconciler.keys_for_job),
        ],
    )
