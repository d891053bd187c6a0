"""The controller's reconcile: read caches, put containers into Pods, report (EJ-3 … EJ-17)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.api.ephemeraljob import EPHEMERAL_JOB, EphemeralJob
from app.kube.client import Client, PatchType
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ScaleAction, ScaleExpectations
from app.kube.objects import Pod, decode_metadata
from app.kube.resources import PODS, ObjectKey
from app.kube.selectors import SelectorError, compile_selector
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store, key_of
from app.workloads.ephemeraljob.plan.steps import TTL_SECONDS, State, Step, broken, containers_of, is_marked, next_step

OWNER: Final = EPHEMERAL_JOB.resource()
FINALIZER: Final = "apps.kruise.io/ephemeralcontainers-cleanup"
#: Pods that are written at once, at the most; it begins with one and doubles.
MAX_CONCURRENT_WRITES: Final = 32


class EphemeralJobReconciler:
    """Works on all EphemeralJobs."""

    def __init__(
        self,
        client: Client,
        jobs: Store[EphemeralJob],
        pods: Store[Pod],
        events: EventRecorder,
        *,
        expectation_timeout: float = 300.0,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._jobs = jobs
        self._pods = pods
        self._events = events
        self._timeout = expectation_timeout
        #: EJ-13: by Pod.
        self._expected: ScaleExpectations[ObjectKey] = ScaleExpectations(self._clock)

    # ---- what changes concern (EJ-13, EJ-16)

    def keys_for_job(self, change: Change[EphemeralJob]) -> Iterable[ObjectKey]:
        """Itself, but for a change of its status alone, which is our own."""
        old, new = change.old, change.new
        return () if old is not None and new is not None and new.is_but_for_status(old) else (key_of(change.object),)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """The jobs of its namespace that select it, unless nothing changed that counts."""
        old, new = change.old, change.new
        if old is not None and new is not None and _facts(old) == _facts(new):
            return []
        keys = []
        for job in self._jobs.list(change.object.metadata.namespace):
            if job.status is not None and job.status.completion_time:
                continue
            key = key_of(job)
            if new is None or is_marked(new, job.metadata.uid):
                self._expected.observe(key, ScaleAction.CREATE, change.object.metadata.name)
            try:
                selector = compile_selector(job.spec.selector)
            except SelectorError:
                continue
            if any(one is not None and selector.matches(one.metadata.labels) for one in (old, new)):
                keys.append(key)
        return keys

    # ---- one reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Bring one job on."""
        job = self._jobs.by_key(key)
        if job is None:
            self._expected.forget(key)
            return None
        finalizers = job.metadata.finalizers
        if job.deleting:
            # EJ-3: Kubernetes takes no ephemeral container out of a Pod.
            if FINALIZER in finalizers:
                await self._finalize(job, [one for one in finalizers if one != FINALIZER])
            return None
        if job.status is not None and job.status.completion_time:
            return await self._after_the_end(job)
        if FINALIZER not in finalizers:
            await self._finalize(job, [*finalizers, FINALIZER])
            return None  # the change brings us back
        if (waiting := self._expected.unsatisfied(key)) is not None:
            if (left := waiting.remaining(self._timeout)) > 0:
                return Result(requeue_after=left)
            self._expected.forget(key)
        return await self._go_on(key, job)

    async def _finalize(self, job: EphemeralJob, finalizers: Sequence[str]) -> None:
        metadata = job.metadata
        patch = {
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "finalizers": list(finalizers),
            }
        }
        try:
            await self._client.patch(OWNER, job.name, patch, metadata.namespace, decode=decode_metadata)
        except NotFound:
            return

    async def _after_the_end(self, job: EphemeralJob) -> Result | None:
        """EJ-4."""
        ended = parsed_rfc3339(job.status.completion_time if job.status is not None else None)
        if ended is None:
            return None
        ttl = job.spec.ttl_seconds_after_finished
        ttl = TTL_SECONDS if ttl is None else max(ttl, 0)
        left = ended.timestamp() + ttl - self._clock.now().timestamp()
        if left > 0:
            return Result(requeue_after=left)
        metadata = job.metadata
        try:
            await self._client.delete(
                OWNER, job.name, metadata.namespace, propagation_policy="Background", uid=metadata.uid
            )
        except (NotFound, Conflict):
            return None
        return None

    async def _go_on(self, key: ObjectKey, job: EphemeralJob) -> Result | None:
        now = self._clock.now()
        started = parsed_rfc3339(job.status.start_time) if job.status is not None else None
        began = started if started is not None else now.replace(microsecond=0)
        passed = (now - began).total_seconds()
        try:
            selector = compile_selector(job.spec.selector)
        except SelectorError:
            step = broken()
        else:
            pods = self._pods.list(job.metadata.namespace)
            step = next_step(job, [pod for pod in pods if selector.matches(pod.metadata.labels)], passed)
        await self._report(job, step, rfc3339(began))
        await self._inject(key, job, step.inject)
        waits = [] if self._expected.unsatisfied(key) is None else [self._timeout]
        if step.ended:
            ttl = job.spec.ttl_seconds_after_finished
            waits.append((TTL_SECONDS if ttl is None else max(ttl, 0)) + 1.0)
        elif job.spec.active_deadline_seconds is not None:
            waits.append(max(job.spec.active_deadline_seconds - passed, 0.001))
        return Result(requeue_after=min(waits)) if waits else None

    # ---- writing

    async def _inject(self, key: ObjectKey, job: EphemeralJob, pods: Sequence[Pod]) -> None:
        """EJ-8, EJ-9: one, two, four …, until one is refused."""
        start, size = 0, 1
        while start < len(pods):
            batch = pods[start : start + size]
            failed = [error for error in await asyncio.gather(*(self._put(key, job, pod) for pod in batch)) if error]
            if failed:
                raise failed[0]
            start, size = start + size, min(size * 2, MAX_CONCURRENT_WRITES)

    async def _put(self, key: ObjectKey, job: EphemeralJob, pod: Pod) -> KubeError | None:
        metadata = pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "spec": {"ephemeralContainers": containers_of(job)}}
        self._expected.expect(key, ScaleAction.CREATE, metadata.name)
        try:
            await self._client.patch(
                PODS,
                metadata.name,
                patch,
                metadata.namespace,
                kind=PatchType.STRATEGIC,
                subresource="ephemeralcontainers",
                decode=decode_metadata,
            )
        except (NotFound, Conflict):
            # The Pod is gone, or another has its name.
            self._expected.observe(key, ScaleAction.CREATE, metadata.name)
        except KubeError as error:
            self._expected.observe(key, ScaleAction.CREATE, metadata.name)
            self._events.event(reference(OWNER, job), "Warning", "CreateFailed", message_of(error))
            return error
        return None

    async def _report(self, job: EphemeralJob, step: Step, began: str) -> None:
        now = rfc3339(self._clock.now())
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
                return {}  # the cache is late
            kept = {"startTime": present["startTime"]} if present.get("startTime") else {}
            merged = _with_conditions(present.get("conditions") or [], conditions, now)
            new = {**wanted, **kept, "conditions": merged}
            return {key: value for key, value in new.items() if present.get(key) != value}

        known = job.status.to_dict() if job.status is not None else {}
        present = KnownStatus(known, job.metadata.resource_version)
        await write_status(self._client, OWNER, job.metadata, present, difference)


def _with_conditions(
    present: Sequence[Any], conditions: Iterable[tuple[str, str, str]], now: str
) -> list[dict[str, str]]:
    """EJ-12: those of the types that are new or say something else replaced, the others as they are."""
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
    """What of a Pod decides."""
    metadata, status = pod.metadata, pod.status
    return (
        metadata.labels,
        metadata.deletion_timestamp,
        status.phase in ("Succeeded", "Failed"),
        pod.spec.ephemeral_containers,
        status.ephemeral_container_statuses,
    )
