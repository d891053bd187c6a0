"""Rollouts of SidecarSets to running Pods, on the sandbox's API server and simulated nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.api import names
from app.features.sidecarset.plan.settings import set_view
from app.features.sidecarset.writes import MAX_AT_A_TIME, REQUEUE_DELAY, Progress, Roller, SetReconcile
from app.kube.client import Client, PatchType
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from app.kube.objects import Pod
from app.kube.resources import PODS
from app.kube.wire import Request, Response
from app.pods.disruption_budget import ALLOWED, Disruption, DisruptionBudget, Verdict
from app.sandbox.kubelet.program import Pace
from tests.features.sidecarset.plan.test_update import OLD, pod_counts
from tests.features.sidecarset.rolling_world import (
    NAMESPACE,
    World,
    annotation,
    hot,
    image_of,
    in_world,
    is_ready,
    rolling_world,
    sidecar,
)
from tests.features.sidecarset.test_status import sidecar_set
from tests.kube.fakes import virtual


@pytest.mark.behaviour("SS-95", "SS-90")
@in_world(pace=Pace(start=0.1, restart=2.0))
async def test_max_unavailable_holds_and_updates_use_free_room_at_once(world: World) -> None:
    await world.apply(updateStrategy={"maxUnavailable": "30%"})
    await world.settles(0, 0, 0, 0)
    await world.pods_of(*(f"p{number:02}" for number in range(10)))
    await world.settles(10, 10, 10, 10)
    started = world.clock.monotonic()
    await world.apply(containers=[sidecar("a:2")], updateStrategy={"maxUnavailable": "30%"})

    async def done() -> bool:
        pods = await world.pods()
        assert sum(not is_ready(pod) for pod in pods) <= 3
        return await world.counts() == (10, 10, 10, 10)

    await world.until(done, "all are updated")
    # Four rounds of two seconds without idle time.
    assert world.clock.monotonic() - started < 11
    assert len(world.sent.to_pods()) == 10


CONDITION = names.SIDECARSET_UPGRADABLE_CONDITION
UPGRADABLE = ("True", "AllSidecarsetUpgradable", '{"s":true}')


async def conditions(world: World) -> list[tuple[str, str, str]]:
    """Status, reason and message of each Pod's SidecarSetUpgradable condition."""
    found = [one for pod in await world.pods() for one in pod["status"]["conditions"]]
    return [(one["status"], one["reason"], one["message"]) for one in found if one["type"] == CONDITION]


@pytest.mark.behaviour("SS-105")
@in_world
async def test_a_pod_updated_in_place_is_marked_upgradable(world: World) -> None:
    await world.begin("a", "b")
    assert await conditions(world) == []
    refused = []

    def refuse_once(request: Request) -> Response | None:
        # Like a manager that is killed between the update and the condition.
        if request.path.endswith("/a/status") and not refused:
            refused.append(request)
            return Response(503, b"{}", {})
        return None

    world.sent.intercept = refuse_once
    await world.apply(containers=[sidecar("a:2")])
    await world.becomes(lambda: conditions(world), [UPGRADABLE] * 2)
    assert refused
    await world.settles(2, 2, 2, 2)
    written = [one for one in world.sent.writes if "/pods/" in one.path and one.path.endswith("/status")]
    await world.clock.sleep(10)
    assert written == [one for one in world.sent.writes if "/pods/" in one.path and one.path.endswith("/status")]


@pytest.mark.behaviour("SS-93", "SS-105", "SS-107", "SS-123")
@in_world
async def test_pods_that_differ_in_more_than_images_are_reported_once(world: World) -> None:
    await world.begin("a", "b")
    assert [one for one in (await world.pod("a"))["status"]["conditions"] if one["type"] == CONDITION] == []
    await world.apply(containers=[sidecar("a:2", env=[{"name": "A", "value": "1"}])])
    await world.settles(2, 0, 2, 0)
    await world.becomes(lambda: conditions(world), [("False", "UpdateImmutableField", '{"s":false}')] * 2)
    await world.clock.sleep(10)
    text = "SidecarSet in-place update detected 2 not upgradable pod(s) in this round, will skip them."
    assert await world.events("NotUpgradablePods") == [text]
    assert len([one for one in world.sent.writes if one.path.endswith("/a/status")]) == 1
    assert world.sent.to_pods() == []
    # Reverting the change makes the Pods upgradable again.
    await world.apply(containers=[sidecar("a:2")])
    await world.settles(2, 2, 2, 2)
    await world.becomes(lambda: conditions(world), [UPGRADABLE] * 2)


def twins(pod: dict[str, Any]) -> tuple[str, str, str]:
    """Return the images of both twins and the name of the working one."""
    working = annotation(pod, names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER)["mesh"]
    return image_of(pod, "mesh-1"), image_of(pod, "mesh-2"), working


@pytest.mark.behaviour("SS-83")
@in_world(pace=Pace(start=0.1, restart=2.0))
async def test_a_pause_during_a_hot_upgrade_lets_it_finish(world: World) -> None:
    await world.begin("a", containers=[hot("m:1")])
    await world.apply(containers=[hot("m:2")])
    await world.settles(1, 1, 0, 0)
    await world.apply(containers=[hot("m:2")], updateStrategy={"paused": True})
    await world.settles(1, 1, 1, 1)
    assert twins(await world.pod("a")) == ("e:1", "m:2", "mesh-2")


class Budget:
    """Refuses the Pods in ``refused``."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[tuple[str, Disruption]] = []

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        self.asked.append((pod.metadata.name, disruption))
        return Verdict(False, "budget b") if pod.metadata.name in self.refused else ALLOWED


@pytest.mark.behaviour("SS-102", "PM-171")
@virtual
async def test_a_budget_holds_only_its_pod() -> None:
    budget = Budget()
    made: DisruptionBudget = budget
    async with rolling_world(budget=made) as world:
        await world.begin("a", "b", "c", updateStrategy={"maxUnavailable": 1})
        budget.refused = {"a", "c"}
        await world.apply(containers=[sidecar("a:2")])
        await world.settles(3, 1, 3, 1)
        await world.clock.sleep(10)
        assert await world.images() == {"a": "a:1", "b": "a:2", "c": "a:1"}
        assert len(budget.asked) < 40
        budget.refused = set()
        await world.settles(3, 3, 3, 3, seconds=10)
        assert {disruption for _, disruption in budget.asked} == {Disruption.UPDATE}


@pytest.mark.behaviour("SS-102")
@in_world
async def test_a_refused_pod_does_not_block_others(world: World) -> None:
    await world.begin("a", "b", "c")

    world.sent.refuses("PATCH", "/pods/b", "not this one")
    await world.apply(containers=[sidecar("a:2")])
    await world.settles(3, 2, 3, 2)
    assert await world.images() == {"a": "a:2", "b": "a:1", "c": "a:2"}
    assert await world.event("FailedUpdateSidecars") == "Pod shop/b: not this one"
    world.sent.intercept = lambda _: None
    await world.settles(3, 3, 3, 3)


@pytest.mark.behaviour("SS-101", "SS-99", "SS-71")
@in_world
async def test_a_pod_with_the_image_is_only_recorded(world: World) -> None:
    await world.begin("a", updateStrategy={"type": "NotUpdate"})
    await world.apply(containers=[sidecar("a:2")], updateStrategy={"type": "NotUpdate"})
    await world.settles(1, 0, 1, 0)
    await world.user.patch(
        PODS, "a", {"spec": {"containers": [{"name": "shipper", "image": "a:2"}]}}, NAMESPACE, kind=PatchType.STRATEGIC
    )
    await world.clock.sleep(2)
    await world.apply(containers=[sidecar("a:2")])
    await world.settles(1, 1, 1, 1)
    (written,) = world.sent.to_pods("a")
    assert "spec" not in written
    state = annotation(await world.pod("a"), names.SIDECARSET_IN_PLACE_UPDATE_STATE)["s"]
    assert state["lastContainerStatuses"] == {}


@pytest.mark.behaviour("SS-99")
@in_world
async def test_the_record_of_a_container_that_never_ran_is_empty(world: World) -> None:
    await world.apply()
    await world.pods_of("a", nodeSelector={"no": "node"})
    await world.settles(1, 1, 0, 0)
    await world.apply(containers=[sidecar("a:2")])
    await world.becomes(world.images, {"a": "a:2"})
    state = annotation(await world.pod("a"), names.SIDECARSET_IN_PLACE_UPDATE_STATE)["s"]
    assert state["lastContainerStatuses"] == {"shipper": {}}


@pytest.mark.behaviour("SS-100")
@in_world
async def test_the_update_record_is_that_of_the_last_update(world: World) -> None:
    await world.begin("a")
    times = []
    for image in ("a:2", "a:3"):
        await world.clock.sleep(30)
        made = await world.apply(containers=[sidecar(image)])
        await world.settles(1, 1, 1, 1)
        state = annotation(await world.pod("a"), names.SIDECARSET_IN_PLACE_UPDATE_STATE)["s"]
        assert state["revision"] == made["metadata"]["annotations"][names.SIDECARSET_HASH]
        times.append(state["updateTimestamp"])
    assert times[0] < times[1]


@pytest.mark.behaviour("SS-55")
@in_world
async def test_an_update_reapplies_metadata_patches(world: World) -> None:
    await world.begin("a")
    patches = [
        {"annotations": {"kept": "new"}, "patchPolicy": "Retain"},
        {"annotations": {"over": "new"}, "patchPolicy": "Overwrite"},
    ]
    await world.user.patch(PODS, "a", {"metadata": {"annotations": {"kept": "old", "over": "old"}}}, NAMESPACE)
    await world.apply(patchPodMetadata=patches)
    await world.clock.sleep(5)
    assert world.sent.to_pods() == []
    await world.apply(containers=[sidecar("a:2")], patchPodMetadata=patches)

    async def found() -> tuple[str, str]:
        annotations = (await world.pod("a"))["metadata"]["annotations"]
        return annotations["kept"], annotations["over"]

    await world.becomes(found, ("old", "new"))


@pytest.mark.behaviour("SS-95", "SS-99", "SS-131")
@in_world(pace=Pace(start=0.1, restart=1.0))
async def test_two_sets_on_the_same_pods_keep_both_limits(world: World) -> None:
    await world.apply("s")
    await world.apply("t", containers=[sidecar("b:1", "tail")])
    await world.settles(0, 0, 0, 0, name="t")
    await world.pods_of("a", "b", "c", "d")
    await world.settles(4, 4, 4, 4)
    await world.settles(4, 4, 4, 4, name="t")
    await world.apply("s", containers=[sidecar("a:2")])
    await world.apply("t", containers=[sidecar("b:2", "tail")])

    async def done() -> bool:
        assert sum(not is_ready(pod) for pod in await world.pods()) <= 1
        return await world.counts() == await world.counts("t") == (4, 4, 4, 4)

    await world.until(done, "both are rolled out")
    for pod in await world.pods():
        assert set(annotation(pod, names.SIDECARSET_IN_PLACE_UPDATE_STATE)) == {"s", "t"}
        assert world.restarts(pod) == {"shipper": 1, "tail": 1, "main": 0}


# ---- back-off, whatever the time of the reconcile


class Ticking:
    """A clock that advances with every reading."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


async def refuse(*_: Any, **__: Any) -> None:
    raise KubeError("not this one")


def refusing(count: int) -> tuple[Roller, SetReconcile, Ticking]:
    """A rollout to this many Pods, none of which can be written."""
    strategy = {"type": "RollingUpdate", "maxUnavailable": count, "partition": 0}
    clock, owner, events = Ticking(), sidecar_set(updateStrategy=strategy), SimpleNamespace(event=lambda *_: None)
    roller = Roller(cast("Client", SimpleNamespace(clock=clock, patch=refuse)), cast("EventRecorder", events), None)
    found, view = pod_counts((count, OLD)), set_view(owner)
    return roller, SetReconcile(owner, view, found, Progress(), "s-1", lambda _: None, lambda _: None, {}), clock


@pytest.mark.behaviour("SS-102")
async def test_a_pod_that_keeps_failing_is_retried_each_minute() -> None:
    roller, one, clock = refusing(1)
    delays = []
    for _ in range(8):
        await roller.carry_out(one)
        (hold,) = one.progress.held.values()
        delays.append(hold.delay)
        clock.seconds = hold.until
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    paused = set_view(sidecar_set(updateStrategy={"type": "RollingUpdate", "paused": True}))
    assert await roller.carry_out(replace(one, view=paused)) == 0, "a back-off that has ended requeues nothing"


@pytest.mark.behaviour("SS-102")
async def test_a_batch_of_failing_pods_does_not_delay_the_next() -> None:
    roller, one, _ = refusing(MAX_AT_A_TIME + 1)
    assert await roller.carry_out(one) == REQUEUE_DELAY
    assert len(one.progress.held) == MAX_AT_A_TIME
    await roller.carry_out(one)
    assert len(one.progress.held) == MAX_AT_A_TIME + 1


@pytest.mark.behaviour("SS-102", "PM-171")
@pytest.mark.parametrize("early", [-0.0005 + 0.001 * number for number in range(12)])
async def test_a_pod_whose_back_off_ends_during_a_check_is_retried_soon(early: float) -> None:
    roller, one, clock = refusing(1)
    assert 0 < await roller.carry_out(one) <= 1.0
    (hold,) = one.progress.held.values()
    clock.seconds = hold.until - early
    # Either it was retried and is backing off again, or it is retried soon.
    assert await roller.carry_out(one) > 0


@pytest.mark.behaviour("SS-102")
async def test_a_pod_that_failed_once_does_not_wait_for_one_that_keeps_failing() -> None:
    roller, one, _ = refusing(2)
    await roller.carry_out(one)
    held = one.progress.held
    name, hold = held.popitem()
    held[name] = replace(hold, until=hold.until + 60)
    assert await roller.carry_out(one) <= 1.0
