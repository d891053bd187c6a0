"""Write the status of an object, alone or together with other writers, and of objects that stand for a node."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Generic, TypeVar

from app.kube.client import Client, Decode, get_or_none
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.errors import UNANSWERED, AlreadyExists, Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import Meta, Node, Object, ObjectMeta, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import NODES, ObjectKey, Resource
from app.kube.rulings import Decision, Ruling
from app.kube.store import Store

# Writing the status of a custom resource: of the very object that is meant, not of another that has its name by now.
#
# On ``/status`` of a custom resource an API server goes by the resourceVersion alone: a uid in the body is overwritten
# by that of whatever has the name, and so is no precondition.

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownStatus:
    """A status, and the resourceVersion of the object that has it."""

    status: Status
    version: str


def newest_status(obj: Object, written: KnownStatus | None) -> KnownStatus:
    """The newest status known of an object: what was ``written``, unless the cache shows that or a later one."""
    version = obj.metadata.resource_version or ""
    if written is not None and not is_at_least(version, written.version):
        return written
    status = getattr(obj, "status", None)
    return KnownStatus(status.to_dict() if status is not None else {}, version)


async def write_status(
    client: Client,
    resource: Resource,
    owner: Meta,
    present: KnownStatus,
    difference: Callable[[Status], Status],
) -> KnownStatus | None:
    """Write what ``difference`` makes of the present status, as a merge patch; after a conflict again, on the status as
    it then is.

    Returns what was written; None if nothing differs, or if ``owner`` is gone, whoever may have its name now. Raises
    KubeError; ``Conflict`` after some tries.
    """
    namespace = owner.namespace or ""
    for attempt in range(CONFLICT_ATTEMPTS):
        patch = difference(present.status)
        if not patch:
            return None
        body = {"metadata": {"resourceVersion": present.version}, "status": patch}
        try:
            written = await client.patch(
                resource, owner.name, body, namespace, subresource="status", decode=decode_metadata
            )
        except NotFound:
            return None
        except Conflict:
            if attempt == CONFLICT_ATTEMPTS - 1:
                raise
        else:
            return KnownStatus({**present.status, **patch}, written.metadata.resource_version)
        await client.clock.sleep(conflict_wait(attempt))
        live: dict[str, Any] | None = await get_or_none(client, resource, owner.name, namespace)
        if live is None or live["metadata"]["uid"] != owner.uid:
            return None
        present = KnownStatus(live.get("status") or {}, live["metadata"]["resourceVersion"])
    return None


# One status, many writers: requests that arrive together for one object are decided together and cost one write.
#
# Some objects keep a count in their status that every replica takes from while it answers reviews (a budget of
# disruptions, places in a subset). The answers that many processes give at the same moment must add up, so an answer
# that takes something is given only after the status that says so was written, on the very version it was decided on.
#
#     taken = await statuses.decide(key, take_one)     # take_one(obj) -> Ruling(answer, changed)
#
# A decision is a pure function of the object as it is now, and may be called several times. While a write is under way
# further requests for the object wait, and are then decided together, each on what the one before left.

T = TypeVar("T", bound=Object)
R = TypeVar("R")

#: Seconds for which a write that meets newer objects is tried again, and what has no answer. Well below the time-out of
#: any webhook that waits for it.
DEADLINE: Final = 2.0
#: The first wait after such a try, and the longest, in seconds; each is drawn between nothing and twice itself.
FIRST_WAIT: Final = 0.002
LONGEST_WAIT: Final = 0.01
#: The longest where the API server does not answer: it has enough to do as it is.
LONGEST_UNANSWERED: Final = 0.25
#: Seconds between a write and the next for the same object where others write it too, at first and at most: in it they
#: get their turn, who else would meet a newer object each time they try. It doubles while they are met, and halves.
FIRST_PAUSE: Final = 0.004
LONGEST_PAUSE: Final = 0.032
#: Requests that one write is made for at most.
MAX_TOGETHER: Final = 500
#: Objects whose last written state is kept until the cache shows it.
MAX_REMEMBERED: Final = 1_000


@dataclass(slots=True)
class Counts:
    """How much was asked, and what it cost."""

    requests: int = 0
    writes: int = 0
    conflicts: int = 0
    reads: int = 0


@dataclass(slots=True)
class _Request(Generic[T, R]):
    decision: Decision[T, R]
    answer: asyncio.Future[R]


@dataclass(slots=True)
class _Line(Generic[T]):
    """Those who wait for one object, and the task that serves them."""

    waiting: deque[_Request[T, Any]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class SharedStatus(Generic[T]):
    """The statuses of one kind, as this process and others write them.

    ``cached``: the object as the watch last showed it. ``status_of``: its status as JSON, ``{}`` where it has none.
    ``together``: how many requests one write may serve.
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
        #: How long to leave an object to others after a write, by key.
        self._pauses: dict[ObjectKey, float] = {}
        self.counts = Counts()

    async def decide(self, key: ObjectKey, decision: Decision[T, R]) -> R:
        """The answer to one request. Raises ``KubeError`` where the object could not be read or written in time, and
        whatever the decision raises."""
        self.counts.requests += 1
        line = self._lines.setdefault(key, _Line())
        request: _Request[T, R] = _Request(decision, asyncio.get_running_loop().create_future())
        line.waiting.append(request)
        if line.task is None:
            # A task of its own: that one who asks gives up must not take the others with it.
            line.task = asyncio.create_task(self._serve(key, line), name=f"status of {self._resource.kind} {key}")
        return await request.answer

    def freshest(self, key: ObjectKey) -> T | None:
        """The newer of what the watch showed and what this process wrote last (PUB-81)."""
        cached, written = self._cached(key), self._written.get(key)
        if written is None:
            return cached
        # One that the watch does not show may be gone: nobody is held to what it said last.
        if cached is None or _is_as_new(cached, written):
            del self._written[key]
            return cached
        return written

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._written.pop(key, None)

    # ---- serving

    async def _serve(self, key: ObjectKey, line: _Line[T]) -> None:
        together: list[_Request[T, Any]] = []
        try:
            while line.waiting:
                # Whoever arrives in this turn of the loop is in time.
                await asyncio.sleep(0)
                together = self._next(line, [])
                if self._put_off(key, together):
                    continue
                if pause := self._pauses.get(key):
                    await self._client.clock.sleep(pause)
                    together = self._next(line, together)
                try:
                    await self._settle(key, together)
                except Exception as error:  # noqa: BLE001  # it is raised where it was asked
                    _fail(together, error)
        except BaseException as error:
            # Cancelled with its process: nobody must wait for ever.
            _fail([*together, *line.waiting], error)
            line.waiting.clear()
            raise
        finally:
            line.task = None
            if self._lines.get(key) is line and not line.waiting:
                del self._lines[key]

    def _next(self, line: _Line[T], together: list[_Request[T, Any]]) -> list[_Request[T, Any]]:
        """Those who are served next, with those who were about to be."""
        room = min(len(line.waiting), self._together - len(together))
        together = [*together, *(line.waiting.popleft() for _ in range(room))]
        return [request for request in together if not request.answer.done()]

    def _put_off(self, key: ObjectKey, together: list[_Request[T, Any]]) -> bool:
        """Whether all of them could be told "not now" at once, for which nothing has to be read or written."""
        copy = self.freshest(key)
        if copy is None:
            return not together
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
                    copy, live = await self._read(key), True
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
        """Whether others were met decides how long they are given."""
        pause = self._pauses.pop(key, 0.0)
        pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE) if met else pause / 2
        if pause >= FIRST_PAUSE / 2:
            self._pauses[key] = pause

    async def _write(self, key: ObjectKey, copy: T, patch: Mapping[str, Any]) -> T:
        self.counts.writes += 1
        body = {"metadata": {"resourceVersion": copy.metadata.resource_version}, "status": patch}
        return await self._client.patch(
            self._resource, key.name, body, key.namespace, subresource="status", decode=self._decode
        )

    async def _read(self, key: ObjectKey) -> T | None:
        self.counts.reads += 1
        try:
            return await self._client.get(self._resource, key.name, key.namespace, decode=self._decode)
        except NotFound:
            self.forget(key)
            return None

    def _remember(self, key: ObjectKey, written: T) -> None:
        self._written[key] = written
        self._written.move_to_end(key)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)


def _is_as_new(cached: Object, written: Object) -> bool:
    return is_at_least(cached.metadata.resource_version or "", written.metadata.resource_version or "")


def _decided(
    together: list[_Request[T, Any]], copy: T | None
) -> tuple[T | None, list[tuple[_Request[T, Any], Ruling[T, Any]]]]:
    """The object as all of them leave it, and what each is told. One whose decision fails fails alone."""
    rulings = []
    for request in together:
        if request.answer.done():
            continue
        try:
            ruling = request.decision(copy)
        except Exception as error:  # noqa: BLE001  # it is raised where it was asked
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
    """Make the object of a Node with an empty spec; that it is there already is no failure. Raises ``KubeError``."""
    metadata: dict[str, Any] = {"name": name} | ({"labels": dict(labels)} if labels is not None else {})
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
    try:
        await client.create(resource, body, decode=decode_metadata)
    except AlreadyExists:
        logger.debug("%s %s is there already", resource.kind, name)


async def delete_without_node(client: Client, resource: Resource, metadata: ObjectMeta, nodes: Store[Node]) -> None:
    """Delete the object unless its Node is there. The cache of Nodes may be behind: a Node that it lacks is asked for.
    Raises ``KubeError``."""
    if nodes.get(metadata.name) is None:
        try:
            await client.get(NODES, metadata.name, decode=decode_metadata)
        except NotFound:
            pass
        else:
            return
    try:
        await client.delete(resource, metadata.name, uid=metadata.uid, decode=decode_metadata)
    except (NotFound, Conflict):
        logger.debug("%s %s is gone already", resource.kind, metadata.name)
