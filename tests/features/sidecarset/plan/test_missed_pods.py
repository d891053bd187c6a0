"""Conditions of Pods that were created without their sidecars, and of their sets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.plan.missed_pods import message, missing_from, pod_patch, set_conditions
from app.kube.objects import Pod, decode_pod
from app.kube.resources import PODS
from tests.features.sidecarset.rolling_world import NAMESPACE, World, in_world

pytestmark = pytest.mark.behaviour("SS-136")
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
SETS = st.lists(st.from_regex(r"[a-z]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True), min_size=1, max_size=8, unique=True)


def bypassed(*sets: str, name: str = "web-0", injected: str = "", said: str | None = None, **status: Any) -> Any:
    """A stored Pod whose condition names these sets."""
    text = message(sets) if said is None else said
    conditions = [{"type": "SidecarsMissing", "status": "True", "message": text}]
    annotations = {"kruise.io/sidecarset-injected-list": injected} if injected else {}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-of-{name}", "annotations": annotations}
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running", "conditions": conditions} | status}


def read(stored: Any) -> Pod:
    return decode_pod(orjson.dumps(stored))


@given(SETS)
def test_a_pod_names_the_sets_it_was_marked_with(sets: list[str]) -> None:
    patch = pod_patch(read(bypassed("x")), sets, NOW)
    (condition,) = patch["status"]["conditions"]
    assert missing_from(read(bypassed(said=condition["message"]))) == tuple(sets)


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        pytest.param(bypassed("logs", "mesh", injected="mesh"), ("logs",), id="present sidecars are not missing"),
        pytest.param(bypassed("logs", phase="Failed"), (), id="a finished Pod"),
        pytest.param(bypassed("logs", conditions=[]), (), id="no condition"),
        pytest.param(bypassed(said="SidecarSet " + "a, " * 100_000), ("a",), id="a condition of another writer"),
        pytest.param(bypassed(said="not our message"), (), id="another message"),
    ],
)
def test_only_a_condition_of_ours_names_missing_sets(stored: Any, missing: tuple[str, ...]) -> None:
    assert missing_from(read(stored)) == missing


def test_a_set_lists_three_pods_and_counts_the_others() -> None:
    pods = [read(bypassed("logs", name=f"web-{number}")) for number in range(5)]
    (condition,) = set_conditions(None, pods, NOW) or []
    assert condition["message"].startswith("5 Pods run without")
    assert condition["message"].endswith("shop/web-0, shop/web-1, shop/web-2 and 2 more")
    fewer = set_conditions([condition], pods[:1], LATER) or []
    assert [one["lastTransitionTime"] for one in fewer] == ["2026-11-22T12:00:00Z"]


def test_foreign_conditions_are_kept_and_writes_are_idempotent() -> None:
    other = {"type": "Audited", "status": "True"}
    pods = [read(bypassed("logs"))]
    conditions = set_conditions([other], pods, NOW)
    assert conditions is not None
    assert conditions[0] == other
    assert set_conditions(conditions, pods, LATER) is None
    assert set_conditions(conditions, [], LATER) == [other]
    assert set_conditions([other], [], LATER) is None


@in_world(nodes=0)
async def test_the_set_status_counts_missed_pods_until_they_are_deleted(world: World) -> None:
    await world.apply("logs", selector={"matchLabels": {"app": "db"}})
    for name in ("web-0", "web-1"):
        await world.pods_of(name)
        status = pod_patch(read(await world.pod(name)), ["logs"], NOW)["status"]
        await world.user.patch(PODS, name, {"status": status}, NAMESPACE, subresource="status")

    async def said() -> str:
        await world.clock.sleep(1)
        conditions = (await world.status("logs")).get("conditions") or []
        return ", ".join(f"{one['type']} {one['status']}: {one['message']}" for one in conditions)

    assert (await said()).startswith("PodsMissed True: 2 Pods run without the containers")
    assert "shop/web-0" in await said()
    await world.user.delete(PODS, "web-0", NAMESPACE, grace_period_seconds=0)
    assert (await said()).startswith("PodsMissed True: 1 Pod runs")
    await world.user.delete(PODS, "web-1", NAMESPACE, grace_period_seconds=0)
    assert await said() == ""
