"""The plan of an EphemeralJob: which Pods are next, which have begun, and when the job is done. Pure."""

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

from app.features.ephemeraljob.types import ERROR, FAILED, PAUSED, RUNNING, SUCCEEDED, UNKNOWN, WAITING, EphemeralJob
from app.kube.objects import Pod
from app.kube.selectors import Selector
from app.pods.predicates import FINISHED, is_active

# The Pods that a job began with, which keep their place though they vanish (EJ-17). Pure.
#
# Kept in an annotation of the job, written before a container is put into a Pod, and only where ``replicas`` says how
# many Pods it may be: elsewhere nobody takes the place of another.

#: All annotations of an object may have 256 KiB; Pods beyond are worked on without a note.
MAX_BYTES: Final = 128 * 1024


class Begun(msgspec.Struct, frozen=True):
    """One Pod. ``succeeded``: whether its containers were seen to."""

    pod: str
    succeeded: bool = False


#: By the Pods' uids, the first one first.
Record = Mapping[str, Begun]
NONE: Final[Record] = {}
_decoder: Final = msgspec.json.Decoder(dict[str, Begun])


def recorded(text: str) -> Record:
    """What a job's annotation says; nothing, if that is not what was written there."""
    if not text or len(text) > MAX_BYTES:
        return NONE
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return NONE


def merged(one: Record, other: Record) -> Record:
    """Both: what was begun stays begun, and what succeeded has."""
    if not other or one is other or one == other:
        return one
    found = {**one}
    for uid, begun in other.items():
        known = found.get(uid)
        found[uid] = begun if known is None or begun.succeeded else known
    return found


def begun_with(record: Record, pods: Iterable[Pod], succeeded: Iterable[str]) -> Record:
    """The record with these Pods in it, as far as there is room, and those noted (by uid) that succeeded; the very same
    one, if it has all of that."""
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
    return found if len(written(found)) <= MAX_BYTES else record


def is_needed(record: Record, saved: Record, begins: Container[str], there: Container[str]) -> bool:
    """Whether the record has to be written before anything else is done. ``saved``: what of it is written already;
    ``begins``: the uids of the Pods that are put into now; ``there``: of all Pods there are. While a Pod is there its
    containers say as much as a note, so that those of a job that was taken over cost no write."""
    if record is saved:
        return False
    return any(
        uid in begins or uid not in there if (known := saved.get(uid)) is None else known.succeeded != one.succeeded
        for uid, one in record.items()
    )


def written(record: Record) -> str:
    """The annotation's value."""
    body: dict[str, Any] = {
        uid: {"pod": one.pod, "succeeded": True} if one.succeeded else {"pod": one.pod} for uid, one in record.items()
    }
    return orjson.dumps(body).decode()


# What an EphemeralJob does next (EJ-6 … EJ-17).

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """One Pod as the job sees it: worked out once per resourceVersion and generation."""

    pod: Pod
    state: State
    #: The job's selector takes it.
    selected: bool
    #: It may get the containers: it is active, and none of its containers has the name of one.
    free: bool
    age: tuple[datetime, str]


def marked_by(pod: Pod) -> frozenset[str]:
    """The uids of all jobs that the Pod has containers of."""
    return frozenset(env.value for one in pod.spec.ephemeral_containers for env in one.env if env.name == MARK)


def is_marked(pod: Pod, uid: str) -> bool:
    """Whether the Pod has a container of this job."""
    return any(env.name == MARK and env.value == uid for one in pod.spec.ephemeral_containers for env in one.env)


def candidate(pod: Pod, selector: Selector, uid: str, names: frozenset[str]) -> Candidate:
    """``uid``: the job's; ``names``: those of its containers."""
    there = pod.spec.ephemeral_containers
    return Candidate(
        pod,
        state_of(pod, uid, names),
        selector.matches(pod.metadata.labels),
        is_active(pod) and not any(one.name in names for one in there),
        (pod.metadata.creation_timestamp or _BEGIN, pod.metadata.name),
    )


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


def is_meant(one: Candidate, record: Record) -> bool:
    """EJ-17: whoever has containers of the job stays, and whoever is about to, though it matches no more."""
    return one.selected or one.state is not State.ABSENT or one.pod.metadata.uid in record


def targets(candidates: Iterable[Candidate], record: Record) -> list[Candidate]:
    """EJ-6, EJ-17: those that have containers of this job already come first, whatever became of them; then those that
    were about to get them."""
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
    """``candidates``: Pods of the job's namespace, those that are not meant among them; ``passed``: seconds since the
    job began; ``record``: the Pods it began with; ``unseen``: the uids of those that the cache lacks, though they are
    there."""
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
    if phase in (SUCCEEDED, FAILED):
        return Step(phase, match, counts, conditions=conditions, ended=True)
    if counts[State.FAILED]:
        conditions.append(("JobFailed", "CreateFailed", f"{place} failed to create ephemeral container"))
    deadline = spec.active_deadline_seconds
    if deadline is not None and passed >= deadline and not spec.paused:
        late = ("JobFailed", "DeadlineExceeded", f"{place} was active longer than specified deadline")
        return Step(FAILED, match, counts, conditions=[late], ended=True)
    inject: list[Pod] = []
    if not spec.paused:
        # EJ-9, EJ-15
        busy = sum(counts[state] for state in (State.UNCOUNTED, State.WAITING, State.RUNNING))
        room = max(0, (1 if spec.parallelism is None else spec.parallelism) - busy)
        inject = [one.pod for one in chosen if one.state is State.ABSENT][:room]
    if spec.replicas is not None:
        # Who has containers was begun with too, though it was OpenKruise that did.
        marked = [one for one in chosen if one.state is not State.ABSENT]
        done = [one.pod.metadata.uid for one in marked if one.state is State.SUCCEEDED]
        record = begun_with(record, (*(one.pod for one in marked), *inject), done)
    return Step(PAUSED if spec.paused else phase, match, counts, inject, conditions, record=record)


def container_names(job: EphemeralJob) -> frozenset[str]:
    """The names of the containers that the job puts in."""
    return frozenset(str(one.get("name")) for one in job.spec.template.ephemeral_containers)


def _left(chosen: Iterable[Candidate], record: Record, unseen: Collection[str]) -> list[State]:
    """The places of Pods that were begun with and are gone, or cannot be worked on any more: those that were seen to
    succeed have, the others have failed."""
    there = {one.pod.metadata.uid for one in chosen}
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
