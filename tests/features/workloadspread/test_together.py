"""Pods that take places concurrently, and state left by OpenKruise."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from app.features.workloadspread.index import SpreadIndex
from app.features.workloadspread.plan.placement import SubsetRecord, record_of
from app.features.workloadspread.plan.targets import Whitelist
from app.features.workloadspread.pod_admission import Placer, shared_statuses
from app.features.workloadspread.types import WorkloadSpread
from app.kube.objects import OwnerReference
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import SharedStatus
from app.kube.store import Store
from tests.features.workloadspread.spreads import Json
from tests.features.workloadspread.test_pod_admission import Targets
from tests.features.workloadspread.world import SPREADS, World, in_world
from tests.simulation.clocks import WallClock

KEY = ObjectKey("ns", "ws")
OWNER = OwnerReference("apps.kruise.io/v1beta1", "CloneSet", "shop", "u", True)


async def replica(there: World, seed: int, ahead: float = 0.0) -> tuple[Placer, SharedStatus[WorkloadSpread]]:
    """A process whose cache receives no changes. ``ahead``: seconds by which its clock is fast."""
    store: Store[WorkloadSpread] = Store()
    store.replace([await there.client.get(SPREADS, "ws", "ns", decode=WorkloadSpread.model_validate_json)])
    statuses = shared_statuses(there.client, store, Random(seed))
    targets = Targets()
    clock = WallClock()
    clock.ahead = ahead
    return (Placer(SpreadIndex(store), statuses, targets, Whitelist, clock, Random(seed), frozenset()), statuses)


async def take(placer: Placer, name: str) -> str:
    """Return the subset of a new Pod."""
    spread = placer.index.get(KEY)
    assert spread is not None
    record = await placer.take(spread, OWNER, name, {})
    assert record is not None
    return record.subset


@pytest.mark.behaviour("WS-28", "WS-35", "WS-36", "WS-37")
@in_world
async def test_two_replicas_with_stale_caches_do_not_exceed_places(there: World) -> None:
    await there.workload(100)
    await there.spread({"name": "a", "maxReplicas": 30}, {"name": "b", "maxReplicas": 30}, {"name": "c"})
    replicas = [await replica(there, seed) for seed in (1, 2)]
    found = Counter(await asyncio.gather(*(take(replicas[number % 2][0], f"p{number}") for number in range(100))))
    assert found == {"a": 30, "b": 30, "c": 40}
    writes = sum(statuses.counts.writes for _, statuses in replicas)
    assert writes <= 10, "concurrent Pods share one write"


@pytest.mark.behaviour("WS-61", "WS-62", "WS-28", "WS-43")
@pytest.mark.parametrize("apart", [5.0, 14.0, 25.0])
@in_world
async def test_clock_skew_neither_duplicates_nor_blocks_places(there: World, apart: float) -> None:
    """Covers the clocks of two replicas and of the controller."""
    await there.workload(12)
    await there.spread({"name": "a", "maxReplicas": 4}, {"name": "b"})
    await there.becomes(there.status, {"a": (0, 4), "b": (0, -1)})
    replicas = [(await replica(there, seed, ahead))[0] for seed, ahead in enumerate((-apart, apart))]
    rng, clock, numbers = Random(1), there.client.clock, iter(range(1000))

    async def come() -> None:
        number = next(numbers)
        subset = await take(replicas[number % 2], f"p{number}")
        await clock.sleep(rng.random() * 3)
        await there.pod(f"p{number}", subset)

    async def go(name: str, subset: str) -> None:
        placer = rng.choice(replicas)
        spread = placer.index.get(KEY)
        assert spread is not None
        await placer.give_back(spread, SubsetRecord("ws", subset), OWNER, name, {})
        await clock.sleep(rng.random() * 3)
        await there.client.delete(PODS, name, "ns", grace_period_seconds=0)

    async def members(subset: str) -> list[str]:
        found = (await there.client.list(PODS, "ns")).items
        mine = [(one["metadata"]["name"], record_of(one["metadata"]["annotations"])) for one in found]
        return [name for name, record in mine if record is not None and record.subset == subset]

    for _ in range(4):
        await asyncio.gather(*(come() for _ in range(3)))
        assert len(await members("a")) <= 4
        await clock.sleep(rng.random() * 10)
    assert len(await members("a")) == 4
    for _ in range(3):
        await asyncio.gather(*(go(name, "a") for name in (await members("a"))[:2]), come(), come())
        assert len(await members("a")) <= 4
        await clock.sleep(rng.random() * 10)
    await clock.sleep(60)
    left = len(await members("a"))
    assert (await there.status())["a"] == (left, 4 - left)
    await asyncio.gather(*(come() for _ in range(4)))
    assert len(await members("a")) == 4
    await there.becomes(lambda: _of_a(there), (4, 0))
    # A deletion is waited for 15 s; a slower one is reported as failed, but its place is still freed in the end.
    untrue = {"CreatePodFailed"} if apart > 12 else {"CreatePodFailed", "DeletePodFailed"}
    assert not untrue & await there.reasons()


async def _of_a(there: World) -> tuple[int, int]:
    return (await there.status())["a"]


GARBAGE = "\x00{[\u2028" * 50
HOSTILE_ENTRIES = [
    pytest.param({"creatingPods": {f"x{number}": "1970-01-01T00:00:00Z" for number in range(2000)}}, id="long ago"),
    pytest.param({"creatingPods": {f"x{number}": "9999-12-31T23:59:59Z" for number in range(2000)}}, id="to come"),
    pytest.param(
        {"creatingPods": {GARBAGE: "0001-01-01T00:00:00Z"}, "deletingPods": {"": "2030-01-01T00:00:00+14:00"}},
        id="no names",
    ),
    pytest.param({"missingReplicas": -7, "replicas": 2_000_000_000}, id="no numbers"),
]


@pytest.mark.behaviour("WS-33", "WS-60", "WS-61", "WS-62")
@pytest.mark.parametrize("held", HOSTILE_ENTRIES)
@in_world
async def test_invalid_statuses_and_annotations_take_no_place(there: World, held: Json) -> None:
    """Users can write both. Admission and the controller continue, and the status is soon corrected."""
    await there.workload(6)
    await there.spread({"name": "a", "maxReplicas": 2}, {"name": "b"})
    await there.becomes(there.status, {"a": (0, 2), "b": (0, -1)})
    for number, text in enumerate((GARBAGE, "{", "null", '{"name": "ws", "subset": ["a"]}', "[" * 5000)):
        await there.pod(f"odd{number}", node="nowhere")
        await there.client.patch(PODS, f"odd{number}", {"metadata": {"annotations": {RECORD: text}}}, "ns")
    placer, _ = await replica(there, 1)
    status = {"name": "a", "replicas": 0, "missingReplicas": 2, **held}
    versions = {"versionIgnored": [status, {"name": "of nobody", "replicas": 1, "missingReplicas": 1}], GARBAGE: []}
    body = {"status": {"versionedSubsetStatuses": versions}}
    await there.client.patch(SPREADS, "ws", body, "ns", subresource="status")
    await take(placer, "q0")
    await there.client.clock.sleep(40)
    for number, subset in enumerate("aab", 1):
        assert await take(placer, f"q{number}") == subset
        await there.pod(f"q{number}", subset)
    await there.becomes(there.status, {"a": (2, 0), "b": (1, -1)})


RECORD = "apps.kruise.io/matched-workloadspread"
