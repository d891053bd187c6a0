"""Run decisions within their timeout, and those on large reviews in a separate thread."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

import msgspec
import orjson
from pydantic import ValidationError

from app.admission.requests import too_many_values
from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.kind import KindDefinition, find_kind, find_plural
from app.api.model import ObjectMeta
from app.api.structural import invalid_message, readable
from app.api.webhooks import is_leaving, unreadable
from app.kube.admission import (
    STRANGER,
    Decide,
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Review,
)
from app.kube.fielderrors import Path, forbidden
from app.kube.jsonvalues import MAX_DEPTH, cut, nested_deeper
from app.kube.patches import same

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_time(decision: Awaitable[T], seconds: float) -> T:
    """Return the result of a decision. Raises TimeoutError if it takes longer than ``seconds``.

    A timer is created only if the decision really waits: creating and canceling one takes a tenth of a review's time.
    """
    if not isinstance(decision, CoroutineType):
        async with asyncio.timeout(seconds):
            return await decision
    try:
        waits_for = decision.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    async with asyncio.timeout(seconds):
        return await _resumed(decision, waits_for)


@coroutine
def _resumed(begun: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Resume a coroutine that has started and is waiting."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed on to the coroutine, like a cancellation
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(value)
        except StopIteration as done:
            found: T = done.value
            return found


# Large reviews of our own kinds are decided in a thread, because checking 1.5 MB takes a third of a second and Pod
# reviews must not wait for it. The thread decides one review at a time on its own event loop. Namespaces take turns, so
# that a namespace with many large objects delays every other namespace by at most one review. [MGR-149]

#: Thread switch interval in seconds: the longest time the main loop waits for the GIL. Python's default is five
#: times as long.
SWITCH_SECONDS: Final = 0.001


class LargeReviews:
    """A thread for large reviews, started on demand."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._busy = False
        #: Waiting reviews by client (if unauthenticated) and namespace, in order of their turns.
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()

    async def decide(self, decide: Decide, review: Review, seconds: float) -> Decision:
        """Return the decision. Raises ``TimeoutError`` and the exceptions of ``decide``."""
        return await self.run(review.namespace, seconds, _decided, decide, review)

    async def run(self, namespace: str, seconds: float, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function in the thread and return its result. Raises ``TimeoutError`` and the function's exceptions."""
        if self._thread is None:
            sys.setswitchinterval(SWITCH_SECONDS)
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large reviews")
        async with asyncio.timeout(seconds):
            # An unauthenticated client gets one turn, regardless of the namespaces in its reviews.
            await self._turn(STRANGER.get(), namespace)
            try:
                run = partial(copy_context().run, function, *args)
                return await asyncio.get_running_loop().run_in_executor(self._thread, run)
            finally:
                self._pass_on()

    async def _turn(self, stranger: str, namespace: str) -> None:
        """Wait until the thread is free for this review."""
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(stranger, OrderedDict()).setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # canceled after the turn was granted
            raise

    def _pass_on(self) -> None:
        """Give the next namespace its turn. Canceled waiters are skipped."""
        while self._waiting:
            stranger, namespaces = self._waiting.popitem(last=False)
            namespace, turns = namespaces.popitem(last=False)
            turn = turns.popleft()
            if turns:
                namespaces[namespace] = turns
            if namespaces:
                self._waiting[stranger] = namespaces
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _decided(decide: Decide, review: Review) -> Decision:
    async def decided() -> Decision:
        outcome = decide(review)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    return asyncio.run(decided())


# Prepare reviews of our own kinds: check that they are well-formed and convert them to the stored version. The API
# server checks the types of a new object's fields, but not those of an object stored before our definitions were
# installed, and clients other than the API server may reach the port.

#: etcd's default request limit; a larger object cannot be stored.
MAX_STORED_BYTES: Final = 1_572_864
#: Maximum number of values in a new object. Every process caches the object, and an empty list takes 3 bytes of JSON
#: but 64 bytes of memory.
MAX_STORED_VALUES: Final = 100_000


def prepared(review: Review, body_bytes: int) -> Review | Denied:
    """Return the review without nulls in its objects and without mistyped values in the old object. Return a denial if
    the new object is too large.

    Validation time grows with the object's size, so objects too large to be stored are denied first.
    """
    api_version = f"{review.kind.group}/{review.kind.version}"
    kind = find_kind(api_version, review.kind.kind)
    version = kind.version(api_version) if kind is not None else None
    if version is None:
        named = find_plural(review.resource.group, review.resource.resource)
        if named is None or review.subresource:
            return review
        # Only a forged review names another kind. Handlers rely on the object being readable as the resource's kind.
        return Denied(f"request.kind: is not a version of {named.kind}, the kind of request.resource", code=400)
    # A value takes at least two bytes.
    if body_bytes > 2 * MAX_STORED_VALUES and review.operation in (Operation.CREATE, Operation.UPDATE):
        data = _encoded(review.object)
        if len(data) > MAX_STORED_BYTES:
            message = f"request.object: has {len(data)} bytes; the limit is {MAX_STORED_BYTES}: make it smaller"
            return Denied(message, code=413)
        # A stored object that exceeds this limit can still be changed.
        if too_many_values(data, MAX_STORED_VALUES) and not too_many_values(
            _encoded(review.old_object), MAX_STORED_VALUES
        ):
            return Denied(f"request.object: has more than {MAX_STORED_VALUES} values: make it smaller", code=413)
    changed: dict[str, Any] = {}
    if review.object is not None:
        given = readable(version.schema, review.object, mistyped=False)
        if given is not review.object:
            changed["object"] = given
    if review.old_object is not None:
        try:
            ObjectMeta.model_validate(review.old_object.get("metadata") or {})
        except ValidationError as error:
            return Denied(unreadable(error, "request.oldObject.metadata"), code=400)
        shallow = cut(review.old_object) if nested_deeper(review.old_object) else review.old_object
        stored = readable(version.schema, shallow)
        if stored is not review.old_object:
            changed["old_object"] = stored
    return msgspec.structs.replace(review, **changed) if changed else review


def stored_form(review: Review) -> Review | Denied | None:
    """Return the review in the stored version, or None if it already is in that version or the kind is not ours.

    A conversion note may add fields to the spec that the requested version does not have, so the stored form is
    validated too. It must match its schema, which the API server does not check after a conversion. [MGR-151]
    """
    kind = find_kind(f"{review.kind.group}/{review.kind.version}", review.kind.kind)
    if kind is None or review.subresource or review.kind.version == kind.hub.name:
        return None
    if review.object is not None and (field := nested_deeper(review.object)):
        return None if is_leaving(review) else Denied(f"{field}: nested deeper than {MAX_DEPTH} levels", code=400)
    try:
        new = as_hub(kind, review.object) if review.object is not None else None
        old = as_hub(kind, review.old_object) if review.old_object is not None else None
    except ConversionError as error:
        # It must be possible to correct an object that was stored without validation.
        return Denied(str(error), code=400) if review.operation is Operation.CREATE else None
    if new is not None:
        if message := invalid_message(kind, kind.hub, {key: value for key, value in new.items() if key != "status"}):
            return Denied(message, code=422, reason="Invalid")
        if old is not None and _changes_only_note(review, new, old):
            return Denied(_note_only(kind, review), code=403)
    return msgspec.structs.replace(
        review,
        kind=GroupVersionKind(kind.group, kind.hub.name, kind.kind),
        resource=GroupVersionResource(kind.group, kind.hub.name, kind.plural),
        object=new,
        old_object=readable(kind.hub.schema, old) if old is not None else None,
    )


def _changes_only_note(review: Review, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether the stored spec changes although the requested spec, and therefore the generation, does not."""
    given, before = (obj.get("spec") if obj is not None else None for obj in (review.object, review.old_object))
    return same(given, before) and not same(new.get("spec"), old.get("spec"))


def _note_only(kind: KindDefinition, review: Review) -> str:
    path = Path("metadata").child("annotations").key(names.CONVERSION_DATA)
    detail = (
        f"stores what {review.kind.version} cannot express, so it cannot be changed on its own; "
        f"keep it, or update the object as {kind.resource().api_version}"
    )
    return str(forbidden(path, detail))


def _encoded(obj: Any) -> bytes:
    try:
        return orjson.dumps(obj)
    except (TypeError, ValueError):
        return b""  # nested too deeply; another check denies it and names the field
