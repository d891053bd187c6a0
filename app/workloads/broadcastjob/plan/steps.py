"""What a BroadcastJob does next (BJ-7 … BJ-16)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.api import names
from app.api.broadcastjob.types import FAIL_FAST, FAILED, NEVER, PAUSE, PAUSED, BroadcastJob
from app.kube.intorpercent import IntOrPercentError, scaled
from app.kube.objects import Pod
from app.pods.predicates import is_active


class Next(StrEnum):
    """What comes next."""

    #: Only the counts are written.
    COUNT = "count"
    #: The job is paused: by its user, or by its failure policy.
    PAUSE = "pause"
    #: It has failed: Pods that run are deleted first.
    FAIL = "fail"
    #: Pods are deleted and created.
    GO_ON = "go on"
    #: It has ended well.
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Counts:
    """BJ-9."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next. ``reason`` and ``message``: of a failure."""

    next: Next
    counts: Counts
    desired: int
    delete: Sequence[Pod] = ()
    create: Sequence[str] = ()
    reason: str = ""
    message: str = ""
    #: More Pods run than parallelism allows.
    crowded: bool = False
    #: parallelism says no number.
    unreadable: bool = False
    duplicates: Mapping[str, Sequence[Pod]] = field(default_factory=dict)


def restarts(pod: Pod) -> int:
    """How often its containers were restarted."""
    status = pod.status
    return sum(one.restart_count for one in (*status.init_container_statuses, *status.container_statuses))


def restart_limit(job: BroadcastJob) -> int:
    """BJ-27, BJ-28: per Pod; none is 0."""
    limit = job.spec.failure_policy.restart_limit or job.spec.completion_policy.backoff_limit or 0
    return max(limit, 0)


def seen_failures(job: BroadcastJob) -> int:
    """BJ-22: for how many failed Pods it was paused already."""
    text = job.metadata.annotations.get(names.BROADCAST_JOB_SEEN_FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def has_failed(pod: Pod, limit: int) -> bool:
    """BJ-9: it has ended so, or was restarted too often."""
    if pod.status.phase == "Failed":
        return True
    return is_active(pod) and pod.spec.restart_policy == "OnFailure" and restarts(pod) > limit


def counted(pods: Iterable[Pod], limit: int) -> Counts:
    """BJ-9: a Pod that is being deleted and has not ended counts nowhere."""
    active = succeeded = failed = 0
    for pod in pods:
        if pod.status.phase == "Succeeded":
            succeeded += 1
        elif has_failed(pod, limit):
            failed += 1
        elif is_active(pod):
            active += 1
    return Counts(active, succeeded, failed)


def next_step(
    job: BroadcastJob,
    fitting: Collection[str],
    known: Collection[str],
    pods: Sequence[Pod],
    now: datetime,
    started: datetime,
    seen_failures: int,
) -> Step:
    """``fitting``: the nodes that take a Pod, or may keep the one they have, of those that are ``known``;
    ``started``: when the job was; ``seen_failures``: failed Pods for which it was paused already."""
    spec, limit = job.spec, restart_limit(job)
    counts, never = counted(pods, limit), spec.completion_policy.type == NEVER
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        on_node.setdefault(pod.spec.target_node, []).append(pod)
    # BJ-7, BJ-23: what has ended stays, and its node counts as served.
    unfit = [pod for name in sorted(known) if name not in fitting for pod in on_node.get(name, ()) if is_active(pod)]
    served = {name for name in known if any(not is_active(pod) for pod in on_node.get(name, ()))}
    desired = served | set(fitting)
    to_run = sorted(name for name in fitting if name not in on_node)
    duplicates = {name: found for name, found in on_node.items() if name in known and len(found) > 1}

    def step(next_: Next, **more: object) -> Step:
        return Step(next_, counts, len(desired), duplicates=duplicates, **more)  # type: ignore[arg-type]

    if job.status is not None and job.status.phase == FAILED:
        return step(Next.COUNT)
    if spec.paused:
        return step(Next.PAUSE)
    policy = spec.failure_policy.type or FAIL_FAST
    if counts.failed > seen_failures and policy == PAUSE:
        return step(Next.PAUSE, reason="Paused")
    running = [pod for pod in pods if is_active(pod)]
    if counts.failed and policy == FAIL_FAST:
        message = "failure policy is FailurePolicyTypeFailFast and failed pod is found"
        return step(Next.FAIL, delete=running, reason="failed pod is found", message=message)
    deadline = spec.completion_policy.active_deadline_seconds
    if not never and deadline is not None and (now - started).total_seconds() >= deadline:
        message = f"Job {job.metadata.namespace}/{job.name} was active longer than specified deadline"
        return step(Next.FAIL, delete=running, reason="DeadlineExceeded", message=message)
    # BJ-14, BJ-15
    if not never and desired and not to_run and not unfit and desired <= served:
        return step(Next.COMPLETE)
    try:
        parallel = (
            scaled(spec.parallelism, len(desired), round_up=True) if spec.parallelism is not None else len(desired)
        )
    except IntOrPercentError:
        return step(Next.GO_ON, delete=unfit, unreadable=True)
    room = max(0, parallel) - counts.active
    return step(Next.GO_ON, delete=unfit, create=to_run[: max(0, room)], crowded=room < 0)


def phase_of(step: Step) -> str:
    """What the status says after it."""
    return {
        Next.COUNT: FAILED,
        Next.PAUSE: PAUSED,
        Next.FAIL: FAILED,
        Next.GO_ON: "running",
        Next.COMPLETE: "completed",
    }[step.next]


def is_finished(job: BroadcastJob) -> bool:
    """BJ-10: what is Never over goes on though it failed."""
    conditions = (job.status.conditions if job.status is not None else None) or ()
    ended = any(one.type in ("Complete", "Failed") and one.status == "True" for one in conditions)
    return ended and job.spec.completion_policy.type != NEVER
