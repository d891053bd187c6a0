"""Plans a BroadcastJob: the nodes its Pods fit on, the Pods to create or delete, and the end of the job. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.types import FAIL_FAST, FAILED, NEVER, PAUSE, PAUSED, RUNNING, BroadcastJob
from app.kube.clock import rfc3339
from app.kube.objects import Node, Pod, Taint
from app.kube.quantities import IntOrPercentError, Quantity, QuantityError, parse, scaled
from app.pods.node_fit import NO_SCHEDULE, Placement, pinned, placement_of
from app.pods.predicates import controller_reference, is_active
from app.pods.revisions import pod_of_template

# Whether a node can run a Pod of a job, as the scheduler would decide if the node were empty. [BJ-5, BJ-6]

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_NOTHING: Final = parse("0")


@dataclass(frozen=True, slots=True)
class Fit:
    """A Pod's requirements for its node, compiled once for any number of nodes. If the requests are invalid,
    ``requests`` is None and no node fits."""

    placement: Placement
    requests: Mapping[str, Quantity] | None

    def fits(self, node: Node) -> bool:
        return not self.obstacle(node)

    def obstacle(self, node: Node) -> str:
        """Return why the node cannot run the Pod, or '' if it can."""
        if self.requests is None:
            return "the template's requests are invalid"
        found = self.placement.eligibility(node)
        if not found.should_run:
            return found.reason
        if node.spec.unschedulable and not any(one.tolerates(_CORDON) for one in self.placement.tolerations):
            return "the node is cordoned"
        return "" if self._has_room(node.status.allocatable) else "the node is too small even when it is empty"

    def _has_room(self, allocatable: Mapping[str, str]) -> bool:
        try:
            if parse(allocatable.get("pods", "0")) < parse("1"):
                return False
            return all(wanted <= parse(allocatable.get(name, "0")) for name, wanted in (self.requests or {}).items())
        except QuantityError:
            return False


def fit_of(template: Mapping[str, Any]) -> Fit:
    """Return the node requirements of a Pod template (JSON, possibly not validated)."""
    spec = template.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    try:
        return Fit(placement_of(spec), _requests(spec))
    except (QuantityError, TypeError, AttributeError):
        return Fit(placement_of(spec), None)


def _requests(spec: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the requests of the Pod: the overhead plus the sum over its containers or the peak during initialization,
    whichever is larger. Requests of zero are omitted; there may be thousands of them."""
    running: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        requests = _of(container)
        if container.get("restartPolicy") == "Always":
            _add(running, requests)
            requests = {}
        _raise_to(peak, _sum(running, requests))
    for container in spec.get("containers") or ():
        _add(running, _of(container))
    _raise_to(peak, running)
    _add(peak, {name: parse(value) for name, value in (spec.get("overhead") or {}).items()})
    return {name: value for name, value in peak.items() if value > _NOTHING}


def _of(container: Mapping[str, Any]) -> dict[str, Quantity]:
    resources = container.get("resources") or {}
    # As in Kubernetes, a missing request defaults to the limit.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse(value) for name, value in asked.items()}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _sum(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> dict[str, Quantity]:
    found = dict(one)
    _add(found, other)
    return found


def _raise_to(peak: dict[str, Quantity], values: Mapping[str, Quantity]) -> None:
    for name, value in values.items():
        if name not in peak or peak[name] < value:
            peak[name] = value


# The Pod of a job on a node. [BJ-1, BJ-13]

OWNER: Final = BROADCAST_JOB.resource()
_LONGEST: Final = 57


def name_of(job: BroadcastJob, node: str) -> str:
    """Return the Pod's name, which is unique per job and node so that no node is served twice even if a response is
    lost."""
    digest = hashlib.sha256(f"{job.metadata.uid}/{node}".encode()).hexdigest()
    return f"{job.name[:_LONGEST]}-{digest[:8]}"


def new_pod(job: BroadcastJob, node: str, *, by_scheduler: bool) -> dict[str, Any]:
    """Return the Pod for a node. ``by_scheduler`` leaves binding to the scheduler; otherwise, the Pod is created with
    its node name set."""
    metadata = job.metadata
    owner = controller_reference(OWNER.api_version, OWNER.kind, metadata.name, metadata.uid)
    body = pod_of_template(
        job.spec.template,
        name_of(job, node),
        metadata.namespace,
        owner,
        generate_name=f"{metadata.name}-",
        labels={names.BROADCAST_JOB_NAME: metadata.name, names.BROADCAST_JOB_CONTROLLER_UID: metadata.uid},
    )
    body["spec"] = pinned(body["spec"], node) if by_scheduler else {**body["spec"], "nodeName": node}
    return body


# Next step of a BroadcastJob, and its status. [BJ-7 … BJ-16]

#: Conditions of jobs that have ended.
_ENDED: Final = ("Complete", "Failed")


class Next(StrEnum):
    """Kind of the next step."""

    #: Only update the counts.
    COUNT = "count"
    #: The job is paused by its user or by its failure policy.
    PAUSE = "pause"
    #: The job has failed; running Pods are deleted first.
    FAIL = "fail"
    #: The job runs: Pods are deleted and created.
    RUN = "run"
    #: The job has succeeded.
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of Pods by outcome. [BJ-9]"""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The next step. ``reason`` and ``message`` describe a failure."""

    next: Next
    counts: Counts
    desired: int
    delete: Sequence[Pod] = ()
    create: Sequence[str] = ()
    reason: str = ""
    message: str = ""
    #: Whether more Pods are running than ``parallelism`` allows.
    crowded: bool = False
    #: Whether ``parallelism`` is invalid.
    unreadable: bool = False
    duplicates: Mapping[str, Sequence[Pod]] = field(default_factory=dict)


def restarts(pod: Pod) -> int:
    """Return how often the Pod's containers have restarted."""
    status = pod.status
    return sum(one.restart_count for one in (*status.init_container_statuses, *status.container_statuses))


def restart_limit(job: BroadcastJob) -> int:
    """Return the restart limit per Pod. Defaults to 0. [BJ-27, BJ-28]"""
    limit = job.spec.failure_policy.restart_limit or job.spec.completion_policy.backoff_limit or 0
    return max(limit, 0)


def seen_failures(job: BroadcastJob) -> int:
    """Return the number of failed Pods the job has already been paused for. [BJ-22]"""
    text = job.metadata.annotations.get(names.BROADCAST_JOB_SEEN_FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def has_failed(pod: Pod, limit: int) -> bool:
    """Return whether the Pod failed or restarted too often. [BJ-9]"""
    if pod.status.phase == "Failed":
        return True
    return is_active(pod) and pod.spec.restart_policy == "OnFailure" and restarts(pod) > limit


def counted(pods: Iterable[Pod], limit: int) -> Counts:
    """Count the Pods. A Pod that is being deleted and has not ended is not counted. [BJ-9]"""
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
    """Return the next step. ``fitting`` holds the known nodes that can run a new Pod or keep their current Pod;
    ``started`` is the start time of the job; ``seen_failures`` is the number of failed Pods for which the job has
    already been paused."""
    spec, limit = job.spec, restart_limit(job)
    counts, never = counted(pods, limit), spec.completion_policy.type == NEVER
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        on_node.setdefault(pod.spec.target_node, []).append(pod)
    # Pods that have ended are kept, and their nodes count as served. [BJ-7, BJ-23]
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
    # A Pod that restarted too often counts as failed and is kept, like a finished one. [BJ-9]
    running = [pod for pod in pods if is_active(pod) and not has_failed(pod, limit)]
    if counts.failed and policy == FAIL_FAST:
        message = "failure policy is FailurePolicyTypeFailFast and failed pod is found"
        return step(Next.FAIL, delete=running, reason="failed pod is found", message=message)
    deadline = spec.completion_policy.active_deadline_seconds
    if not never and deadline is not None and (now - started).total_seconds() >= deadline:
        message = f"Job {job.metadata.namespace}/{job.name} was active longer than specified deadline"
        return step(Next.FAIL, delete=running, reason="DeadlineExceeded", message=message)
    # [BJ-14, BJ-15]
    if not never and desired and not to_run and not unfit and desired <= served:
        return step(Next.COMPLETE)
    try:
        parallel = (
            scaled(spec.parallelism, len(desired), round_up=True) if spec.parallelism is not None else len(desired)
        )
    except IntOrPercentError:
        return step(Next.RUN, delete=unfit, unreadable=True)
    room = max(0, parallel) - counts.active
    return step(Next.RUN, delete=unfit, create=to_run[: max(0, room)], crowded=room < 0)


#: Phase after each step.
_PHASES: Final = {
    Next.COUNT: FAILED,
    Next.PAUSE: PAUSED,
    Next.FAIL: FAILED,
    Next.RUN: RUNNING,
    Next.COMPLETE: "completed",
}


def status_after(job: BroadcastJob, step: Step, counts: Counts, started: datetime, now: datetime) -> dict[str, Any]:
    """Return the status fields after the step, with a condition if the job has ended. [BJ-9, BJ-10]"""
    phase = _PHASES[step.next]
    known = job.status.phase if job.status is not None else None
    if step.next is Next.PAUSE and known not in (None, "", RUNNING, PAUSED):
        phase = known
    status: dict[str, Any] = {
        "startTime": rfc3339(started),
        "active": max(0, counts.active),
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "desired": step.desired,
        "phase": phase,
    }
    at = rfc3339(now)
    if step.next is Next.FAIL:
        status |= {"completionTime": at, "conditions": [_condition("Failed", step.message, at)]}
    elif step.next is Next.COMPLETE:
        message = f"Job completed, {counted_pods(counts)}"
        status |= {"completionTime": at, "conditions": [_condition("Complete", message, at)]}
    return status


def counted_pods(counts: Counts) -> str:
    """Return the counts of Pods that have ended, for messages."""
    return f"{counts.succeeded} pods succeeded, {counts.failed} pods failed"


def _condition(type_: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": "True",
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": type_,
        "message": message,
    }


def has_ended(status: Any) -> bool:
    """Return whether a status (JSON) indicates that the job has ended."""
    conditions = status.get("conditions") or ()
    return any(one.get("type") in _ENDED and one.get("status") == "True" for one in conditions)


def is_finished(job: BroadcastJob) -> bool:
    """Return whether the job has ended. With completion type Never, it continues even after a failure. [BJ-10]"""
    conditions = (job.status.conditions if job.status is not None else None) or ()
    ended = any(one.type in _ENDED and one.status == "True" for one in conditions)
    return ended and job.spec.completion_policy.type != NEVER
