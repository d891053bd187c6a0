"""Events: aggregation, counts, limits and errors while recording."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from app.kube import events
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import RequestInfo, TransportError
from app.kube.events import MAX_MESSAGE, QUEUE_SIZE, EventCorrelator, EventRecorder, Occurrence, reference
from app.kube.objects import ObjectMeta, ObjectReference, Pod
from app.kube.resources import NODES, PODS
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, json_response, running, status_body, until, virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod_reference(name: str = "web-0", **fields: str) -> ObjectReference:
    return ObjectReference(**{"api_version": "v1", "kind": "Pod", "namespace": "shop", "name": name} | fields)


POD = pod_reference(uid="u1")


def occurrence(message: str = "m", regarding: ObjectReference = POD, reason: str = "Created") -> Occurrence:
    return Occurrence(regarding, "Normal", reason, message)


@pytest.mark.behaviour("CS-168")
def test_identical_events_increase_a_count():
    correlator = EventCorrelator()
    results = [correlator.correlate(occurrence(), NOW + timedelta(seconds=n)) for n in range(3)]
    assert [(r.count, r.first, r.last) for r in results if r] == [
        (n + 1, NOW, NOW + timedelta(seconds=n)) for n in range(3)
    ]
    assert len({r.name for r in results if r}) == 1


def test_different_events_are_separate():
    correlator = EventCorrelator()
    other = pod_reference(uid="u2")
    field = pod_reference(uid="u1", field_path="x")
    results = [
        correlator.correlate(each, NOW)
        for each in (
            occurrence(),
            occurrence("n"),
            occurrence(reason="Other"),
            occurrence(regarding=other),
            occurrence(regarding=field),
            Occurrence(POD, "Warning", "Created", "m"),
        )
    ]
    assert [r.count for r in results if r] == [1] * 6
    assert len({r.name for r in results if r}) == 6


def test_ten_similar_events_are_aggregated():
    correlator = EventCorrelator()
    results = [correlator.correlate(occurrence(f"message {n}"), NOW) for n in range(13)]
    messages = [r.occurrence.message for r in results if r]
    assert messages[:9] == [f"message {n}" for n in range(9)]
    assert messages[9:] == [f"(combined from similar events): message {n}" for n in range(9, 13)]
    assert [r.count for r in results[9:] if r] == [1, 2, 3, 4]
    assert len({r.name for r in results[9:] if r}) == 1
    late = [correlator.correlate(occurrence(f"at {n}"), NOW + timedelta(seconds=n)) for n in (600, 1200, 1801)]
    combined = [f"(combined from similar events): at {n}" for n in (600, 1200)]
    assert [r.occurrence.message for r in late] == [*combined, "at 1801"]


def test_an_object_may_send_25_events_and_then_one_in_five_minutes():
    correlator = EventCorrelator()
    results = [correlator.correlate(occurrence(), NOW) for _ in range(40)]
    assert [r is not None for r in results] == [True] * 25 + [False] * 15
    assert correlator.correlate(occurrence(), NOW + timedelta(seconds=299)) is None
    allowed = correlator.correlate(occurrence(), NOW + timedelta(seconds=300))
    assert allowed.count == 42  # dropped events are counted
    assert correlator.correlate(occurrence(), NOW + timedelta(seconds=301)) is None
    for seconds in (0, 300):  # a clock that was set back by a day
        later = NOW + timedelta(days=-1, seconds=seconds)
        assert (correlator.correlate(occurrence(), later) is not None) is bool(seconds)
    results = [correlator.correlate(occurrence(), NOW + timedelta(days=9)) for _ in range(40)]
    assert [r is not None for r in results] == [True] * 25 + [False] * 15
    another = pod_reference("web-1", uid="u3")
    assert correlator.correlate(occurrence(regarding=another), NOW) is not None


def test_an_object_that_fails_every_few_seconds_does_not_flood_the_events():
    correlator = EventCorrelator()
    results = [correlator.correlate(occurrence(), NOW + timedelta(seconds=n)) for n in range(0, 3600, 7)]
    # After the burst, one in five minutes: the twelfth only at the end of the hour.
    assert sum(r is not None for r in results) == 25 + 11


def test_names_are_unique_and_valid():
    correlator = EventCorrelator()
    long = pod_reference("a" * 236 + "-" * 17, uid="u4")
    names = [r.name for n in range(9) if (r := correlator.correlate(occurrence(str(n), long), NOW))]
    assert len(set(names)) == 9
    assert all(len(name) <= 253 for name in names)
    assert all(name.rpartition(".")[0] == "a" * 236 for name in names)
    assert len({EventCorrelator(recorder).correlate(occurrence(), NOW).name for recorder in ("manager", "agent")}) == 2


def test_the_events_used_least_recently_are_forgotten(monkeypatch):
    monkeypatch.setattr(events, "MEMORY", 2)
    correlator = EventCorrelator()
    counts = [correlator.correlate(occurrence(message), NOW).count for message in ("a", "b", "a", "c", "a", "b")]
    assert counts == [1, 1, 2, 1, 3, 1]


@asynccontextmanager
async def recording(fail=lambda request: None) -> AsyncIterator[tuple[MemoryServer, VirtualClock, EventRecorder]]:
    server, clock = MemoryServer(), VirtualClock()
    server.fail = fail
    recorder = recorder_on(server, clock)
    async with running(recorder.run()):
        yield server, clock, recorder


def recorder_on(server: MemoryServer, clock: VirtualClock) -> EventRecorder:
    return EventRecorder(Client(server, clock), "sidecarset-controller", instance="host-1")


@virtual
async def test_an_event_matches_kubectl_describe():
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="shop", uid="u1", resource_version="7"))
    async with recording() as (server, clock, recorder):
        start = rfc3339(clock.now())
        recorder.event(reference(PODS, pod, "spec.containers{main}"), "Warning", "Failed", "no luck")
        await clock.sleep(85)
        recorder.event(reference(PODS, pod, "spec.containers{main}"), "Warning", "Failed", "no luck")
        assert await recorder.flush(10)
    ((path, event),) = server.objects.items()
    assert path == f"/api/v1/namespaces/shop/events/{event['metadata']['name']}"
    assert event["metadata"]["name"].startswith("web-0.")
    del event["metadata"]
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web-0",
            "uid": "u1",
            "resourceVersion": "7",
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": "Failed",
        "message": "no luck",
        "count": 2,
        "firstTimestamp": start,
        "lastTimestamp": rfc3339(clock.now()),
        "source": {"component": "sidecarset-controller", "host": "host-1"},
        "reportingComponent": "sidecarset-controller",
        "reportingInstance": "host-1",
    }
    assert len(server.requests) == 2


@virtual
async def test_events_of_cluster_scoped_objects_use_the_default_namespace():
    async with recording() as (server, _, recorder):
        recorder.event(ObjectReference(api_version="v1", kind="Node", name="n1"), "Normal", "Seen", "m")
        assert await recorder.flush(10)
    (path,) = server.objects
    assert path.startswith("/api/v1/namespaces/default/events/n1.")
    assert reference(NODES, Pod(metadata=ObjectMeta(name="n1"))).namespace == ""


@virtual
async def test_an_expired_event_is_created_again_with_its_count():
    async with recording() as (server, clock, recorder):
        recorder.event(POD, "Normal", "Created", "m")
        assert await recorder.flush(10)
        server.objects.clear()
        recorder.event(POD, "Normal", "Created", "m")
        assert await recorder.flush(10)
    (stored,) = server.objects.values()
    assert (stored["count"], stored["involvedObject"]["uid"]) == (2, "u1")
    assert stored["source"]["component"] == "sidecarset-controller"
    assert stored["lastTimestamp"] == rfc3339(clock.now())


@virtual
async def test_events_wait_for_an_unavailable_server():
    def fail(request):
        if VirtualClock().monotonic() < 35:
            raise TransportError(RequestInfo("POST", request.path), "refused")

    async with recording(fail) as (server, clock, recorder):
        recorder.event(POD, "Normal", "Created", "m")
        assert not await recorder.flush(30)
        await until(lambda: server.objects)
    assert len(server.objects) == 1
    assert clock.monotonic() < 41


@virtual
@pytest.mark.parametrize(
    ("code", "reason", "cause", "requests"),
    [
        (403, "Forbidden", "", 1),
        (403, "Forbidden", "NamespaceTerminating", 1),
        (429, "TooManyRequests", "", 12),
        (500, "InternalError", "", 12),
    ],
)
async def test_events_that_cannot_be_sent_are_dropped_and_logged(caplog, code, reason, cause, requests):
    refused = json_response(code, status_body(code, reason, details={"causes": [{"reason": cause}]}))
    async with recording(lambda request: refused) as (server, _, recorder):
        recorder.event(POD, "Normal", "Created", "made it")
        assert await recorder.flush(1000)
        assert len(server.requests) == requests
        server.fail = lambda request: None
        recorder.event(POD, "Normal", "Other", "next")
        assert await recorder.flush(10)
    assert len(caplog.messages) == (not cause)  # every controller of an ending namespace has such events
    assert all(one.startswith("dropped event Created for Pod shop/web-0: POST ") for one in caplog.messages)
    assert all(one.endswith(": made it") for one in caplog.messages)
    assert [event["reason"] for event in server.objects.values()] == ["Other"]


@virtual
async def test_recording_never_blocks_or_raises(caplog):
    recorder = recorder_on(MemoryServer(), VirtualClock())
    with caplog.at_level(logging.WARNING):
        for number in range(QUEUE_SIZE + 5):
            recorder.event(pod_reference(f"p{number}"), "Normal", "Created", "m")
    assert len(caplog.messages) == 5
    assert "more than 1000 events are queued" in caplog.messages[-1]


@virtual
async def test_events_of_one_namespace_do_not_delay_or_displace_those_of_others(caplog):
    server = MemoryServer()
    recorder = recorder_on(server, VirtualClock())
    recorder.event(pod_reference("first", namespace="victim"), "Normal", "Created", "m")
    for number in range(QUEUE_SIZE + 5):
        recorder.event(pod_reference(f"p{number}", namespace="loud"), "Normal", "Created", "m")
    recorder.event(pod_reference("last", namespace="victim"), "Normal", "Created", "m")
    async with running(recorder.run()):
        assert await recorder.flush(10)
    sent = [event["involvedObject"] for event in server.objects.values()]
    assert [one["name"] for one in sent[:4]] == ["first", "p0", "last", "p1"]
    assert len(sent) == QUEUE_SIZE
    assert "victim" not in caplog.text


@pytest.mark.parametrize("field", ["namespace", "name", "uid", "resource_version"])
@virtual
async def test_no_state_is_kept_for_nonexistent_objects(field):
    async with recording() as (server, _, recorder):
        recorder.event(pod_reference(**{field: "n" * 254}), "Normal", "Created", "m")
        assert await recorder.flush(10)
    assert not server.requests


@virtual
async def test_messages_are_escaped_and_cut():
    async with recording() as (server, _, recorder):
        for reason, message in {
            "Quoted": "a\tb\n\x1b[2J\u202e\r",
            "Long": "x" * 5000,
            "Both": "\x1b" * 5000,
            "None": "",
        }.items():
            recorder.event(POD, "Normal", reason, message)
        assert await recorder.flush(10)
    quoted, long, both, none = server.objects.values()
    assert quoted["message"] == "a\tb\n\\u001b[2J\\u202e\\u000d"
    assert long["message"].endswith("x…")
    assert len(long["message"]) == len(both["message"]) == MAX_MESSAGE
    assert "message" not in none


@virtual
async def test_a_failed_event_does_not_stop_later_ones(caplog):
    def fail(request):
        if b"cannot be sent" in request.body:
            raise TypeError("no JSON")

    async with recording(fail) as (server, _, recorder):
        recorder.event(POD, "Warning", "Failed", "cannot be sent")
        recorder.event(POD, "Normal", "Created", "m")
        assert await recorder.flush(10)
    assert [stored["reason"] for stored in server.objects.values()] == ["Created"]
    assert "dropped event Failed for Pod shop/web-0: " in caplog.text
    assert "cannot be sent" in caplog.text
