"""The controller's reconcile: read caches, put containers into Pods, report (EJ-3 … EJ-17)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from app.api.ephemeraljob import EPHEMERAL_JOB, EphemeralJob
from app.kube.client import Client, PatchType
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder
from app.kube.expectations import ScaleAction
from app.kube.objects import Pod, decode_metadata
from app.kube.resources import PODS, ObjectKey
from app.kube.selectors import SelectorError, compile_selector
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store, key_of
from app.workloads.engine.jobs import End, JobReconciler, JobState, write_each
from app.workloads.ephemeraljob.plan.steps import TTL_SECONDS, State, Step, broken, containers_of, is_marked, next_step

OWNER: Final = EPHEMERAL_JOB.resource()
FINALIZER: Final = "apps.kruise.io/ephemeralcontainers-cleanup"


class EphemeralJobReconciler(JobReconciler[EphemeralJob, JobState]):
    """Works on all EphemeralJobs. ``options`` are the engine's; what is expected is by Pod (EJ-13)."""

    def __init__(
        self, client: Client, jobs: Store[EphemeralJob], pods: Store[Pod], events: EventRecorder, **options: float
    ) -> None:
        super().__init__(client, OWNER, jobs, events, JobState, **options)
        self._pods = pods

    # ---- what changes concern (EJ-13, EJ-16)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """The jobs of its namespace that select it, unless nothing changed that counts."""
        old, new = change.old, change.new
        if old is not None and new is not None and _facts(old) == _facts(new):
            return []
        keys = []
        for job in self.jobs.list(change.object.metadata.namespace):
            if job.status is not None and job.status.completion_time:
                continue
            key = key_of(job)
            if new is None or is_marked(new, job.metadata.uid):
                self.expected.observe(key, ScaleAction.CREATE, change.object.metadata.name)
            try:
                selector = compile_selector(job.spec.selector)
            except SelectorError:
                continue
            if any(one is not None and selector.matches(one.metadata.labels) for one in (old, new)):
                keys.append(key)
        return keys

    # ---- one reconcile

    def end_of(self, job: EphemeralJob) -> End | None:
        """EJ-4."""
        if job.status is None or not job.status.completion_time:
            return None
        return End(parsed_rfc3339(job.status.completion_time), _ttl(job))

    async def let_go(self, job: EphemeralJob) -> None:
        """EJ-3: Kubernetes takes no ephemeral container out of a Pod."""
        if FINALIZER in job.metadata.finalizers:
            await self._finalize(job, [one for one in job.metadata.finalizers if one != FINALIZER])

    async def prepare(self, job: EphemeralJob) -> bool:
        """EJ-3."""
        if FINALIZER in job.metadata.finalizers:
            return False
        await self._finalize(job, [*job.metadata.finalizers, FINALIZER])
        return True

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
            await self.client.patch(OWNER, job.name, patch, metadata.namespace, decode=decode_metadata)
        except NotFound:
            return

    async def go_on(self, key: ObjectKey, job: EphemeralJob, state: JobState) -> Result | None:  # noqa: ARG002
        """One step of the plan (EJ-5)."""
        now = self.clock.now()
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
        # EJ-8, EJ-9
        await write_each(step.inject, partial(self._put, key, job))
        if step.ended:
            return self.again(key, kept=_ttl(job))
        deadline = job.spec.active_deadline_seconds
        return self.again(key, left=deadline - passed if deadline is not None else None)

    # ---- writing

    async def _put(self, key: ObjectKey, job: EphemeralJob, pod: Pod) -> KubeError | None:
        metadata = pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "spec": {"ephemeralContainers": containers_of(job)}}
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
        except (NotFound, Conflict):
            # The Pod is gone, or another has its name.
            self.expected.observe(key, ScaleAction.CREATE, metadata.name)
        except KubeError as error:
            self.expected.observe(key, ScaleAction.CREATE, metadata.name)
            self.tell(job, "Warning", "CreateFailed", message_of(error))
            return error
        return None

    async def _report(self, job: EphemeralJob, step: Step, began: str) -> None:
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
                return {}  # the cache is late
            kept = {"startTime": present["startTime"]} if present.get("startTime") else {}
            merged = _with_conditions(present.get("conditions") or [], conditions, now)
            new = {**wanted, **kept, "conditions": merged}
            return {key: value for key, value in new.items() if present.get(key) != value}

        known = job.status.to_dict() if job.status is not None else {}
        present = KnownStatus(known, job.metadata.resource_version)
        await write_status(self.client, OWNER, job.metadata, present, difference)


def _ttl(job: EphemeralJob) -> int:
    ttl = job.spec.ttl_seconds_after_finished
    return TTL_SECONDS if ttl is None else ttl


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
