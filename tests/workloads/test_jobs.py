"""Writes of many objects: batches that double, then a fixed number of concurrent writes; and what jobs wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.features.broadcastjob.reconcile import BroadcastJobReconciler, Caches
from app.features.broadcastjob.types import BroadcastJob
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, RequestInfo, Status
from app.kube.events import EventRecorder
from app.kube.expectations import ScaleAction
from app.kube.resources import ObjectKey
from app.kube.store import Change, Store
from app.workloads.jobs import MAX_WARNINGS, JobState, write_each
from app.workloads.state import MAX_CONCURRENT_WRITES as MOST
from tests.kit.transports import Noting
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import virtual

REFUSAL = Conflict(RequestInfo("POST", "/x"), Status(code=409, reason="Conflict", message="no"))


class Writes:
    """Each takes one second, the slow one ten; ``refused`` is the number of the one that fails."""

    def __init__(self, refused: int | None = None, slow: int | None = None) -> None:
        self.refused = refused
        self.slow = slow
        self.started: list[int] = []
        self.running = 0
        self.most: list[int] = []

    async def __call__(self, number: int) -> KubeError | None:
        self.started.append(number)
        self.running += 1
        self.most.append(self.running)
        await asyncio.sleep(10 if number == self.slow else 1)
        self.running -= 1
        return REFUSAL if number == self.refused else None


def written(given: Sequence[int], writes: Writes, first: int = 1) -> float:
    """Return the seconds until all are written."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await write_each(given, writes, first=first)
        return loop.time() - began

    return run(main())


@pytest.mark.behaviour("BJ-12", "EJ-9")
@pytest.mark.parametrize(
    ("count", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 2), (7, 3), (63, 6), (64, 7), (63 + MOST, 7)]
)
def test_batches_grow_exponentially(count: int, seconds: int) -> None:
    writes = Writes()
    assert written(range(count), writes) == pytest.approx(seconds)
    assert writes.started == list(range(count))
    assert max(writes.most, default=0) <= MOST


@pytest.mark.behaviour("BJ-12")
def test_a_slow_item_holds_only_its_own_slot() -> None:
    """All other items proceed, within the concurrency limit."""
    writes = Writes(slow=63)
    assert written(range(63 + 5 * MOST), writes) == pytest.approx(16)
    assert len(writes.started) == 63 + 5 * MOST


@pytest.mark.behaviour("BJ-12", "EJ-9")
@pytest.mark.parametrize("refused", [0, 2, 6, 70])
def test_nothing_starts_after_a_refusal(refused: int) -> None:
    writes = Writes(refused)
    with pytest.raises(Conflict):
        written(range(63 + 5 * MOST), writes)
    assert writes.running == 0
    assert len(writes.started) <= {0: 1, 2: 3, 6: 7}.get(refused, 63 + MOST + 7)


def test_everything_starts_at_once_if_nothing_can_fail() -> None:
    writes = Writes()
    assert written(range(MOST), writes, first=MOST) == pytest.approx(1)


KEY = ObjectKey("default", "job")


def a_job(uid: str = "u", *, status: dict[str, Any] | None = None, **spec: Any) -> BroadcastJob:
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": uid, "resourceVersion": uid}
    given = {"status": status} if status else {}
    return BroadcastJob.model_validate({"metadata": metadata, "spec": {"template": {}, **spec}, **given})


def reconciler(**options: Any) -> tuple[BroadcastJobReconciler, Store[BroadcastJob], Noting]:
    """Return it with its cache of jobs, and the server that it writes to."""
    server, store = Noting(), Store[BroadcastJob]()
    client = Client(server, VirtualClock())
    caches, recorder = Caches(store, Store(), Store()), EventRecorder(client, "test")
    return BroadcastJobReconciler(client, caches, recorder, **options), store, server


@pytest.mark.behaviour("CS-52")
@virtual
async def test_a_job_is_reconciled_again_once_the_cache_had_enough_time() -> None:
    jobs, _, _ = reconciler(expectation_timeout=300.0)
    assert jobs.again(KEY) is None
    jobs.expected.expect(KEY, ScaleAction.CREATE, "node-a")
    assert jobs.again(KEY) == Result(requeue_after=300.0)
    assert jobs.again(KEY, left=5.0) == Result(requeue_after=5.0)


@pytest.mark.behaviour("CS-50", "CS-52")
@virtual
async def test_a_recreated_job_waits_for_nothing_of_its_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, store, _ = reconciler()
    states: list[JobState] = []

    async def reconcile(_key: ObjectKey, _job: BroadcastJob, state: JobState) -> None:
        states.append(state)
        jobs.expected.expect(KEY, ScaleAction.CREATE, "node-a")

    monkeypatch.setattr(jobs, "reconcile", reconcile)
    for uid in ("first", "second"):  # deleted and recreated between two reconciles
        store.put(job := a_job(uid))
        assert await jobs(KEY) is None
        assert await jobs(KEY) is not None
    assert states[0] is not states[1]
    await jobs.clock.sleep(60)
    assert jobs.coalesce_delay(Change(job, job), KEY) < 0
    store.remove(KEY)
    assert list(jobs.keys_for_job(Change(job, None))) == [KEY]
    assert await jobs(KEY) is None
    assert jobs.expected.unsatisfied(KEY) is None


@virtual
async def test_warnings_about_any_number_of_pods_take_little_memory() -> None:
    jobs, _, _ = reconciler()
    job = a_job()
    state = JobState("u")
    for number in range(2 * MAX_WARNINGS):
        jobs.warn_once(job, state, "DuplicatePodCreatedOnSameNode", f"Duplicated pod {number} found")
    assert len(state.warnings) <= MAX_WARNINGS


@virtual
@pytest.mark.behaviour("BJ-16")
@pytest.mark.parametrize(("policy", "deleted"), [({}, False), ({"ttlSecondsAfterFinished": 0}, True)])
async def test_a_finished_job_is_kept_unless_its_time_to_live_has_passed(policy: dict[str, int], deleted: bool) -> None:
    jobs, store, server = reconciler()
    status = {"completionTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}
    store.put(a_job(status=status, completionPolicy=policy))
    assert await jobs(KEY) is None
    assert [method for method, _, _ in server.requests] == (["DELETE"] if deleted else [])
