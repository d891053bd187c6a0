"""Write object statuses, as the only writer or one of several, and create or delete per-node objects."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Generic, TypeAlias, TypeVar

from app.kube.client import Client, Decode, PatchType, get_or_none, retry_conflicts
from app.kube.errors import UNANSWERED, AlreadyExists, Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import Meta, Metadata, Node, Object, ObjectMeta, Pod, decode_metadata
from app.kube.patches import merge_difference, merge_patch
from app.kube.resources import NODES, PODS, ObjectKey, Resource
from app.kube.rulings import Decision, Ruling
from app.kube.store import Store

# Write the status of a custom resource only to the intended object, not to a recreated one of the same name.
#
# For ``/status`` of a custom resource, an API server checks only the resourceVersion: a uid in the body is overwritten
# with that of the current object, and is therefore not a precondition.

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownStatus:
    """A status, and the resourceVersion of its object."""

    status: Status
    version: str


def newest_status(obj: Object, written: KnownStatus | None) -> KnownStatus:
    """Return the newest known status of an object: ``written``, unless the cache has that version or a later one."""
    version = obj.metadata.resource_version or ""
    if written is not None and not is_at_least(version, written.version):
        return written
    status = getattr(obj, "status", None)
    return KnownStatus(status.to_dict() if status is not None else {}, version)


async def patch_pod_status(client: Client, pod: Pod, patch: Mapping[str, Any]) -> Metadata:
    """Send a strategic merge patch of the Pod's status; the patch carries the preconditions. Raises KubeError."""
    return await client.patch(
        PODS,
        pod.metadata.name,
        patch,
        pod.metadata.namespace,
        kind=PatchType.STRATEGIC,
        subresource="status",
        decode=decode_metadata,
    )


async def patch_pod_metadata(client: Client, pod: Pod, metadata: Mapping[str, Any]) -> Metadata | None:
    """Patch the metadata of this Pod. Return None if it is gone or another Pod has its name. Raises KubeError."""
    body = {"metadata": {"uid": pod.metadata.uid, **metadata}}
    try:
        return await client.patch(PODS, pod.metadata.name, body, pod.metadata.namespace, decode=decode_metadata)
    except (NotFound, Conflict):
        return None


async def write_status(
    client: Client,
    resource: Resource,
    owner: Meta,
    present: KnownStatus,
    difference: Callable[[Status], Status],
) -> KnownStatus | None:
    """Patch the status with the changes that ``difference`` returns for the current one. On conflict, read it again and
    retry.

    Returns the written status; None if nothing differs, or if ``owner`` is gone, even if its name is in use again.
    Raises KubeError; ``Conflict`` after several attempts.
    """
    name, namespace = owner.name, owner.namespace or ""

    async def write(attempt: int) -> KnownStatus | None:
        known = present
        if attempt:
            live: dict[str, Any] = await client.get(resource, name, namespace)
            if live["metadata"]["uid"] != owner.uid:
                return None
            known = KnownStatus(live.get("status") or {}, live["metadata"]["resourceVersion"])
        patch = difference(known.status)
        if not patch:
            return None
        body = {"metadata": {"resourceVersion": known.version}, "status": patch}
        written = await client.patch(resource, name, body, namespace, subresource="status", decode=decode_metadata)
        return KnownStatus(merge_patch(known.status, patch), written.metadata.resource_version)

    try:
        return await retry_conflicts(client, write)
    except NotFound:
        return None


# One status, many writers: simultaneous requests for one object are decided together and need only one write.
#
# The status of some objects holds a count, such as the disruptions that a budget allows or the Pods that a subset can
# still take. Reviews in every replica of the manager use up this count, and together they must not use more than there
# is. An answer that uses some of it is therefore returned only after the status was written, and the write fails if the
# object has changed since the decision.
#
#     taken = await statuses.decide(key, take_one)     # take_one(obj) -> Ruling(answer, changed)
#
# A decision is a pure function of the current object, and may be called several times. During a write, new requests for
# the object wait. They are then decided together, each on the result of the previous one.

T = TypeVar("T", bound=Object)
R = TypeVar("R")

#: Seconds for which a conflicting write, or one without a response, is retried. Well below the timeout of any webhook
#: that waits for it.
DEADLINE: Final = 2.0
#: The first and the longest average wait after a failed attempt, in seconds. Each wait is random, between zero and
#: twice the average.
FIRST_WAIT: Final = 0.002
LONGEST_WAIT: Final = 0.01
#: The longest average wait, in seconds, while the API server does not respond. It is long, to avoid overload.
LONGEST_UNANSWERED: Final = 0.25
#: Initial and maximum seconds between writes to an object that other processes also write; without the pause, every
#: write would conflict. The pause doubles after each conflict, and halves after each write without one.
FIRST_PAUSE: Final = 0.004
LONGEST_PAUSE: Final = 0.032
#: Maximum number of requests served by one write.
MAX_TOGETHER: Final = 500
#: Maximum number of objects for which the last written state (until the cache reflects it) and the pause are kept.
MAX_REMEMBERED: Final = 1_000


@dataclass(slots=True)
class Counts:
    """How many writes and conflicts there were."""

    writes: int = 0
    conflicts: int = 0


@dataclass(slots=True)
class _Request(Generic[T, R]):
    decision: Decision[T, R]
    answer: asyncio.Future[R]


@dataclass(slots=True)
class _Line(Generic[T]):
    """Requests waiting for one object, and the task that serves them."""

    waiting: deque[_Request[T, Any]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class SharedStatus(Generic[T]):
    """The statuses of one kind, written by this process and others.

    ``cached`` returns the object in the watch cache. ``status_of`` returns its status as JSON, ``{}`` if there is none.
    ``together`` is the maximum number of requests per write.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        cached: Callable[[ObjectKey], T | None],
        rng: Random,
        *,
        decode: Decode[T],
        status_of: Callable[[T], Mapping[str, Any]],
        together: int = MAX_TOGETHER,
    ) -> None:
        self._client = client
        self._resource = resource
        self._cached = cached
        self._rng = rng
        self._decode = decode
        self._status_of = status_of
        self._together = together
        self._lines: dict[ObjectKey, _Line[T]] = {}
        self._written: OrderedDict[ObjectKey, T] = OrderedDict()
        #: Seconds to wait after a write so that other processes can write, by key of the object.
        self._pauses: dict[ObjectKey, float] = {}
        self.counts = Counts()

    async def decide(self, key: ObjectKey, decision: Decision[T, R]) -> R:
        """Return the answer to one request.

        Raises ``KubeError`` if the object could not be read or written in time, and any error that the decision raises.
        """
        request: _Request[T, R] = _Request(decision, asyncio.get_running_loop().create_future())
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
            # A separate task, so that canceling one caller does not cancel the others.
            line.task = asyncio.create_task(self._serve(key, line), name=f"status of {self._resource.kind} {key}")
        line.waiting.append(request)
        return await request.answer

    def freshest(self, key: ObjectKey) -> T | None:
        """Return the newer of the cached object and the one this process wrote last. [PUB-81]"""
        cached, written = self._cached(key), self._written.get(key)
        if written is None:
            return cached
        # An object that is not in the cache may be gone: its last written state no longer counts.
        if cached is None or _is_as_new(cached, written):
            del self._written[key]
            return cached
        return written

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object that is gone."""
        self._written.pop(key, None)

    # ---- serving

    async def _serve(self, key: ObjectKey, line: _Line[T]) -> None:
        together: list[_Request[T, Any]] = []
        try:
            while line.waiting:
                # Also serve requests that arrive in this iteration of the event loop.
                await asyncio.sleep(0)
                together = self._next(line, [])
                if self._put_off(key, together):
                    continue
                if pause := self._pauses.get(key):
                    await self._client.clock.sleep(pause)
                    together = self._next(line, together)
                try:
                    await self._settle(key, together)
                except Exception as error:  # noqa: BLE001  # raised to the callers
                    _fail(together, error)
        except BaseException as error:
            # Shutdown cancels this task; without a result, its callers would wait forever.
            _fail([*together, *line.waiting], error)
            raise
        finally:
            del self._lines[key]

    def _next(self, line: _Line[T], together: list[_Request[T, Any]]) -> list[_Request[T, Any]]:
        """Return the requests to serve next, including those already taken."""
        room = min(len(line.waiting), self._together - len(together))
        return [*together, *(line.waiting.popleft() for _ in range(room))]

    def _put_off(self, key: ObjectKey, together: list[_Request[T, Any]]) -> bool:
        """Answer the requests if all answers are "not now", which needs no read or write. Return whether they were."""
        copy = self.freshest(key)
        if copy is None:
            return False
        after, rulings = _decided(together, copy)
        if after is not copy or not all(ruling.provisional for _, ruling in rulings):
            return False
        _answer(rulings)
        return True

    async def _settle(self, key: ObjectKey, together: list[_Request[T, Any]]) -> None:
        clock = self._client.clock
        deadline, wait = clock.monotonic() + DEADLINE, FIRST_WAIT
        mine = self._written.get(key)
        copy, live = self.freshest(key), False
        met = mine is not None and copy is not None and not _is_as_new(mine, copy)
        while True:
            try:
                if copy is None and not live:
                    copy = await self._client.get(self._resource, key.name, key.namespace, decode=self._decode)
                    live = True
                after, rulings = _decided(together, copy)
                if copy is None or after is None or after is copy:
                    if live or all(ruling.provisional for _, ruling in rulings):
                        _answer(rulings)
                        return
                    copy = None
                    continue
                patch = merge_difference(self._status_of(copy), self._status_of(after))
                written = await self._write(key, copy, patch)
            except NotFound:
                self.forget(key)
                copy, live = None, True
            except (Conflict, *UNANSWERED) as error:
                self.counts.conflicts += 1
                met = True
                if clock.monotonic() >= deadline:
                    raise
                taken = isinstance(error, Conflict)
                await clock.sleep(wait * 2 * self._rng.random())
                wait = min(wait * 2, LONGEST_WAIT if taken else LONGEST_UNANSWERED)
                copy, live = None, False
            else:
                self._remember(key, written)
                self._pace(key, met)
                _answer(rulings)
                return

    def _pace(self, key: ObjectKey, met: bool) -> None:
        """Adjust the pause after a write: longer if another process wrote meanwhile, shorter otherwise."""
        pause = self._pauses.pop(key, 0.0)
        pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE) if met else pause / 2
        if pause >= FIRST_PAUSE / 2:
            self._pauses[key] = pause
            if len(self._pauses) > MAX_REMEMBERED:
                del self._pauses[next(iter(self._pauses))]  # the oldest, perhaps of a deleted object

    async def _write(self, key: ObjectKey, copy: T, patch: Mapping[str, Any]) -> T:
        self.counts.writes += 1
        body = {"metadata": {"resourceVersion": copy.metadata.resource_version}, "status": patch}
        return await self._client.patch(
            self._resource, key.name, body, key.namespace, subresource="status", decode=self._decode
        )

    def _remember(self, key: ObjectKey, written: T) -> None:
        self._written[key] = written
        self._written.move_to_end(key)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)


class LocalStatuses(Generic[T]):
    """Statuses in standalone mode: read from files, changed in memory only."""

    def __init__(self, objects: Store[T]) -> None:
        self._objects = objects
        self._changed: dict[ObjectKey, tuple[T, T]] = {}

    async def decide(self, key: ObjectKey, decision: Decision[T, R]) -> R:
        """Apply a decision and return its answer. Changes stay in this process."""
        found = self._objects.by_key(key)
        ruling = decision(self.freshest(key))
        if ruling.changed is not None and found is not None:
            self._changed[key] = (found, ruling.changed)
        return ruling.answer

    def freshest(self, key: ObjectKey) -> T | None:
        """Return the changed copy, unless the file has changed since."""
        found = self._objects.by_key(key)
        origin, changed = self._changed.get(key, (None, None))
        return changed if origin is found and changed is not None else found


Statuses: TypeAlias = SharedStatus[T] | LocalStatuses[T]


def _is_as_new(cached: Object, written: Object) -> bool:
    return is_at_least(cached.metadata.resource_version or "", written.metadata.resource_version or "")


def _decided(
    together: list[_Request[T, Any]], copy: T | None
) -> tuple[T | None, list[tuple[_Request[T, Any], Ruling[T, Any]]]]:
    """Return the object after all decisions, and the ruling for each request. A failed decision does not affect the
    others."""
    rulings = []
    for request in together:
        if request.answer.done():
            continue
        try:
            ruling = request.decision(copy)
        except Exception as error:  # noqa: BLE001  # raised to the callers
            _fail([request], error)
            continue
        if ruling.changed is not None:
            copy = ruling.changed
        rulings.append((request, ruling))
    return copy, rulings


def _answer(rulings: list[tuple[_Request[T, Any], Ruling[T, Any]]]) -> None:
    for request, ruling in rulings:
        if not request.answer.done():
            request.answer.set_result(ruling.answer)


def _fail(together: list[_Request[T, Any]], error: BaseException) -> None:
    for request in together:
        if request.answer.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            request.answer.cancel()
        else:
            request.answer.set_exception(error)


logger: Final = logging.getLogger(__name__)


async def create_for_node(
    client: Client, resource: Resource, name: str, labels: Mapping[str, str] | None = None
) -> None:
    """Create the object for a Node, with an empty spec, unless it exists. Raises ``KubeError``."""
    metadata: dict[str, Any] = {"name": name} | ({"labels": dict(labels)} if labels is not None else {})
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
    try:
        await client.create(resource, body, decode=decode_metadata)
    except AlreadyExists:
        logger.debug("%s %s already exists", resource.kind, name)


async def delete_without_node(client: Client, resource: Resource, metadata: ObjectMeta, nodes: Store[Node]) -> None:
    """Delete the object unless its Node exists. The Node cache may be stale, so a Node that it lacks is first
    read from the API server.

    Raises ``KubeError``.
    """
    name = metadata.name
    if nodes.get(name) is None and await get_or_none(client, NODES, name, decode=decode_metadata) is not None:
        return
    try:
        await client.delete(resource, metadata.name, uid=metadata.uid, decode=decode_metadata)
    except (NotFound, Conflict):
        logger.debug("%s %s is already gone", resource.kind, metadata.name)
