"""What reconcilers of jobs share: what runs to its end, is kept for a while and then deletes itself.

class MyJobReconciler(JobReconciler[MyJob, JobState]):
    def end_of(self, job): ...                  # when it ended, and how long it is kept
    async def go_on(self, key, job, state): ...  # plan, carry out, report
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from app.api.model import KubeObject
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ScaleExpectations, is_at_least
from app.kube.objects import ObjectMeta, decode_metadata
from app.kube.resources import ObjectKey, Resource
from app.kube.statuses import KnownStatus, Status, newest_status, write_status
from app.kube.store import Change, Store, key_of
from app.workloads.state import MAX_CONCURRENT_WRITES

#: Seconds after its time to live in which a job is looked at again that has just ended.
AFTER_THE_END: Final = 1.0
#: Seconds between the end of a reconcile and the next one that only Pods or nodes ask for, per so many of them that it
#: looks at: what comes meanwhile is seen together, and large jobs leave time for others.
COALESCE_SECONDS: Final = 0.05
COALESCE_OBJECTS: Final = 1000


@dataclass(slots=True)
class JobState:
    """What is remembered of one job between reconciles; it may be lost at any time."""

    uid: str
    told: set[str] = field(default_factory=set)
    #: The status as we wrote it, and the version of the object since our last write.
    written: KnownStatus | None = None
    #: How many objects a reconcile looks at, and when the last one ended; None while one is under way.
    objects: int = 0
    ended: float | None = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """That a job has ended. ``at``: when, if it says so; ``ttl``: seconds that it is kept, None: for ever."""

    at: datetime | None
    ttl: int | None


J = TypeVar("J", bound=KubeObject)
S = TypeVar("S", bound=JobState)
T = TypeVar("T")


class JobReconciler(ABC, Generic[J, S]):
    """Works on all jobs of a kind. What it writes is expected of the cache before anything else is decided."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        jobs: Store[J],
        events: EventRecorder,
        make_state: Callable[[str], S],
        *,
        expectation_timeout: float = 300.0,
    ) -> None:
        self.client = client
        self.clock = client.clock
        self.jobs = jobs
        self.expected: ScaleExpectations[ObjectKey] = ScaleExpectations(client.clock)
        self._resource = resource
        self._events = events
        self._make_state = make_state
        self._timeout = expectation_timeout
        self._states: dict[ObjectKey, S] = {}

    # ---- what a job says

    @abstractmethod
    def end_of(self, job: J) -> End | None:
        """Whether it has ended."""

    @abstractmethod
    async def go_on(self, key: ObjectKey, job: J, state: S) -> Result | None:
        """Plan, carry out, report; when to come back."""

    async def let_go(self, job: J, state: S) -> None:
        """The job is being deleted."""

    async def prepare(self, job: J, state: S) -> bool:  # noqa: ARG002
        """What comes before all else; whether the job was written for it, which brings us back."""
        return False

    # ---- what changes concern

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:  # noqa: ARG002
        """How long a reconcile that a Pod or a node asks for is put off: a burst of events costs few reconciles."""
        state = self._states.get(key)
        if state is None:
            return 0.0
        now = self.clock.monotonic()
        since = now if state.ended is None else state.ended
        return since + COALESCE_SECONDS * max(1.0, state.objects / COALESCE_OBJECTS) - now

    def keys_for_job(self, change: Change[J]) -> Iterable[ObjectKey]:
        """Itself, but for a change of its status alone, which is our own."""
        old, new = change.old, change.new
        return () if old is not None and new is not None and new.is_but_for_status(old) else (key_of(change.object),)

    # ---- one reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Bring one job on."""
        job = self.jobs.by_key(key)
        if job is None:
            self._forget(key)
            return None
        state = self._states.get(key)
        if state is None or state.uid != job.metadata.uid:
            self._forget(key)
            state = self._states[key] = self._make_state(job.metadata.uid)
        if job.deleting:
            await self.let_go(job, state)
            return None
        state.ended = None
        try:
            return await self._work_on(key, job, state)
        finally:
            state.ended = self.clock.monotonic()

    async def _work_on(self, key: ObjectKey, job: J, state: S) -> Result | None:
        # What we wrote is so, though the cache does not show it yet.
        job = with_status(job, newest_status(job, state.written).status)
        if (end := self.end_of(job)) is not None:
            return await self._after(job, end)
        if await self.prepare(job, state):
            return None
        if (waiting := self.expected.unsatisfied(key)) is not None:
            if (left := waiting.remaining(self._timeout)) > 0:
                return Result(requeue_after=left)
            self.expected.forget(key)  # the cache has had time enough
        return await self.go_on(key, job, state)

    def _forget(self, key: ObjectKey) -> None:
        self._states.pop(key, None)
        self.expected.forget(key)

    async def _after(self, job: J, end: End) -> Result | None:
        """Delete it once it was kept for long enough."""
        if end.ttl is None or end.at is None:
            return None
        left = end.at.timestamp() + max(end.ttl, 0) - self.clock.now().timestamp()
        if left > 0:
            return Result(requeue_after=left)
        metadata = job.metadata
        try:
            await self.client.delete(
                self._resource, job.name, metadata.namespace, propagation_policy="Background", uid=metadata.uid
            )
        except (NotFound, Conflict):
            return None
        return None

    def again(self, key: ObjectKey, *, kept: int | None = None, left: float | None = None) -> Result | None:
        """When the clock alone changes something. ``kept``: the time to live of a job that has just ended; ``left``:
        seconds until its deadline."""
        waits = [self._timeout] if self.expected.unsatisfied(key) is not None else []
        if kept is not None:
            waits.append(max(kept, 0) + AFTER_THE_END)
        if left is not None:
            waits.append(max(left, 0.001))
        return Result(requeue_after=min(waits)) if waits else None

    # ---- writing the job

    async def write_status(self, job: J, state: S, difference: Callable[[Status], Status]) -> bool:
        """What ``difference`` makes of the newest status there is; whether anything was written."""
        known = newest_status(job, state.written)
        written = await write_status(self.client, self._resource, job.metadata, known, difference)
        if written is not None:
            state.written = written
        return written is not None

    async def write_object(self, job: J, state: S, change: Callable[[ObjectMeta], Mapping[str, Any]]) -> bool:
        """A merge patch of the object, whose spec is still the one that was looked at. ``change``: the patch that goes
        with the object's labels, annotations and finalizers as they are. Whether it was written."""
        seen = job.metadata
        if state.written is None or is_at_least(seen.resource_version, state.written.version):
            known = ObjectMeta(
                uid=seen.uid,
                resource_version=seen.resource_version,
                annotations=seen.annotations,
                finalizers=tuple(seen.finalizers),
            )
        else:
            known = (await self.client.get(self._resource, job.name, seen.namespace, decode=decode_metadata)).metadata
            if (known.uid, known.generation) != (seen.uid, seen.generation):
                return False  # its watch brings us back
        patch = change(known)
        same = {"uid": known.uid, "resourceVersion": known.resource_version}
        body = {**patch, "metadata": {**(patch.get("metadata") or {}), **same}}
        written = await self.client.patch(self._resource, job.name, body, seen.namespace, decode=decode_metadata)
        state.written = KnownStatus(newest_status(job, state.written).status, written.metadata.resource_version)
        return True

    # ---- events

    def record_event(self, job: J, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """An event about the job."""
        self._events.event(reference(self._resource, job), type_, reason, message)

    def tell_once(self, job: J, state: JobState, reason: str, message: str) -> None:
        """A warning, unless it was given before."""
        if message not in state.told:
            state.told.add(message)
            self.record_event(job, "Warning", reason, message)


def with_status(job: J, status: Status) -> J:
    """The same job with another status."""
    return (
        job
        if status == (known.to_dict() if (known := getattr(job, "status", None)) is not None else {})
        else (type(job).model_validate({**job.to_dict(), "status": status}))
    )


async def write_each(given: Sequence[T], write: Callable[[T], Awaitable[KubeError | None]], *, first: int = 1) -> None:
    """So many at once, then twice as many, until one is refused; as soon as that would be too many at once, the next
    with each one that is done. Raises what the first was refused with."""
    start, size = 0, first
    while start < len(given) and size < MAX_CONCURRENT_WRITES:
        batch = given[start : start + size]
        refused = [error for error in await asyncio.gather(*map(write, batch)) if error is not None]
        if refused:
            raise refused[0]
        start, size = start + size, size * 2
    waiting, refused = iter(given[start:]), []

    async def one_by_one() -> None:
        for one in waiting:
            error = await write(one)
            if error is not None:
                refused.append(error)
            if refused:
                return

    await asyncio.gather(*(one_by_one() for _ in range(min(MAX_CONCURRENT_WRITES, len(given) - start))))
    if refused:
        raise refused[0]
