"""Values that processes share, and metrics that are summed over them."""

import asyncio
import os
import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.manager.shared_state import (
    Certificate,
    Counts,
    Family,
    Life,
    Replica,
    SharedValue,
    State,
    continued,
    families,
    merged,
    text,
)


def test_a_shared_page_shows_the_last_write_of_another_process() -> None:
    shared = SharedValue(State, 2**16)
    assert shared.read() is None
    child = os.fork()
    if child == 0:
        shared.write(State(pid=1))
        shared.write(State(pid=2, missing={"caches": "not filled yet"}))
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.read() == State(pid=2, missing={"caches": "not filled yet"})
    assert shared.version == 2


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6), st.data())
def test_an_interrupted_write_keeps_the_previous_value(values: list[bytes], data: st.DataObject) -> None:
    shared = SharedValue(Certificate, 4096)
    for value in values:
        shared.write(Certificate(value, b"", b""))
    # A writer that is killed during a write has overwritten the other half but not the version.
    start = shared._start(shared.version + 1)
    scribble = data.draw(st.binary(min_size=8, max_size=1000))
    shared._memory[start : start + len(scribble)] = scribble
    assert shared.read() == Certificate(values[-1], b"", b"")


def test_an_oversized_value_is_refused_and_changes_nothing() -> None:
    shared = SharedValue(Certificate, 4096)
    shared.write(Certificate(b"good", b"", b""))
    with pytest.raises(ValueError, match="bytes exceed the"):
        shared.write(Certificate(b"x" * 4096, b"", b""))
    assert shared.read() == Certificate(b"good", b"", b"")


def test_a_version_written_before_its_content_is_ignored() -> None:
    shared = SharedValue(Certificate, 4096)
    shared.write(Certificate(b"first", b"", b""))
    shared.write(Certificate(b"second", b"", b""))
    start = shared._start(2)
    struct.pack_into("<I", shared._memory, start + 4, 0)  # a wrong checksum
    assert shared._data(2) is None


def registry(count: float, depth: float, seconds: float) -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("reviews", "Reviews.", ["webhook"], registry=made).labels("pods").inc(count)
    Gauge("queue_depth", "Keys.", registry=made).set(depth)
    Gauge("kruise_serving_certificate_expiry_timestamp_seconds", "Ends.", registry=made).set(seconds * 1000)
    Histogram("latency", "Time.", buckets=(0.1, 1.0), registry=made).observe(seconds)
    Gauge("process_resident_memory_bytes", "Memory.", registry=made).set(10)
    return made


@pytest.mark.behaviour("MGR-25")
def test_counts_of_processes_are_added() -> None:
    processes = {"starting": (0, 0, 0), "one": (3, 2, 0.05), "two": (4, 0, 0.5)}
    found = {name: families(registry(*values)) for name, values in processes.items()}
    exposed = text(merged(found)).decode()
    for line in (
        'reviews_total{webhook="pods"} 7.0',
        "queue_depth 2.0",
        "kruise_serving_certificate_expiry_timestamp_seconds 50.0",
        'latency_bucket{le="0.1"} 2.0',
        'latency_bucket{le="1.0"} 3.0',
        'latency_bucket{le="+Inf"} 3.0',
        "latency_count 3.0",
        'process_resident_memory_bytes{process="one"} 10.0',
        'process_resident_memory_bytes{process="two"} 10.0',
    ):
        assert f"\n{line}\n" in exposed


async def test_a_process_continues_the_counts_of_its_predecessor() -> None:
    replica = Replica(("one", "two"))
    Counts(replica, "one", registry(3, 2, 0.05)).publish({})
    Counts(replica, "two", registry(10, 0, 0.5)).publish({})
    # A restarted process neither loses its counts nor counts them twice.
    again = Counts(replica, "one", registry(1, 5, 0.05))
    replica.lives["one"].write(Life(pid=7, restarts=1, hangs=2))
    for _ in range(2):
        again.publish({})
        exposed = (await again.exposition()).decode()
        assert 'reviews_total{webhook="pods"} 14.0' in exposed
        assert "queue_depth 5.0" in exposed
        assert "latency_count 3.0" in exposed
        assert 'kruise_process_restarts_total{process="one"} 1.0' in exposed
        assert 'kruise_process_hangs_total{process="one"} 2.0' in exposed


async def test_a_scrape_shows_current_counts_of_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.manager.shared_state.GATHER_SECONDS", 60)
    replica = Replica(("one", "two", "three"))
    asker, loop = Counts(replica, "one", registry(1, 0, 0.05)), asyncio.get_running_loop()
    for name, delay in (("two", 0.0), ("three", 0.05)):
        other = registry(0, 0, 0.05)
        asked = Counts(replica, name, other)
        asked.publish({})
        replica.on_publication_request(name, partial(loop.call_later, delay, asked.publish, {}))
        Counter("denials", "Denials.", registry=other).inc(5)
    assert "denials_total 10.0" in (await asker.exposition()).decode()
    for name in ("two", "three"):
        loop.remove_reader(replica._pipes[name][0])


async def test_state_published_by_a_process_survives_it() -> None:
    replica = Replica(("one",))
    mine = registry(1, 0, 0.05)
    killed = Counts(replica, "one", mine)
    killed.publish({"caches": ["a line"]})
    Counter("denials", "Denials.", registry=mine).inc(5)
    assert "denials_total 5.0" in (await killed.exposition()).decode()
    again = Counts(replica, "one", registry(0, 0, 0.05))
    assert "denials_total 5.0" in (await again.exposition()).decode()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_a_counter_never_decreases_across_restarts(lives: list[int]) -> None:
    shown: list[Family] = []
    total = 0.0
    for count in lives:
        now = [Family("reviews", "", "counter", [("reviews_total", {}, float(count))])]
        shown = continued(now, shown)
        total += count
        assert shown[0].samples == [("reviews_total", {}, total)]


def test_counts_of_a_process_remain_until_its_successor_counts() -> None:
    before = [Family("denials", "", "counter", [("denials_total", {"name": "a"}, 2.0)])]
    assert continued([], before) == before


def test_counters_keep_the_names_that_openkruise_gave_them() -> None:
    shown = text([Family("pub_rejected", "Rejected.", "counter", [("pub_rejected", {}, 2.0)])]).decode()
    assert shown == "# HELP pub_rejected Rejected.\n# TYPE pub_rejected counter\npub_rejected 2.0\n"
