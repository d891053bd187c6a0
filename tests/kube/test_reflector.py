"""The reflector against scripted servers, on virtual time."""

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from random import Random

import orjson
import pytest

from app.kube.client import Client
from app.kube.errors import ConfigError, RequestInfo, TransportError
from app.kube.objects import Pod, decode_pod
from app.kube.reflector import Reflector, ReflectorError, StorageRestored
from app.kube.resources import PODS
from app.kube.store import Change, Store
from app.kube.wire import Response
from tests.kit.virtualtime import VirtualClock
from tests.kube import hostile
from tests.kube.fakes import (
    Connections,
    bookmark,
    event,
    json_response,
    listing,
    obj,
    pieces,
    running,
    status_body,
    until,
    virtual,
)

NO_STREAMING = json_response(422, status_body(422, "Invalid", "sendInitialEvents is forbidden for watch"))
FULL = pieces(event("ADDED", obj("a", 1)), bookmark(2, end_of_list=True))
FULL_AND_OPEN = pieces(event("ADDED", obj("a", 1)), bookmark(2, end_of_list=True), then_hang=True)
REFUSED = TransportError(RequestInfo("GET", "/pods"), "connection refused")
EXPIRED = event("ERROR", status_body(410, "Expired", "too old resource version: 1 (9)"))


def line(type_: str, raw: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + raw + b"}\n"


class Counting:
    def __init__(self) -> None:
        self.lists: list[int] = []
        self.changes = 0
        self.errors: Counter[ReflectorError] = Counter()
        self.aside = 0

    def listed(self, kind: str, objects: int) -> None:
        self.lists.append(objects)

    def events(self, kind: str, count: int) -> None:
        self.changes += count

    def error(self, kind: str, what: ReflectorError) -> None:
        self.errors[what] += 1

    def set_aside(self, kind: str, objects: int) -> None:
        self.aside = objects


class Setup:
    """A reflector on scripted connections."""

    def __init__(self, *, decode=decode_pod, **options) -> None:
        self.streaming = options.get("streaming_list", True)
        self.connections = Connections()
        self.clock = VirtualClock()
        self.store: Store[Pod] = Store(options.pop("indexes", None))
        self.changes: list[Change[Pod]] = []
        self.store.subscribe(self.changes.append)
        self.metrics = Counting()
        client = Client(self.connections, self.clock)
        self.reflector = Reflector(
            client, PODS, self.store, decode=decode, rng=Random(1), metrics=self.metrics, **options
        )

    def streams(self, *streams) -> None:
        self.connections.streams.extend(streams)

    def lists(self, *objects: bytes) -> None:
        """Answer the first list with these objects, as a stream or as a page."""
        if self.streaming:
            self.streams(pieces(*(line("ADDED", raw) for raw in objects), bookmark(6, end_of_list=True)))
        else:
            page = b'{"metadata":{"resourceVersion":"6"},"items":[' + b",".join(objects) + b"]}"
            self.connections.answers.append(Response(200, {}, page))

    def versions(self) -> dict[str, str]:
        return {pod.metadata.name: pod.metadata.resource_version for pod in self.store.list()}

    async def until(self, condition, seconds: float = 600) -> None:
        async with running(self.reflector.run()):
            await until(condition, seconds)

    async def reads(self, **versions: str) -> None:
        """Run until the store is ready and has these objects."""
        await self.until(lambda: self.store.ready and self.versions() == versions)

    def resumed_from(self) -> list[str]:
        return [request.query.get("resourceVersion", "-") for request in self.connections.watches]


@virtual
@pytest.mark.parametrize("size", [1, 50, 100_000], ids="{} bytes at once".format)
async def test_a_streaming_list_fills_the_store_when_its_end_is_marked(size):
    setup = Setup(label_selector="app=a", field_selector="spec.nodeName=n", namespace="shop")
    initial = [event("ADDED", obj("a", 1)), event("ADDED", obj("b", 2)), bookmark(3)]
    initial += [event("MODIFIED", obj("a", 4)), event("DELETED", obj("b", 5)), bookmark(5, end_of_list=True)]
    data = b"".join([*initial, event("ADDED", obj("c", 6)), event("MODIFIED", obj("c", 7))])
    setup.streams(pieces(*(data[at : at + size] for at in range(0, len(data), size)), then_hang=True))
    await setup.reads(a="4", c="7")
    assert [(change.old is None, change.object.metadata.resource_version) for change in setup.changes] == [
        (True, "4"), (True, "6"), (False, "7")]  # fmt: skip
    request = setup.connections.watches[0]
    assert request.path == "/api/v1/namespaces/shop/pods"
    seconds = request.query["timeoutSeconds"]
    assert 300 <= int(seconds) < 600
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": seconds,
        "labelSelector": "app=a",
        "fieldSelector": "spec.nodeName=n",
    }
    assert setup.metrics.lists == [1]
    assert setup.metrics.changes == 2
    assert not setup.connections.requests
    assert setup.connections.open_streams == 0


@virtual
@pytest.mark.parametrize("refusal", [NO_STREAMING, json_response(400, status_body(400, "BadRequest"))])
async def test_a_server_without_streaming_lists_is_listed_in_pages(refusal):
    setup = Setup(page_size=2)
    setup.streams(refusal, pieces(event("DELETED", obj("b", 10)), then_hang=True))
    setup.connections.answers.extend(
        [listing(9, obj("a", 1), obj("b", 2), continue_token="t"), listing(9, obj("c", 3))]
    )
    await setup.reads(a="1", c="3")
    assert setup.resumed_from() == ["-", "9"]
    assert "sendInitialEvents" not in setup.connections.watches[1].query
    assert setup.metrics.lists == [3]
    assert setup.metrics.errors == {}


@virtual
async def test_a_server_that_ignores_streaming_lists_is_detected():
    setup = Setup()
    setup.streams(pieces(event("ADDED", obj("a", 1)), then_hang=True))
    setup.connections.answers.append(listing(9, obj("a", 1), obj("b", 2)))
    await setup.reads(a="1", b="2")
    assert setup.clock.monotonic() < 60


class Thing:
    """A kind that is not a msgspec struct."""

    def __init__(self, raw: bytes) -> None:
        self.metadata = decode_pod(raw).metadata


@virtual
@pytest.mark.parametrize("decode", [decode_pod, Thing])
async def test_a_disconnect_resumes_without_a_relist(decode):
    setup = Setup(decode=decode)

    async def breaks():
        yield event("MODIFIED", obj("a", 3))
        raise TransportError(RequestInfo("GET", "/pods"), "connection reset")

    setup.streams(
        FULL,
        NO_STREAMING,
        *[breaks] * 6,
        pieces(event("ADDED", obj("b", 4)), bookmark(8)),
        pieces(event("DELETED", obj("b", 9)), then_hang=True),
    )
    await setup.until(lambda: len(setup.connections.watches) == 10 and len(setup.store) == 1)
    assert setup.resumed_from() == ["-", "2", "2", *["3"] * 6, "8"]
    assert setup.changes[-1].object.metadata.resource_version == "9"  # the final state of b
    assert setup.versions() == {"a": "3"}
    assert setup.metrics.lists == [1]
    assert setup.metrics.errors == {ReflectorError.WATCH_FAILED: 7}
    assert setup.clock.monotonic() < 5  # a watch that brought events resets the back-off


@virtual
@pytest.mark.parametrize(
    "refusal",
    [
        json_response(410, status_body(410, "Expired")),
        pieces(EXPIRED),
        pieces(event("ERROR", status_body(410, "Gone"))),
        json_response(
            504,
            status_body(504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "m"}]}),
        ),
    ],
    ids=["status", "event", "gone", "restored from a backup"],
)
async def test_an_expired_version_causes_a_relist_that_notices_deletions(refusal):
    setup = Setup()
    setup.streams(
        pieces(event("ADDED", obj("a", 1)), event("ADDED", obj("b", 1)), bookmark(2, end_of_list=True)),
        refusal,
        pieces(
            event("ADDED", obj("a", 1)), event("ADDED", obj("c", 30)), bookmark(40, end_of_list=True), then_hang=True
        ),
    )
    await setup.reads(a="1", c="30")
    assert setup.resumed_from() == ["-", "2", "-"]
    assert [change.object.metadata.name for change in setup.changes if change.new is None] == ["b"]
    assert setup.metrics.errors == {ReflectorError.EXPIRED: 1}


@virtual
@pytest.mark.parametrize(("now", "ends"), [(4, True), (10, False), (11, False)])
async def test_a_process_that_remembers_its_writes_ends_when_versions_go_back(now, ends):
    setup = Setup(ends_when_restored=True)
    setup.streams(
        pieces(bookmark(2, end_of_list=True), event("ADDED", obj("a", 9)), bookmark(10)),
        REFUSED,
        pieces(then_hang=True),  # a server accepts a version that it has not reached, and waits
        REFUSED,
        pieces(bookmark(now, end_of_list=True), event("ADDED", obj("b", 12)), then_hang=True),
    )
    if not ends:
        await setup.reads(b="12")
        return
    message = "Pod: resourceVersion went back from 10 to 4: the API server was restored from a backup"
    with pytest.raises(StorageRestored, match=f"^{message}$"):
        await setup.reflector.run()
    assert setup.versions() == {"a": "9"}


@virtual
async def test_a_server_that_always_expires_is_not_overloaded():
    setup = Setup(streaming_list=False)
    setup.connections.answers.extend([listing(9)] * 100)
    setup.streams(*[pieces(EXPIRED)] * 100)
    async with running(setup.reflector.run()):
        await setup.clock.sleep(60)
    assert len(setup.connections.requests) < 10


@virtual
@pytest.mark.parametrize("what", ["list", "watch"])
async def test_failures_are_retried_with_backoff(what, caplog):
    setup = Setup()

    async def long():
        yield bookmark(1, end_of_list=True)
        await setup.clock.sleep(60)

    setup.streams(*[long] * (what == "watch"), *[REFUSED] * 8)
    times = []
    original = setup.connections.stream

    def timed(request):
        times.append(setup.clock.monotonic())
        return original(request)

    setup.connections.stream = timed  # type: ignore[method-assign,assignment]
    with caplog.at_level(logging.WARNING):
        await setup.until(lambda: len(times) == 9 + (what == "watch"))
    waits = [after - before for before, after in pairwise(times[-9:])]
    for wait, base in zip(waits, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10], strict=True):
        assert base <= wait <= 2 * base
    assert f"Pod: {what} failed: GET /pods: connection refused" in caplog.messages
    assert setup.metrics.errors == {f"{what}_failed": 8}


@virtual
async def test_a_quiet_watch_that_ends_normally_is_resumed_at_once():
    setup = Setup()

    async def quiet():
        await setup.clock.sleep(120)
        yield bookmark(5)
        await setup.clock.sleep(120)

    setup.streams(pieces(bookmark(1, end_of_list=True)), quiet, quiet, quiet)
    await setup.until(lambda: len(setup.connections.watches) == 5, 1000)
    assert setup.resumed_from() == ["-", "1", "5", "5", "5"]
    assert setup.clock.monotonic() < 3 * 240 + 5


@virtual
@pytest.mark.parametrize("dead", [[FULL_AND_OPEN], [FULL, asyncio.Event()]], ids=["after events", "unanswered"])
async def test_a_dead_connection_is_replaced(dead):
    setup = Setup(idle_seconds=90)
    setup.streams(*dead, pieces(event("ADDED", obj("a", 7)), bookmark(7, end_of_list=True), then_hang=True))
    await setup.reads(a="7")
    assert setup.connections.open_streams == 0
    assert setup.resumed_from()[-1] == "-"
    assert 90 < setup.clock.monotonic() < 95
    assert setup.metrics.errors == {ReflectorError.WATCH_FAILED: 1}


@virtual
@pytest.mark.parametrize("junk", [b"<html>\n", b'{"type":"ADDED"}\n', b"\xff\xfe\n", b'{"type":1,"object":{}}\n'])
async def test_an_invalid_stream_is_abandoned_and_resumed_and_relisted_on_repetition(junk):
    setup = Setup()
    setup.streams(
        FULL,
        pieces(event("MODIFIED", obj("a", 3)), junk, event("MODIFIED", obj("a", 99))),
        pieces(junk, event("MODIFIED", obj("a", 99))),
        pieces(event("ADDED", obj("a", 5)), bookmark(7, end_of_list=True), then_hang=True),
    )
    await setup.reads(a="5")
    assert setup.resumed_from() == ["-", "2", "3", "-"]


@virtual
async def test_an_invalid_event_in_a_streaming_list_falls_back_to_pages_on_repetition():
    setup = Setup()
    junk = b'{"type":"ADDED"}' + b"\n"
    full = pieces(event("ADDED", obj("a", 1)), junk, bookmark(2, end_of_list=True))
    setup.streams(full, full)
    setup.connections.answers.append(listing(9, obj("a", 1), obj("b", 2)))
    await setup.reads(a="1", b="2")
    assert setup.metrics.errors == {ReflectorError.LIST_FAILED: 2}


def _pod(**metadata: object) -> bytes:
    return orjson.dumps({"metadata": metadata})


UNREADABLE = {
    "deep where it is read": b'{"metadata":{"name":"bad","namespace":"shop"},"spec":' + hostile.chain(2_000) + b"}",
    "deep before the name": b'{"a":' + hostile.chain(100_000) + b',"metadata":{"name":"bad","namespace":"shop"}}',
    "a number out of range": _pod(name="bad", namespace="shop", generation=77).replace(b"77", b"9" * 5_000),
    "wrong types": _pod(name="bad", namespace="shop", labels=[1], annotations={"a": {}}),
    "no UTF-8": b'{"metadata":{"name":"bad","namespace":"shop","labels":{"a":"\xff\xfe"}}}',
    "no metadata": b'{"spec":{"nodeName":"n"}}',
    "metadata that is a text": b'{"metadata":"x"}',
    "no name": _pod(namespace="shop", resourceVersion="4"),
    "nothing": b"null",
    "a number": b"7",
}  # fmt: skip


@virtual
@pytest.mark.parametrize("bad", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_malformed_object_hides_no_other(bad, streaming):
    setup = Setup(streaming_list=streaming)
    setup.lists(orjson.dumps(obj("a", 1)), bad, orjson.dumps(obj("b", 2)))
    setup.streams(
        pieces(line("MODIFIED", bad), event("MODIFIED", obj("a", 4)) + line("ADDED", bad) + event("ADDED", obj("c", 5)),
               then_hang=True))  # fmt: skip
    await setup.reads(a="4", b="2", c="5")
    assert len(setup.connections.watches) == 1 + streaming  # none was ended
    assert setup.metrics.errors == {ReflectorError.UNREADABLE: 3}
    assert setup.metrics.aside == 1


@virtual
@pytest.mark.parametrize("spec", ["not an object", {"nodeName": "of no index"}])
@pytest.mark.parametrize(
    ("relisted", "then", "left"),
    [
        (["ADDED"], (), "1"),
        (["ADDED", "DELETED"], (), ""),
        ([], (), ""),
        (["ADDED"], ("DELETED", {}), ""),
        (["ADDED"], ("DELETED", {"spec": {}}), ""),
        (["ADDED"], ("MODIFIED", {"spec": {}, "metadata": {"labels": {"other": ""}}}), ""),
        (["ADDED"], ("MODIFIED", {"spec": {}}), "5"),
        (["ADDED"], ("MODIFIED", {"spec": 7}), "1"),
    ],
    ids=["still there", "deleted during the list", "not listed", "deleted", "deleted and readable", "not kept",
         "readable again", "unreadable otherwise"],
)  # fmt: skip
async def test_an_unreadable_object_keeps_its_state_until_it_is_gone_or_readable(spec, relisted, then, left, caplog):
    def by_node(pod: Pod) -> list[str]:
        return {"": []}[pod.spec.node_name]

    setup = Setup(indexes={"node": by_node}, keep=lambda pod: "other" not in pod.metadata.labels)
    bad = {**obj("bad", 2), "spec": spec}
    setup.streams(
        pieces(event("ADDED", obj("bad", 1)), bookmark(1, end_of_list=True)),
        pieces(event("MODIFIED", bad), EXPIRED),
        pieces(
            *(event(type_, bad) for type_ in relisted),
            bookmark(3, end_of_list=True),
            *(event(then[0], obj("bad", 5, **{"spec": spec, **then[1]})) for _ in then[:1]),
            then_hang=True,
        ),
    )
    async with running(setup.reflector.run()):
        await until(lambda: len(setup.connections.watches) == 3)
        await setup.clock.sleep(1)
    assert setup.versions() == ({"bad": left} if left else {})
    assert setup.metrics.aside == (left == "1")
    told = [message for message in caplog.messages if "cannot be read" in message]
    assert len(told) == (2 if then[1:] == ({"spec": 7},) else 1)  # once for each reason
    assert told[0].startswith("Pod shop/bad cannot be read; keeping its last known state: ")


@virtual
@pytest.mark.parametrize("levels", [1_000, 1_100, 9_999, 100_000])
@pytest.mark.parametrize("streaming", [True, False])
async def test_objects_with_deep_managed_fields_are_read(levels, streaming, caplog):
    deep = hostile.deep_managed_fields(levels)
    setup = Setup(streaming_list=streaming)
    setup.lists(deep, orjson.dumps(obj("a", 1)))
    changed = deep.replace(b'"resourceVersion":"5"', b'"resourceVersion":"7"')
    setup.streams(pieces(line("MODIFIED", changed), then_hang=True))
    with caplog.at_level(logging.WARNING):
        await setup.reads(deep="7", a="1")
    assert setup.metrics.errors == {}
    assert not caplog.messages


@virtual
async def test_an_unknown_event_type_is_counted_and_skipped():
    setup = Setup()
    setup.streams(
        pieces(line("NOVEL", b"{}"), event("ADDED", obj("a", 1)), bookmark(2, end_of_list=True)),
        pieces(event("SYNCED", obj("x", 3)), event("MODIFIED", obj("a", 4)), then_hang=True),
    )
    await setup.reads(a="4")
    assert len(setup.connections.watches) == 2
    assert setup.metrics.errors == {ReflectorError.UNKNOWN_EVENT: 2}


@virtual
async def test_a_failing_index_or_handler_hides_no_other_object(caplog):
    def by_node(pod: Pod) -> list[str]:
        if pod.metadata.name == "bad":
            raise LookupError("mine")
        return [pod.spec.node_name]

    setup = Setup(indexes={"node": by_node})

    def handle(change: Change[Pod]) -> None:
        if change.object.metadata.name == "odd":
            raise RuntimeError("handler")

    seen: list[str] = []
    setup.store.subscribe(handle)
    setup.store.subscribe(lambda change: seen.append(change.object.metadata.name))
    setup.streams(
        pieces(*(event("ADDED", obj(name, 1)) for name in ("a", "bad", "odd", "b")), bookmark(2, end_of_list=True)),
        pieces(event("MODIFIED", obj("bad", 3)), event("MODIFIED", obj("odd", 3)), event("ADDED", obj("c", 4)),
               then_hang=True))  # fmt: skip
    await setup.reads(a="1", odd="3", b="1", c="4")
    assert len(setup.connections.watches) == 2
    assert seen == ["a", "odd", "b", "odd", "c"]
    assert [pod.metadata.name for pod in setup.store.by_index("node", "")] == ["a", "odd", "b", "c"]
    assert setup.metrics.errors == {ReflectorError.UNREADABLE: 2}
    assert caplog.messages.count("Pod shop/bad cannot be read; keeping its last known state: LookupError: mine") == 1


@virtual
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_object_that_the_filter_no_longer_keeps_is_removed(streaming):
    setup = Setup(streaming_list=streaming, keep=lambda pod: "kept" in pod.metadata.labels)
    setup.lists(orjson.dumps(obj("a", 1, metadata={"labels": {"kept": ""}})), orjson.dumps(obj("b", 2)))
    setup.streams(pieces(event("MODIFIED", obj("a", 4)), then_hang=True))
    await setup.until(lambda: setup.changes and setup.changes[-1].new is None)
    assert [change.object.metadata.name for change in setup.changes] == ["a", "a"]
    assert setup.changes[-1].object.metadata.labels == {"kept": ""}, "handlers learn what it was"
    assert not setup.versions()


@virtual
async def test_an_internal_error_causes_a_relist(caplog):
    setup = Setup()
    setup.streams(FULL, RuntimeError("a mistake"), pieces(event("ADDED", obj("b", 5)), bookmark(6, end_of_list=True)))
    await setup.reads(b="5")
    assert setup.metrics.errors == {ReflectorError.UNEXPECTED: 1}


@virtual
async def test_a_list_resets_the_backoff_and_an_expired_version_does_not_increase_it():
    setup = Setup()
    setup.streams(FULL, *[REFUSED] * 6, pieces(EXPIRED), FULL)
    async with running(setup.reflector.run()):
        await until(lambda: len(setup.connections.watches) == 8, 600)
        began = setup.clock.monotonic()
        await until(lambda: len(setup.connections.watches) == 10, 600)
    assert setup.clock.monotonic() - began < 1


@virtual
async def test_versions_that_expire_minutes_apart_cause_no_longer_and_longer_waits():
    setup = Setup()

    async def expires():
        yield bookmark(1, end_of_list=True)
        await setup.clock.sleep(120)
        yield EXPIRED

    setup.streams(*[expires] * 9)
    await setup.until(lambda: len(setup.connections.watches) == 10, 1200)
    assert setup.clock.monotonic() < 9 * 120 + 5


@virtual
@pytest.mark.parametrize(("asked", "wait"), [("7", 7), ("3600", 30)])
async def test_retry_after_of_a_watch_is_honored_within_limits(asked, wait):
    setup = Setup()
    busy = json_response(429, status_body(429, "TooManyRequests"), **{"Retry-After": asked})
    setup.streams(busy, FULL_AND_OPEN)
    await setup.reads(a="1")
    assert wait <= setup.clock.monotonic() < wait + 0.5


@virtual
@pytest.mark.parametrize(
    "first",
    [
        pieces(event("ADDED", obj("b", 1))),
        ConfigError("the exec plugin has no ticket"),
        json_response(404, status_body(404, "NotFound")),
    ],
    ids=["interrupted", "no credentials", "not served yet"],
)
async def test_a_list_that_fails_is_repeated_from_its_start(first):
    setup = Setup()
    setup.streams(first, FULL_AND_OPEN)
    await setup.reads(a="1")
    assert setup.metrics.errors == {ReflectorError.LIST_FAILED: 1}


@virtual
async def test_a_list_without_version_is_rejected():
    setup = Setup(streaming_list=False)
    setup.connections.answers.extend([json_response(200, {"items": []}), listing(3, obj("a", 1))])
    await setup.reads(a="1")


@virtual
@pytest.mark.parametrize("before", [[], [FULL]], ids=["at the start", "later"])
async def test_an_uninstalled_resource_is_empty_until_installed(before):
    absent = [True]
    setup = Setup(absent=lambda: absent[0])
    setup.streams(*before, json_response(404, status_body(404, "NotFound")), FULL_AND_OPEN)
    async with running(setup.reflector.run()):
        await setup.store.wait_until_ready()
        await setup.clock.sleep(60)
        assert not setup.versions()
        assert len(setup.connections.watches) == len(before) + 1
        absent[0] = False
        await until(lambda: setup.versions() == {"a": "1"})
    assert setup.resumed_from()[-1] == "-"
