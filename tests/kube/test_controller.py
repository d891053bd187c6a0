import asyncio
import logging
from collections import Counter

import orjson
import pytest

from app.kube.controller import Controller, Result, Watch, to_controller, to_self
from app.kube.errors import KubeError, RequestInfo, TransportError, api_error
from app.kube.objects import ObjectMeta, OwnerReference, Pod
from app.kube.resources import NODES, REPLICASETS, ObjectKey
from app.kube.store import Change, Store, key_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, status_body, until, virtual

A, B = ObjectKey("shop", "a"), ObjectKey("shop", "b")


def pod(name: str, version: int = 1, owner: str = "", kind: str = "ReplicaSet", api: str = "apps/v1") -> Pod:
    owners = (OwnerReference(api_version=api, kind=kind, name=owner, uid="u", controller=True),) if owner else ()
    return Pod(metadata=ObjectMeta(name=name, namespace="shop", resource_version=str(version), owner_references=owners))


class Metrics:
    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.active: list[int] = []
        self.panics = 0

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        self.results[result] += 1
        self.seconds.append(seconds)

    def active_workers(self, controller: str, workers: int) -> None:
        self.active.append(workers)

    def panicked(self, controller: str) -> None:
        self.panics += 1


class Setup:
    """A controller on a store. Without ``reconcile``, ``seen`` lists the keys with their times."""

    def __init__(self, reconcile=None, keys=to_self, **options) -> None:
        self.clock = VirtualClock()
        self.seen: list[ObjectKey] = []
        self.times: list[float] = []
        self.store: Store[Pod] = Store()
        self.metrics = Metrics()
        watch = Watch(self.store, keys, options.pop("delay", 0.0))
        reconcile = reconcile or self._note
        self.controller = Controller("test", self.clock, [watch], reconcile, metrics=self.metrics, **options)

    async def _note(self, key: ObjectKey) -> None:
        self.seen.append(key)
        self.times.append(self.clock.monotonic())


@virtual
async def test_existing_and_changed_objects_are_reconciled():
    setup = Setup()
    async with running(setup.controller.run()):
        setup.store.replace([pod("a")])
        await until(lambda: setup.seen == [A])
        setup.store.put(pod("b"))
        await until(lambda: setup.seen == [A, B])
        setup.store.remove(A)
        await until(lambda: setup.seen == [A, B, A])
        setup.controller.queue.add(B)
        await until(lambda: setup.seen == [A, B, A, B])
    assert setup.metrics.results == {"success": 4}


@virtual
async def test_nothing_is_reconciled_before_caches_are_synced():
    setup = Setup()
    setup.store.put(pod("a"))
    with pytest.raises(TimeoutError, match=r"^controller test: caches did not sync within 120 s$"):
        await setup.controller.run()
    assert (setup.clock.monotonic(), setup.seen) == (120, [])


@virtual
async def test_read_only_caches_are_waited_for_too():
    needed: Store[Pod] = Store()
    setup = Setup(needs=[needed])
    async with running(setup.controller.run()):
        setup.store.replace([pod("a")])
        await asyncio.sleep(60)
        assert setup.seen == []
        needed.replace([])
        await until(lambda: setup.seen == [A])


@virtual
async def test_results_schedule_the_next_reconcile():
    times: list[float] = []
    again = Result(requeue=True)
    both = [Result(requeue=True, requeue_after=seconds) for seconds in (60, 0.001)]
    results = [again, again, Result(requeue_after=30), again, again, *both, Result()]

    async def reconcile(key: ObjectKey) -> Result | None:
        times.append(round(setup.clock.monotonic(), 3))
        return results[len(times) - 1]

    setup = Setup(reconcile)
    setup.store.replace([pod("a")])
    async with running(setup.controller.run()):
        await until(lambda: len(times) == len(results))
        await setup.clock.sleep(1000)
    # A reconcile that asks for a time has succeeded, so the back-off begins anew.
    assert times[:5] == [0, 0.005, 0.015, 30.015, 30.02]
    # If it asks for both, the earlier time counts.
    assert times[5:] == [30.03, 30.05, 30.051]
    assert setup.metrics.results == {"requeue_after": 1, "requeue": 6, "success": 1}


REQUEST = RequestInfo("PATCH", "/apis/x")
CONFLICT = api_error(REQUEST, 409, orjson.dumps(status_body(409, "Conflict", "changed")))
ENDING = {"causes": [{"reason": "NamespaceTerminating"}]}
ENDING = api_error(REQUEST, 403, orjson.dumps(status_body(403, "Forbidden", "ending", details=ENDING)))
REFUSED = TransportError(REQUEST, "refused")


class Later(KubeError):
    retry_in = 5.0


@virtual
@pytest.mark.parametrize(
    ("error", "level", "text", "panics"),
    [
        (CONFLICT, logging.INFO, "shop/a has changed, retrying in 0.005 s: PATCH /apis/x: changed", 0),
        (ENDING, logging.DEBUG, "shop/a: its namespace is being terminated: PATCH /apis/x: ending", 0),
        (REFUSED, logging.WARNING, "reconciling shop/a failed after 0.000 s, retrying in 0.005 s", 0),
        (TimeoutError(), logging.WARNING, "reconciling shop/a failed after 0.000 s, retrying in 0.005 s", 0),
        (Later(), logging.WARNING, "reconciling shop/a failed after 0.000 s, retrying in 5.000 s", 0),
        (KeyError("x"), logging.ERROR, "reconciling shop/a failed after 0.000 s, retrying in 0.005 s", 1),
    ],
    ids=["conflict", "namespace", "refusal", "timeout", "later", "mistake"],
)
async def test_errors_are_logged_with_their_key_and_retried(caplog, error, level, text, panics):
    calls = 0

    async def reconcile(key: ObjectKey) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise error

    setup = Setup(reconcile)
    setup.store.replace([pod("a")])
    with caplog.at_level(logging.DEBUG, "app.kube.controller"):
        async with running(setup.controller.run()):
            await until(lambda: calls == 3)
    record = caplog.records[0]
    assert record.levelno == level
    assert record.getMessage().startswith("test: " + text)
    assert bool(record.exc_info) is bool(panics)
    assert setup.metrics.results == {"error": 2, "success": 1}
    assert setup.metrics.panics == 2 * panics
    assert setup.controller.queue.failures(A) == 0


@virtual
async def test_no_key_stops_a_worker(caplog):
    """Neither an exception (including a cancellation that the reconcile awaited) nor an invalid result stops it."""
    tries: Counter[str] = Counter()

    async def reconcile(key: ObjectKey) -> Result | None:
        tries[key.name] += 1
        if tries[key.name] > 1 or key.name == "good":
            return None
        if key.name == "cancelled":
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner
        if key.name == "deep":
            raise RecursionError
        return "nonsense"  # type: ignore[return-value]

    setup = Setup(reconcile, workers=1)
    async with running(setup.controller.run()):
        setup.store.replace([pod(name) for name in ("cancelled", "deep", "wrong", "good")])
        await until(lambda: tries == {"cancelled": 2, "deep": 2, "wrong": 2, "good": 1})
    assert setup.metrics.results == {"error": 3, "success": 4}


@virtual
async def test_keys_run_concurrently_but_never_twice_at_once():
    busy: Counter[ObjectKey] = Counter()
    most = 0

    async def reconcile(key: ObjectKey) -> None:
        nonlocal most
        busy[key] += 1
        most = max(most, busy.total())
        assert busy[key] == 1
        await setup.clock.sleep(1)
        busy[key] -= 1

    setup = Setup(reconcile, workers=4)
    setup.store.replace([pod(name) for name in "abcdef"])
    async with running(setup.controller.run()):
        for version in range(2, 20):
            setup.store.put(pod("a", version))
            await setup.clock.sleep(0.25)
        await setup.clock.sleep(10)
    assert most == 3
    assert (max(setup.metrics.active), setup.metrics.active[-1]) == (3, 0)
    assert set(setup.metrics.seconds) == {1}
    assert setup.metrics.results["success"] < 15  # the changes of one object were coalesced


@pytest.mark.behaviour("MGR-165")
@pytest.mark.parametrize("workers", [2, 3])
@virtual
async def test_slow_keys_of_one_namespace_never_take_all_workers(workers):
    done = asyncio.Event()
    finished = []

    async def reconcile(key: ObjectKey) -> None:
        if key.namespace == "tenant":
            await done.wait()
        finished.append(key)

    setup = Setup(reconcile, workers=workers)
    async with running(setup.controller.run()):
        setup.store.replace([])
        for number in range(10):
            setup.controller.queue.add(ObjectKey("tenant", str(number)))
        await until(lambda: len(setup.controller.queue.processing) == workers - 1)
        setup.controller.queue.add(A)
        await until(lambda: finished == [A])
        done.set()
        await until(lambda: len(finished) == 11)


@virtual
async def test_shutdown_finishes_ready_keys():
    seen = []

    async def reconcile(key: ObjectKey) -> None:
        await setup.clock.sleep(1)
        seen.append(key.name)

    mapped: list[Change[Pod]] = []

    def keys(change: Change[Pod]) -> list[ObjectKey]:
        mapped.append(change)
        return [key_of(change.object)]

    setup = Setup(reconcile, keys, workers=1)
    setup.store.replace([pod(name) for name in "abc"])
    run = asyncio.create_task(setup.controller.run())
    await until(lambda: seen == ["a"])
    setup.controller.stop()
    await run
    assert seen == ["a", "b", "c"]
    setup.store.put(pod("d"))
    assert len(mapped) == 3  # the controller has unsubscribed


@virtual
async def test_cancellation_ends_a_reconcile_and_is_no_failure():
    async def reconcile(_: ObjectKey) -> None:
        await setup.clock.sleep(1000)

    setup = Setup(reconcile, workers=1)
    setup.store.replace([pod("a")])
    run = asyncio.create_task(setup.controller.run())
    await until(lambda: A in setup.controller.queue.processing)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not setup.metrics.results


@virtual
async def test_a_failed_mapper_does_not_stop_others(caplog):
    def keys(change: Change[Pod]) -> list[ObjectKey]:
        if change.object.metadata.name == "a":
            raise ValueError("no idea")
        return [B]

    setup = Setup(keys=keys)
    setup.store.replace([pod("a"), pod("b")])
    async with running(setup.controller.run()):
        await until(lambda: setup.seen == [B])
    assert caplog.messages == ["test: failed to map a change to shop/a to keys"]
    assert setup.metrics.panics == 1


@virtual
@pytest.mark.parametrize("delay", [3.0, lambda change, key: 3.0])
async def test_a_watch_may_delay_keys(delay):
    setup = Setup(delay=delay)
    setup.store.replace([pod("a")])
    async with running(setup.controller.run()):
        await until(lambda: setup.times)
    assert setup.times == [3.0]


def test_changes_concern_the_owner_before_and_after():
    keys = to_controller(REPLICASETS)
    assert list(keys(Change(None, pod("p", owner="a")))) == [A]
    assert list(keys(Change(pod("p", owner="a"), pod("p", owner="b")))) == [A, B]
    assert list(keys(Change(pod("p", owner="a"), pod("p", owner="a", api="apps/v1beta9")))) == [A]
    assert list(keys(Change(pod("p", owner="a", kind="Job"), None))) == []
    assert list(keys(Change(pod("p", owner="a", api="example.com/v1"), None))) == []
    assert list(keys(Change(pod("p"), None))) == []
    assert list(to_controller(NODES)(Change(pod("p", owner="n", kind="Node", api="v1"), None))) == [ObjectKey("", "n")]
