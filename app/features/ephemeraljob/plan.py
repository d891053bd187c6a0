"""Plans an EphemeralJob: the next Pods, the record of started Pods, and the end of the job. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import msgspec
import orjson

from app.features.ephemeraljob.kind import PARALLELISM
from app.features.ephemeraljob.types import ERROR, FAILED, PAUSED, RUNNING, SUCCEEDED, UNKNOWN, WAITING, EphemeralJob
from app.kube.objects import Pod
from app.kube.selectors import Selector
from app.pods.predicates import FINISHED, is_active

# The initial Pods of a job. They count toward ``replicas`` even if they are deleted. If ``replicas`` is set, they are
# recorded in an annotation of the job before a container is added. If it is not set, no Pod can take another Pod's
# place, so no record is needed. [EJ-17]

#: All annotations of an object share 256 KiB. No Pod is added to a record that would exceed these limits.
MAX_BYTES: Final = 128 * 1024
MAX_PODS: Final = 2_000


class Begun(msgspec.Struct, frozen=True):
    """A recorded Pod. ``succeeded`` is set once its containers have been observed to succeed."""

    pod: str
    succeeded: bool = False


#: Recorded Pods by UID, in the order in which they were started.
Record = Mapping[str, Begun]
NONE: Final[Record] = {}
_decoder: Final = msgspec.json.Decoder(dict[str, Begun])


def recorded(text: str) -> Record:
    """Parse a job's annotation. Invalid text yields an empty record."""
    if not text or len(text) > MAX_BYTES:
        return NONE
    try:
        found = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return NONE
    return found if len(found) <= MAX_PODS else NONE


def merged(one: Record, other: Record) -> Record:
    """Merge two records. A Pod that succeeded in either counts as succeeded. The second record is dropped if the result
    would exceed the limit, because users can replace the annotation any number of times."""
    if not other or one is other or one == other or len(one.keys() | other.keys()) > MAX_PODS:
        return one
    found = {**one}
    for uid, begun in other.items():
        known = found.get(uid)
        found[uid] = begun if known is None or begun.succeeded else known
    return found


def begun_with(record: Record, pods: Iterable[Pod], succeeded: Iterable[str]) -> Record:
    """Return the record with these Pods added and those with a UID in ``succeeded`` marked as succeeded. Return the
    same object if nothing changes or the result would exceed the limits."""
    new: dict[str, Begun] = {}
    for pod in pods:
        if (uid := pod.metadata.uid) not in record:
            new[uid] = Begun(pod.metadata.name)
    for uid in succeeded:
        known = new.get(uid) or record.get(uid)
        if known is not None and not known.succeeded:
            new[uid] = Begun(known.pod, succeeded=True)
    if not new:
        return record
    found = {**record, **new}
    return found if len(found) <= MAX_PODS and len(written(found)) <= MAX_BYTES else record


def is_needed(record: Record, saved: Record, begins: Container[str], there: Container[str]) -> bool:
    """Return whether the record must be written before any other object. ``saved`` is the stored record;
    ``begins`` holds the UIDs of Pods about to get their containers; ``there`` holds the UIDs of all existing Pods.
    Containers in an existing Pod serve as its record, so taking over a job requires no writes."""
    if record is saved:
        return False
    return any(
        uid in begins or uid not in there if (known := saved.get(uid)) is None else known.succeeded != one.succeeded
        for uid, one in record.items()
    )


def written(record: Record) -> str:
    """Return the record as an annotation value."""
    body: dict[str, Any] = {
        uid: {"pod": one.pod, "succeeded": True} if one.succeeded else {"pod": one.pod} for uid, one in record.items()
    }
    return orjson.dumps(body).decode()


# Next step of an EphemeralJob. [EJ-6 … EJ-17]

MARK: Final = "KRUISE_EJOB_ID"
"""Environment variable that holds the job's UID in each added container. [EJ-7]"""
_BEGIN: Final = datetime.min.replace(tzinfo=UTC)


class State(StrEnum):
    """Progress of the containers in one Pod. [EJ-10]"""

    ABSENT = "absent"
    UNCOUNTED = "uncounted"
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """The next step and the resulting status. ``conditions`` are tuples of type, reason and message; ``record`` holds
    the Pods started so far."""

    phase: str
    match: int
    counts: Mapping[State, int]
    inject: Sequence[Pod] = ()
    conditions: Sequence[tuple[str, str, str]] = ()
    ended: bool = False
    record: Record = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Facts about a Pod for one job, computed once per resourceVersion and generation."""

    pod: Pod
    state: State
    #: Whether the job's selector matches the Pod.
    selected: bool
    #: Whether the Pod can get the containers: it is active, and none of its containers has the same name.
    free: bool
    age: tuple[datetime, str]


def marked_by(pod: Pod) -> frozenset[str]:
    """Return the UIDs of all jobs that have containers in the Pod."""
    return frozenset(env.value for one in pod.spec.ephemeral_containers for env in one.env if env.name == MARK)


def is_marked(pod: Pod, uid: str) -> bool:
    """Return whether the Pod has a container of this job."""
    return any(env.name == MARK and env.value == uid for one in pod.spec.ephemeral_containers for env in one.env)


def candidate(pod: Pod, selector: Selector, uid: str, names: frozenset[str]) -> Candidate:
    """Evaluate a Pod for the job with this UID and these container names."""
    there = pod.spec.ephemeral_containers
    return Candidate(
        pod,
        state_of(pod, uid, names),
        selector.matches(pod.metadata.labels),
        is_active(pod) and not any(one.name in names for one in there),
        (pod.metadata.creation_timestamp or _BEGIN, pod.metadata.name),
    )


def state_of(pod: Pod, uid: str, names: frozenset[str]) -> State:
    """Return the progress of the job's containers in a Pod. [EJ-10]"""
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
        return State.FAILED  # containers of a Pod that has ended no longer change state
    if any(one.running is not None for one in states):
        return State.RUNNING
    return State.WAITING if any(one.waiting is not None for one in states) else State.UNCOUNTED


def is_meant(one: Candidate, record: Record) -> bool:
    """Return whether the Pod is targeted. Pods that are recorded, or have containers of the job, stay targeted even if
    they no longer match. [EJ-17]"""
    return one.selected or one.state is not State.ABSENT or one.pod.metadata.uid in record


def targets(candidates: Iterable[Candidate], record: Record) -> list[Candidate]:
    """Return the targeted Pods: first those with containers of this job, in any state, then other recorded ones, then
    matching ones, each group oldest first. [EJ-6, EJ-17]"""
    marked, begun, others = list[Candidate](), list[Candidate](), list[Candidate]()
    for one in candidates:
        if one.state is not State.ABSENT:
            marked.append(one)
        elif one.free and one.pod.metadata.uid in record:
            begun.append(one)
        elif one.free and one.selected:
            others.append(one)
    return [one for group in (marked, begun, others) for one in sorted(group, key=attrgetter("age"))]


def next_step(
    job: EphemeralJob,
    candidates: Iterable[Candidate],
    passed: float,
    record: Record = NONE,
    unseen: Collection[str] = (),
) -> Step:
    """Return the next step. ``candidates`` may include Pods that are not targeted; ``passed`` is the number of seconds
    since the start; ``record`` holds the Pods started so far; ``unseen`` holds the UIDs of Pods that exist but are
    missing from the cache."""
    spec = job.spec
    if not container_names(job):
        return broken()
    chosen, places = targets(candidates, record), list[State]()
    if spec.replicas is not None:
        places = _left(chosen, record, unseen)[: max(0, spec.replicas)]
        chosen = chosen[: max(0, spec.replicas - len(places))]
    found = Counter(places)
    found.update(one.state for one in chosen)
    counts = {state: found[state] for state in State}
    match = len(chosen) + len(places)
    phase, condition = _phase(match, counts)
    conditions = [condition] if condition else []
    place = f"EphemeralJob {job.metadata.namespace}/{job.name}"
    ended, deadline = phase in (SUCCEEDED, FAILED), spec.active_deadline_seconds
    if deadline is not None and passed >= deadline and not (ended or spec.paused):
        conditions.append(("JobFailed", "DeadlineExceeded", f"{place} was active longer than specified deadline"))
        return Step(FAILED, match, counts, conditions=conditions, ended=True)
    if counts[State.FAILED]:
        conditions.append(("JobFailed", "CreateFailed", f"{place} failed to create ephemeral container"))  # [EJ-12]
    if ended:
        return Step(phase, match, counts, conditions=conditions, ended=True)
    inject: list[Pod] = []
    if not spec.paused:
        # [EJ-9, EJ-15]
        busy = sum(counts[state] for state in (State.UNCOUNTED, State.WAITING, State.RUNNING))
        room = max(0, (PARALLELISM if spec.parallelism is None else spec.parallelism) - busy)
        inject = [one.pod for one in chosen if one.state is State.ABSENT][:room]
    if spec.replicas is not None:
        # Pods that already have the containers, which OpenKruise may have added, count as initial Pods too.
        marked = [one for one in chosen if one.state is not State.ABSENT]
        done = [one.pod.metadata.uid for one in marked if one.state is State.SUCCEEDED]
        record = begun_with(record, (*(one.pod for one in marked), *inject), done)
    return Step(PAUSED if spec.paused else phase, match, counts, inject, conditions, record=record)


def container_names(job: EphemeralJob) -> frozenset[str]:
    """Return the names of the containers that the job adds."""
    return frozenset(str(one.get("name")) for one in job.spec.template.ephemeral_containers)


def _left(chosen: Iterable[Candidate], record: Record, unseen: Collection[str]) -> list[State]:
    """Return the states of recorded Pods that were not chosen: uncounted if they are only missing from the cache,
    succeeded if that was observed, otherwise failed."""
    there = {one.pod.metadata.uid for one in chosen}
    return [
        State.UNCOUNTED if uid in unseen else State.SUCCEEDED if one.succeeded else State.FAILED
        for uid, one in record.items()
        if uid not in there
    ]


def broken() -> Step:
    """Return the step for a job with invalid fields. [EJ-12]"""
    error = ("JobError", "Error", "job spec invalid fields.")
    return Step(ERROR, 0, dict.fromkeys(State, 0), conditions=[error], ended=True)


def _phase(match: int, counts: Mapping[State, int]) -> tuple[str, tuple[str, str, str] | None]:
    """Return the phase and its condition, if any. The caller adds the conditions of failures. [EJ-11, EJ-14]"""
    succeeded, failed = counts[State.SUCCEEDED], counts[State.FAILED]
    if match == 0:
        return WAITING, ("MatchedEmpty", "MatchEmpty", "job match no pods")
    if succeeded == match:
        return SUCCEEDED, ("JobSucceeded", "JobSucceeded", "job success to run all tasks")
    if counts[State.RUNNING]:
        return RUNNING, None
    if succeeded + failed == match:
        return FAILED, None
    return (WAITING if counts[State.WAITING] == match else UNKNOWN), None


def containers_of(job: EphemeralJob) -> list[dict[str, Any]]:
    """Return the containers to add to a Pod. [EJ-7, EJ-8]"""
    mark = {"name": MARK, "value": job.metadata.uid}
    return [
        {**container, "env": [*(container.get("env") or ()), mark]}
        for container in job.spec.template.ephemeral_containers
    ]
