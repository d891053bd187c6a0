"""What an EphemeralJob does next (EJ-6 … EJ-17)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from app.api.ephemeraljob import EphemeralJob
from app.api.ephemeraljob.types import ERROR, FAILED, PAUSED, RUNNING, SUCCEEDED, UNKNOWN, WAITING
from app.kube.objects import Pod
from app.kube.selectors import Selector
from app.pods.predicates import FINISHED, is_active
from app.workloads.ephemeraljob.plan.begun import NONE, Record, begun_with

MARK: Final = "KRUISE_EJOB_ID"
"""EJ-7: env of each container that a job put into a Pod: the job's uid."""
TTL_SECONDS: Final = 1800
_BEGIN: Final = datetime.min.replace(tzinfo=UTC)


class State(StrEnum):
    """How far the containers in one Pod are (EJ-10)."""

    ABSENT = "absent"
    UNCOUNTED = "uncounted"
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next, and what the status says then. ``conditions``: type, reason, message; ``record``: the Pods that
    were begun with, then."""

    phase: str
    match: int
    counts: Mapping[State, int]
    inject: Sequence[Pod] = ()
    conditions: Sequence[tuple[str, str, str]] = ()
    ended: bool = False
    record: Record = field(default_factory=dict)


def marked_by(pod: Pod) -> frozenset[str]:
    """The uids of all jobs that the Pod has containers of."""
    return frozenset(env.value for one in pod.spec.ephemeral_containers for env in one.env if env.name == MARK)


def is_marked(pod: Pod, uid: str) -> bool:
    """Whether the Pod has a container of this job."""
    return any((MARK, uid) in ((env.name, env.value) for env in one.env) for one in pod.spec.ephemeral_containers)


def state_of(pod: Pod, uid: str, names: frozenset[str]) -> State:
    """EJ-10."""
    if not is_marked(pod, uid):
        return State.ABSENT
    states = [one.state for one in pod.status.ephemeral_container_statuses if one.name in names]
    if not states:
        return State.FAILED if pod.status.phase in FINISHED else State.UNCOUNTED
    if any(one.terminated is not None and one.terminated.exit_code != 0 for one in states) or any(
        one.waiting is not None and one.waiting.reason == "RunContainerError" for one in states
    ):
        return State.FAILED
    if len(states) == len(names) and all(one.terminated is not None for one in states):
        return State.SUCCEEDED
    if pod.status.phase in FINISHED:
        return State.FAILED  # nothing will end any more in a Pod that has
    if any(one.running is not None for one in states):
        return State.RUNNING
    return State.WAITING if any(one.waiting is not None for one in states) else State.UNCOUNTED


def is_meant(pod: Pod, selector: Selector, uid: str, record: Record) -> bool:
    """EJ-17: whoever has containers of the job stays, and whoever is about to, though it matches no more."""
    return selector.matches(pod.metadata.labels) or pod.metadata.uid in record or uid in marked_by(pod)


def targets(pods: Sequence[Pod], uid: str, names: frozenset[str], record: Record) -> list[Pod]:
    """EJ-6, EJ-17: those that have containers of this job already come first, whatever became of them; then those that
    were about to get them."""
    marked = [pod for pod in pods if is_marked(pod, uid)]
    free = [
        pod
        for pod in pods
        if is_active(pod)
        and not is_marked(pod, uid)
        and not any(one.name in names for one in pod.spec.ephemeral_containers)
    ]
    return [*sorted(marked, key=_age), *sorted(free, key=lambda pod: (pod.metadata.uid not in record, *_age(pod)))]


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.metadata.creation_timestamp or _BEGIN, pod.metadata.name


def next_step(
    job: EphemeralJob,
    pods: Sequence[Pod],
    passed: float,
    record: Record = NONE,
    unseen: Collection[str] = (),
) -> Step:
    """``pods``: those that are meant (:func:`is_meant`); ``passed``: seconds since the job began; ``record``: the Pods
    it began with; ``unseen``: the uids of those that the cache lacks, though they are there."""
    spec, uid = job.spec, job.metadata.uid
    names = frozenset(str(one.get("name")) for one in spec.template.ephemeral_containers)
    if not names:
        return broken()
    chosen, places = targets(pods, uid, names, record), list[State]()
    if spec.replicas is not None:
        places = _left(chosen, record, unseen)[: max(0, spec.replicas)]
        chosen = chosen[: max(0, spec.replicas - len(places))]
    states = [state_of(pod, uid, names) for pod in chosen]
    counts = {state: states.count(state) + places.count(state) for state in State}
    match = len(chosen) + len(places)
    phase, condition = _phase(match, counts)
    conditions = [condition] if condition else []
    place = f"EphemeralJob {job.metadata.namespace}/{job.name}"
    if phase in (SUCCEEDED, FAILED):
        return Step(phase, match, counts, conditions=conditions, ended=True)
    if counts[State.FAILED]:
        conditions.append(("JobFailed", "CreateFailed", f"{place} failed to create ephemeral container"))
    deadline = spec.active_deadline_seconds
    if deadline is not None and passed >= deadline:
        late = ("JobFailed", "DeadlineExceeded", f"{place} was active longer than specified deadline")
        return Step(FAILED, match, counts, conditions=[late], ended=True)
    done = [pod.metadata.uid for pod, state in zip(chosen, states, strict=True) if state is State.SUCCEEDED]
    if spec.paused:
        return Step(PAUSED, match, counts, conditions=conditions, record=begun_with(record, (), done))
    # EJ-9, EJ-15
    busy = sum(counts[state] for state in (State.UNCOUNTED, State.WAITING, State.RUNNING))
    room = max(0, (1 if spec.parallelism is None else spec.parallelism) - busy)
    absent = [pod for pod, state in zip(chosen, states, strict=True) if state is State.ABSENT]
    inject = absent[:room]
    begins = [(pod.metadata.uid, pod.metadata.name) for pod in inject] if spec.replicas is not None else []
    return Step(phase, match, counts, inject, conditions, record=begun_with(record, begins, done))


def _left(chosen: Collection[Pod], record: Record, unseen: Collection[str]) -> list[State]:
    """The places of Pods that were begun with and are gone, or cannot be worked on any more: those that were seen to
    succeed have, the others have failed."""
    there = {pod.metadata.uid for pod in chosen}
    return [
        State.UNCOUNTED if uid in unseen else State.SUCCEEDED if one.succeeded else State.FAILED
        for uid, one in record.items()
        if uid not in there
    ]


def broken() -> Step:
    """EJ-12: of a job that says nothing that can be done."""
    error = ("JobError", "Error", "job spec invalid fields.")
    return Step(ERROR, 0, dict.fromkeys(State, 0), conditions=[error], ended=True)


def _phase(match: int, counts: Mapping[State, int]) -> tuple[str, tuple[str, str, str] | None]:
    """EJ-11, EJ-14."""
    succeeded, failed = counts[State.SUCCEEDED], counts[State.FAILED]
    if match == 0:
        return WAITING, ("MatchedEmpty", "MatchEmpty", "job match no pods")
    if succeeded == match:
        return SUCCEEDED, ("JobSucceeded", "JobSucceeded", "job success to run all tasks")
    if counts[State.RUNNING]:
        return RUNNING, None
    if succeeded + failed == match:
        return FAILED, ("JobFailed", "JobFailed", "job failed to run all tasks")
    return (WAITING if counts[State.WAITING] == match else UNKNOWN), None


def containers_of(job: EphemeralJob) -> list[dict[str, Any]]:
    """EJ-7, EJ-8: what is put into a Pod."""
    mark = {"name": MARK, "value": job.metadata.uid}
    return [
        {**container, "env": [*(container.get("env") or ()), mark]}
        for container in job.spec.template.ephemeral_containers
    ]
