"""Job and PodDisruptionBudget controllers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import NotFound
from app.kube.objects import decoder
from app.kube.quantities import scaled
from app.kube.reflector import Reflector
from app.kube.resources import ObjectKey
from app.kube.selectors import compile_selector
from app.kube.store import Change, Store, key_of
from app.sandbox.controllers.objects import JOBS, PODDISRUPTIONBUDGETS, Budget, Job
from app.sandbox.controllers.pods import (
    PodControl,
    is_active,
    is_ready,
    matching_workloads,
    owner_reference,
    patch_status,
    pod_of,
    with_conditions,
)
from app.sandbox.objects import Pod

INDEX: Final = "batch.kubernetes.io/job-completion-index"
_BACK_OFF: Final = 10.0
_LONGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions for a Job. ``create`` holds the completion indexes of the Pods to create (-1 if the Job is not
    indexed)."""

    create: tuple[int, ...] = ()
    delete: tuple[Pod, ...] = ()
    #: "" while the Job runs, then Complete or Failed.
    over: str = ""
    reason: str = ""
    message: str = ""
    again: float = 0.0


def is_over(job: Job) -> bool:
    """Return whether the Job is complete or failed."""
    return any(one.type in ("Complete", "Failed") and one.status == "True" for one in job.status.conditions)


def index_of(pod: Pod) -> int:
    """Return the completion index of a Pod, or -1 if its Job is not indexed."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else -1


def plan(job: Job, pods: Sequence[Pod], now: datetime) -> Plan:
    """Return the next step of an unfinished Job."""
    spec = job.spec
    active = [pod for pod in pods if is_active(pod)]
    failures = [pod for pod in pods if pod.status.phase == "Failed"]
    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    if spec.suspend:
        return Plan(delete=tuple(active))
    if len(failures) + _restarts(active) > spec.backoff_limit:
        text = "Job has reached the specified backoff limit"
        return Plan(delete=tuple(active), over="Failed", reason="BackoffLimitExceeded", message=text)
    remaining = 0.0
    if spec.active_deadline_seconds is not None and job.status.start_time is not None:
        remaining = spec.active_deadline_seconds - (now - job.status.start_time).total_seconds()
        if remaining <= 0:
            text = "Job was active longer than specified deadline"
            return Plan(delete=tuple(active), over="Failed", reason="DeadlineExceeded", message=text)
    indexed = spec.completion_mode == "Indexed"
    done = {index_of(pod) for pod in succeeded} if indexed else set()
    finished = len(done) if indexed else len(succeeded)
    complete = finished >= spec.completions if spec.completions is not None else bool(succeeded) and not active
    if complete:
        text = "Reached expected number of succeeded pods"
        return Plan(delete=tuple(active), over="Complete", reason="CompletionsReached", message=text)
    if spec.completions is None:
        wanted = len(active) if succeeded else spec.parallelism
    else:
        wanted = min(spec.parallelism, spec.completions - finished)
    missing = wanted - len(active)
    if missing < 0:
        return Plan(delete=tuple(active[missing:]), again=remaining)
    if missing and (wait := _wait(failures, now)) > 0:
        return Plan(again=min(wait, remaining) if remaining else wait)
    if not indexed or spec.completions is None:
        return Plan(create=(-1,) * missing, again=remaining)
    taken = done | {index_of(pod) for pod in active}
    free = [number for number in range(spec.completions) if number not in taken]
    return Plan(create=tuple(free[:missing]), again=remaining)


def _restarts(pods: Sequence[Pod]) -> int:
    return sum(status.restart_count for pod in pods for status in pod.status.container_statuses)


def _wait(failures: Sequence[Pod], now: datetime) -> float:
    """Return the seconds until the next Pod may be created. The back-off after failures is 10, 20, 40 … seconds."""
    ends = [
        status.state.terminated.finished_at
        for pod in failures
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at is not None
    ]
    if not ends:
        return 0.0
    back_off = min(_LONGEST, _BACK_OFF * 2.0 ** (len(failures) - 1))
    return back_off - (now - max(ends)).total_seconds()


class Jobs:
    """Controller of Jobs."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        self._client = client
        self.jobs: Store[Job] = Store()
        self._control = PodControl(client, pods, JOBS, rng)
        self._reflector = Reflector(client, JOBS, self.jobs, decode=decoder(Job), rng=rng)
        keys = matching_workloads(self.jobs, JOBS, lambda one: compile_selector(one.spec.selector))
        watches: list[Watch[Any]] = [Watch(self.jobs, to_self), Watch(pods, keys)]
        self.controller = Controller("sandbox-jobs", client.clock, watches, self._reconcile, workers=2)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [self._reflector.run(), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        job = self.jobs.by_key(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            self._control.forget(key)
            return None
        now = self._client.clock.now()
        if is_over(job):
            return await self._expire(job, now)
        if seconds := self._control.waits(key):
            return Result(requeue_after=seconds)
        pods = await self._control.claim(job, compile_selector(job.spec.selector))
        todo = plan(job, pods, now)
        try:
            await self._control.delete(key, todo.delete)
            await self._control.create(key, [self._body(job, index) for index in todo.create])
            await self._report(job, pods, todo, now)
        except NotFound:
            return None
        return Result(requeue_after=todo.again)

    def _body(self, job: Job, index: int) -> dict[str, Any]:
        template = job.spec.template
        owner = owner_reference(JOBS, job.metadata)
        prefix = f"{job.metadata.name}-" if index < 0 else f"{job.metadata.name}-{index}-"
        labels = {INDEX: str(index)} if index >= 0 else {}
        body = pod_of(template.metadata, template.spec, self._control.new_name(prefix), owner, labels)
        if index >= 0:
            body["metadata"]["annotations"] = {**(body["metadata"].get("annotations") or {}), INDEX: str(index)}
        return body

    async def _report(self, job: Job, pods: Sequence[Pod], todo: Plan, now: datetime) -> None:
        active = [pod for pod in pods if is_active(pod) and pod not in todo.delete]
        status: dict[str, Any] = {
            "active": len(active) + len(todo.create),
            "ready": sum(map(is_ready, active)),
            "succeeded": sum(pod.status.phase == "Succeeded" for pod in pods),
            "failed": sum(pod.status.phase == "Failed" for pod in pods),
        }
        if job.status.start_time is None and not job.spec.suspend:
            status["startTime"] = rfc3339(now)
        if todo.over:
            first = "SuccessCriteriaMet" if todo.over == "Complete" else "FailureTarget"
            wanted = [(name, "True", todo.reason, todo.message) for name in (first, todo.over)]
            status["conditions"] = with_conditions(job.status.conditions, wanted, now)
            if todo.over == "Complete":
                status["completionTime"] = rfc3339(now)
        await patch_status(self._client, JOBS, job, status)

    async def _expire(self, job: Job, now: datetime) -> Result | None:
        """Delete a finished Job when its TTL expires."""
        limit = job.spec.ttl_seconds_after_finished
        if limit is None:
            return None
        ended = max((one.last_transition_time or now for one in job.status.conditions), default=now)
        remaining = limit - (now - ended).total_seconds()
        if remaining > 0:
            return Result(requeue_after=remaining)
        metadata = job.metadata
        try:
            await self._client.delete(
                JOBS, metadata.name, metadata.namespace, propagation_policy="Background", uid=metadata.uid
            )
        except NotFound:
            return None
        return None


def status_of(budget: Budget, pods: Sequence[Pod]) -> dict[str, Any]:
    """Compute the status of a budget from its Pods that have not finished."""
    expected = len(pods)
    healthy = sum(is_ready(pod) and is_active(pod) for pod in pods)
    spec = budget.spec
    if spec.max_unavailable is not None:
        desired = max(0, expected - scaled(spec.max_unavailable, expected, True))
    else:
        desired = scaled(spec.min_available if spec.min_available is not None else 1, expected, True)
    allowed = max(0, healthy - desired) if expected else 0
    return {
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "observedGeneration": budget.metadata.generation,
    }


class Budgets:
    """Controller of PodDisruptionBudgets."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        self._client = client
        self._pods = pods
        self.budgets: Store[Budget] = Store()
        self._reflector = Reflector(client, PODDISRUPTIONBUDGETS, self.budgets, decode=decoder(Budget), rng=rng)
        watches: list[Watch[Any]] = [Watch(self.budgets, to_self), Watch(pods, self._keys_for_pod)]
        self.controller = Controller("sandbox-budgets", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """Return the coroutines to run concurrently until canceled."""
        return [self._reflector.run(), self.controller.run()]

    def _keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        return {
            key_of(one): None
            for one in self.budgets.list(change.object.metadata.namespace)
            if any(_selects(one, pod) for pod in pods)
        }

    async def _reconcile(self, key: ObjectKey) -> None:
        budget = self.budgets.by_key(key)
        if budget is None or budget.metadata.deletion_timestamp is not None:
            return
        pods = [
            pod
            for pod in self._pods.list(key.namespace)
            if _selects(budget, pod) and pod.status.phase not in ("Succeeded", "Failed")
        ]
        status = status_of(budget, pods)
        allowed = status["disruptionsAllowed"] > 0
        if (
            all(budget.status.get(field, 0) == value for field, value in status.items())
            and "conditions" in budget.status
        ):
            return
        old = next((one for one in budget.status.get("conditions") or () if one["type"] == "DisruptionAllowed"), None)
        word = "True" if allowed else "False"
        since = old["lastTransitionTime"] if old is not None and old["status"] == word else None
        condition = {
            "type": "DisruptionAllowed",
            "status": word,
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": budget.metadata.generation,
            "lastTransitionTime": since or rfc3339(self._client.clock.now()),
        }
        body = {"metadata": {"uid": budget.metadata.uid}, "status": {**status, "conditions": [condition]}}
        try:
            await self._client.patch(PODDISRUPTIONBUDGETS, key.name, body, key.namespace, subresource="status")
        except NotFound:
            return


def _selects(budget: Budget, pod: Pod) -> bool:
    """Return whether the budget selects the Pod. A missing selector selects no Pods, an empty selector all Pods."""
    return budget.spec.selector is not None and compile_selector(budget.spec.selector).matches(pod.metadata.labels)
