"""Skeleton for reconcilers of jobs: objects that run to completion, are kept for a while and are then deleted.

class MyJobReconciler(JobReconciler[MyJob, JobState]):
    def end_of(self, job): ...                  # when it ended, and how long it is kept
    async def reconcile(self, key, job, state): ...  # plan, carry out, report
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from app.api.model import KubeObject, is_status_change
from app.kube.client import Client, delete_if_present
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ScaleExpectations, is_at_least
from app.kube.objects import ObjectMeta, decode_metadata
from app.kube.resources import ObjectKey, Resource
from app.kube.statuses import KnownStatus, Status, newest_status, write_status
from app.kube.store import Change, Store, key_of
from app.workloads.state import MAX_CONCURRENT_WRITES

#: Seconds between the end of a finished job's time to live and its next reconcile.
AFTER_THE_END: Final = 1.0
#: Seconds between reconciles triggered by Pods or nodes, per COALESCE_OBJECTS objects read. Batching the events of a
#: large job leaves time for other jobs.
COALESCE_SECONDS: Final = 0.05
COALESCE_OBJECTS: Final = 1000
#: Maximum number of warnings to remember per job. Without it, there could be one for each of any number of Pods.
MAX_WARNINGS: Final = 1000


@dataclass(slots=True)
class JobState:
    """State of one job between reconciles; it may be lost at any time."""

    uid: str
    warnings: set[str] = field(default_factory=set)
    #: The status as last written, and the resource version after our last write.
    written: KnownStatus | None = None
    #: Number of objects that a reconcile reads, and when the last reconcile ended; None while one is running.
    objects: int = 0
    ended: float | None = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """End of a job. ``at`` is its completion time, if reported; ``ttl`` is the number of seconds it is kept; None means
    forever."""

    at: datetime | None
    ttl: int | None


J = TypeVar("J", bound=KubeObject)
S = TypeVar("S", bound=JobState)
T = TypeVar("T")


class JobReconciler(ABC, Generic[J, S]):
    """Reconciles all jobs of a kind. A job is not reconciled until the cache reflects our last write."""

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

    # ---- implemented by kinds

    @abstractmethod
    def end_of(self, job: J) -> End | None:
        """Return the end of the job; None while it is running."""

    @abstractmethod
    async def reconcile(self, key: ObjectKey, job: J, state: S) -> Result | None:
        """Make a plan, carry it out, and report. Return when to reconcile again."""

    async def finalize(self, job: J, state: S) -> None:
        """Clean up after a job that is being deleted."""

    async def prepare(self, job: J, state: S) -> bool:  # noqa: ARG002
        """Prepare the job before each reconcile. Return whether it was written, which triggers another reconcile."""
        return False

    # ---- event mappers

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:  # noqa: ARG002
        """Return the delay of a reconcile triggered by a Pod or a node, so that a burst of events causes few
        reconciles."""
        state = self._states.get(key)
        if state is None:
            return 0.0
        now = self.clock.monotonic()
        since = now if state.ended is None else state.ended
        return since + COALESCE_SECONDS * max(1.0, state.objects / COALESCE_OBJECTS) - now

    def keys_for_job(self, change: Change[J]) -> Iterable[ObjectKey]:
        """Return the job's own key, except for status-only changes, which are our own writes."""
        return () if is_status_change(change) else (key_of(change.object),)

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        job = self.jobs.by_key(key)
        if job is None:
            self._forget(key)
            return None
        state = self._states.get(key)
        if state is None or state.uid != job.metadata.uid:
            self._forget(key)
            state = self._states[key] = self._make_state(job.metadata.uid)
        if job.deleting:
            await self.finalize(job, state)
            return None
        state.ended = None
        try:
            return await self._work_on(key, job, state)
        finally:
            state.ended = self.clock.monotonic()

    async def _work_on(self, key: ObjectKey, job: J, state: S) -> Result | None:
        # Use our last write even if the cache does not have it yet.
        job = with_status(job, newest_status(job, state.written).status)
        if (end := self.end_of(job)) is not None:
            return await self._after(job, end)
        if await self.prepare(job, state):
            return None
        if (waiting := self.expected.unsatisfied(key)) is not None:
            if (left := waiting.remaining(self._timeout)) > 0:
                return Result(requeue_after=left)
            self.expected.forget(key)  # timed out
        return await self.reconcile(key, job, state)

    def _forget(self, key: ObjectKey) -> None:
        self._states.pop(key, None)
        self.expected.forget(key)

    async def _after(self, job: J, end: End) -> Result | None:
        """Delete the job after its time to live."""
        if end.ttl is None or end.at is None:
            return None
        left = end.at.timestamp() + max(end.ttl, 0) - self.clock.now().timestamp()
        if left > 0:
            return Result(requeue_after=left)
        with suppress(Conflict):
            await delete_if_present(self.client, self._resource, job.metadata)
        return None

    def again(self, key: ObjectKey, *, kept: int | None = None, left: float | None = None) -> Result | None:
        """Return when to reconcile next if nothing changes until then. ``kept`` is the time to live of a job that just
        ended; ``left`` is the number of seconds until its deadline."""
        waits = [self._timeout] if self.expected.unsatisfied(key) is not None else []
        if kept is not None:
            waits.append(max(kept, 0) + AFTER_THE_END)
        if left is not None:
            waits.append(max(left, 0.001))
        return Result(requeue_after=min(waits)) if waits else None

    # ---- writes

    async def write_status(self, job: J, state: S, difference: Callable[[Status], Status]) -> bool:
        """Apply ``difference`` to the newest known status and write it. Return whether anything was written."""
        known = newest_status(job, state.written)
        written = await write_status(self.client, self._resource, job.metadata, known, difference)
        if written is not None:
            state.written = written
        return written is not None

    async def write_object(self, job: J, state: S, change: Callable[[ObjectMeta], Mapping[str, Any]]) -> bool:
        """Merge-patch the object if its spec has not changed. ``change`` returns the patch for its current labels,
        annotations and finalizers. Return whether it was written."""
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
                return False  # the watch event triggers the next reconcile
        patch = change(known)
        same = {"uid": known.uid, "resourceVersion": known.resource_version}
        body = {**patch, "metadata": {**(patch.get("metadata") or {}), **same}}
        written = await self.client.patch(self._resource, job.name, body, seen.namespace, decode=decode_metadata)
        state.written = KnownStatus(newest_status(job, state.written).status, written.metadata.resource_version)
        return True

    # ---- events

    def record_event(self, job: J, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._events.event(reference(self._resource, job), type_, reason, message)

    def warn_once(self, job: J, state: JobState, reason: str, message: str) -> None:
        if message not in state.warnings:
            if len(state.warnings) >= MAX_WARNINGS:
                state.warnings.clear()
            state.warnings.add(message)
            self.record_event(job, "Warning", reason, message)


def with_status(job: J, status: Status) -> J:
    """Return a copy of the job with another status."""
    present = getattr(job, "status", None)
    if status == (present.to_dict() if present is not None else {}):
        return job
    return type(job).model_validate({**job.to_dict(), "status": status})


async def write_each(given: Sequence[T], write: Callable[[T], Awaitable[KubeError | None]], *, first: int = 1) -> None:
    """Write in batches that double in size; at the concurrency limit, each completed write starts the next. Stops at
    the first error and raises it."""
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
