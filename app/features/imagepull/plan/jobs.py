"""Progress of an ImagePullJob and the nodes that pull next. Pure. [IMG-47 … IMG-52, IMG-57]"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from app.features.imagepull.defaults import PARALLELISM
from app.features.imagepull.objects import NodeImage
from app.features.imagepull.plan.tags import says_otherwise
from app.features.imagepull.types import FAILED, NEVER, SUCCEEDED, ImageListPullJob, ImagePullJob
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.images import FamiliarImage
from app.pods.predicates import owner_key

COMPLETED: Final = "job has completed"
NO_NODES: Final = "job has completed, no node was selected"
DEADLINE_EXCEEDED: Final = "job exceeds activeDeadlineSeconds"
NO_ROOM: Final = "no room for another image"
#: Index of ImagePullJobs by their ImageListPullJob.
BY_LIST: Final = "list"
_MAX_LISTED_NODES: Final = 5_000
#: Maximum number of nodes named in a message.
_MAX_TOLD_NODES: Final = 3


def by_list(job: ImagePullJob) -> Iterable[str]:
    """Index ImagePullJobs for :data:`BY_LIST`."""
    owner = job.metadata.controller
    return (owner_key(owner, job.metadata.namespace),) if owner is not None else ()


class NodeState(StrEnum):
    """State of a job on one node."""

    NOT_SYNCED = "not synced"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """Nodes of a job by state, sorted by name. ``not_synced`` may instead be in pull order."""

    not_synced: Sequence[str] = ()
    active: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    #: Nodes whose NodeImage lacks a pull secret or has an outdated pull policy for the tag. [IMG-101, IMG-116]
    outdated: tuple[str, ...] = ()
    #: Nodes without a NodeImage, with the seconds the job still waits for each. [IMG-109]
    awaited: Mapping[str, float] = field(default_factory=dict)

    @property
    def desired(self) -> int:
        nodes = (self.not_synced, self.active, self.succeeded, self.failed, self.awaited)
        return sum(map(len, nodes))

    @property
    def finished(self) -> int:
        return len(self.succeeded) + len(self.failed)


def state_on(node_image: NodeImage, image: FamiliarImage, uid: str) -> NodeState:
    """Return the job's state on a node. A status counts only if its version matches the spec. [IMG-49, IMG-92]"""
    entry = node_image.spec.images.get(image.name)
    tag = entry.by_tag.get(image.tag) if entry is not None else None
    if entry is None or tag is None or not entry.is_wanted(tag, uid):
        return NodeState.NOT_SYNCED
    statuses = node_image.status.image_statuses.get(image.name)
    status = statuses.by_tag.get(image.tag) if statuses is not None else None
    if status is None or status.version != tag.version:
        return NodeState.ACTIVE
    if status.phase == SUCCEEDED:
        return NodeState.SUCCEEDED
    return NodeState.FAILED if status.phase == FAILED else NodeState.ACTIVE


def progress_of(
    job: ImagePullJob, image: FamiliarImage, node_images: Sequence[NodeImage], secrets: Sequence[Mapping[str, str]]
) -> Progress:
    """Return the job's progress. ``secrets`` are the references that every NodeImage must have."""
    found: dict[NodeState, list[str]] = {state: [] for state in NodeState}
    outdated = []
    wanted = {(one["namespace"], one["name"]) for one in secrets}
    for node_image in node_images:
        name, state = node_image.metadata.name, state_on(node_image, image, job.metadata.uid)
        if state is not NodeState.NOT_SYNCED:
            entry = node_image.spec.images[image.name]
            present = {(one.namespace, one.name) for one in entry.pull_secrets} if wanted else set()
            tag = entry.by_tag.get(image.tag) if state is not NodeState.SUCCEEDED else None
            if not wanted <= present or (tag is not None and says_otherwise(job, tag)):
                # A failed node is retried and then counts as active. [IMG-101]
                if state is NodeState.FAILED:
                    state = NodeState.NOT_SYNCED
                else:
                    outdated.append(name)
        found[state].append(name)
    return Progress(
        tuple(found[NodeState.NOT_SYNCED]),
        tuple(found[NodeState.ACTIVE]),
        tuple(found[NodeState.SUCCEEDED]),
        tuple(found[NodeState.FAILED]),
        tuple(outdated),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Next step of a job that has not completed."""

    status: Mapping[str, Any]
    #: Nodes whose NodeImage gets the tag or the missing secrets now.
    next_nodes: tuple[str, ...] = ()
    #: Nodes that would be next, but whose NodeImage has no room for another image of the job's namespace. [IMG-111]
    without_room: tuple[str, ...] = ()
    #: Seconds until the job's deadline or until it stops waiting for a NodeImage, whichever comes first.
    wait: float | None = None
    ended: bool = False


def step(
    job: ImagePullJob,
    progress: Progress,
    now: datetime,
    start_time: object = None,
    has_room: Callable[[str], bool] = lambda _: True,
) -> Step:
    """Return the next step. [IMG-50 … IMG-52]

    ``start_time`` is the value from the status; ``has_room`` returns whether a node's NodeImage has room for the image.
    """
    completion = job.spec.completion_policy
    never = completion.type == NEVER
    started = parsed_rfc3339(start_time)
    status: dict[str, Any] = {
        "startTime": rfc3339(started if started is not None else now),
        "desired": progress.desired,
        "active": 0,
        "succeeded": len(progress.succeeded),
    }
    deadline = completion.active_deadline_seconds if not never else None
    left = deadline - (now - (started or now)).total_seconds() if deadline is not None else None
    if left is not None and left <= 0 and progress.finished < progress.desired:
        unfinished = {*progress.failed, *progress.active, *progress.not_synced, *progress.awaited}
        # Unique and sorted. [IMG-108]
        status |= _failed(sorted(unfinished)) | {"completionTime": rfc3339(now), "message": DEADLINE_EXCEEDED}
        return Step(status, ended=True)
    status |= _failed(progress.failed)
    status["active"] = len(progress.active)
    if not never and progress.finished == progress.desired:
        # [IMG-51, IMG-103]
        message = COMPLETED if progress.desired else NO_NODES
        return Step(status | {"completionTime": rfc3339(now), "message": message}, ended=True)
    asked, without_room = _next(progress.not_synced, max(0, parallelism(job) - len(progress.active)), has_room)
    status["message"] = running_message(progress)
    if without_room:
        status["message"] += f"; {no_room_message(job, without_room)}"
    next_nodes = tuple(dict.fromkeys((*progress.outdated, *asked)))
    waits = [*progress.awaited.values(), *([left] if left is not None else [])]
    return Step(status, next_nodes, without_room, max(1.0, min(waits)) if waits else None)


def _next(nodes: Sequence[str], slots: int, has_room: Callable[[str], bool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes that pull next, and those skipped before them for lack of room. [IMG-52, IMG-111]"""
    asked: list[str] = []
    without_room: list[str] = []
    for name in nodes:
        if len(asked) == slots:
            break
        (asked if has_room(name) else without_room).append(name)
    return tuple(asked), tuple(without_room)


def no_room_message(job: ImagePullJob, nodes: Sequence[str]) -> str:
    """Return the message that names the nodes whose NodeImage has no room. [IMG-111]"""
    shown = ", ".join(nodes[:_MAX_TOLD_NODES]) + (", …" if len(nodes) > _MAX_TOLD_NODES else "")
    which = "NodeImage has" if len(nodes) == 1 else "NodeImages have"
    return (
        f"{len(nodes)} {which} {NO_ROOM} of namespace {job.metadata.namespace} ({shown}): waiting until"
        " one is removed; delete completed ImagePullJobs or lower their ttlSecondsAfterFinished"
    )


def running_message(progress: Progress) -> str:
    """Return the message of a running job. [IMG-51]"""
    if not progress.desired:
        return "job is running, no progress"
    return f"job is running, progress {100 * progress.finished / progress.desired:.1f}%"


def parallelism(job: ImagePullJob) -> int:
    """Return how many nodes may pull at the same time. An invalid value pauses the job."""
    value = job.spec.parallelism
    if value is None:
        return PARALLELISM
    try:
        return int(value)
    except ValueError:
        return 0


def seconds_kept(job: ImagePullJob | ImageListPullJob, now: datetime) -> float | None:
    """Return the seconds until a completed job expires, or None if it never does. [IMG-47, IMG-71]"""
    ttl = job.spec.completion_policy.ttl_seconds_after_finished
    ended = parsed_rfc3339(job.status.completion_time) if job.status is not None else None
    return ttl - (now - ended).total_seconds() if ttl is not None and ended is not None else None


def is_active(job: ImagePullJob | ImageListPullJob) -> bool:
    """Return whether the job is neither completed nor being deleted. While a list is active, its completed jobs are not
    deleted, because they would be recreated and pull again. [IMG-104]"""
    return not job.deleting and (job.status is None or not job.status.completion_time)


def _failed(nodes: Sequence[str]) -> dict[str, Any]:
    return {"failed": len(nodes), **({"failedNodes": list(nodes[:_MAX_LISTED_NODES])} if nodes else {})}
