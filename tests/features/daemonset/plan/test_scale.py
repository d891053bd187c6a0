"""On which nodes Pods are created, and which Pods are deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.daemonset.plan.scale import Observed, plan_scaling
from app.features.daemonset.plan.settings import Settings
from app.pods.node_fit import Eligibility
from tests.features.daemonset.plan.samples import NEW, NOW, OLD, cluster, pod
from tests.features.daemonset.plan.test_update import settings_of, states

KEEPS_ONLY, NEITHER = Eligibility(False, True, "taint"), Eligibility(False, False, "label")
STANDARD = Settings(max_unavailable=1, max_surge=0)
SURGE = Settings(max_unavailable=0, max_surge=1)


def partitioned(partition: int | str) -> Settings:
    return Settings(max_unavailable=1, partition=partition, partitioned_scaling=True)


@pytest.mark.behaviour("DS-30", "DS-74")
@pytest.mark.parametrize(("desired", "new", "partition", "candidates", "created"), [
    (10, 0, 10, range(10), ""),
    (10, 0, 9, range(10), "node-0"),
    (10, 1, 5, range(1, 10), "node-1 node-2 node-3 node-4"),
    (12, 5, 5, range(5, 12), "node-10 node-11"),
    (9, 4, 5, range(5), ""),
    (9, 4, 0, range(5), "node-0 node-1 node-2 node-3 node-4"),
    (20, 0, 15, range(11, 21), "node-11 node-12 node-13 node-14 node-15"),
    (10, 5, 100, range(6), ""),
    (10, 0, "50%", range(10), "node-0 node-1 node-2 node-3 node-4"),
])  # fmt: skip
def test_the_partition_covers_missing_pods(
    desired: int, new: int, partition: int | str, candidates: range, created: str
) -> None:
    missing = [f"node-{n}" for n in candidates]
    others = [f"other-{n}" for n in range(desired - len(missing))]
    spare = [f"spare-{n}" for n in range(new - len(others))]
    eligibility = dict.fromkeys(spare, KEEPS_ONLY)
    holding = [*others, *spare]
    pods = [pod(name, NEW if index < new else OLD) for index, name in enumerate(holding)]
    plan = plan_scaling(cluster([*missing, *holding], pods, eligibility=eligibility), partitioned(partition), {})
    assert " ".join(plan.create) == created


@pytest.mark.behaviour("DS-31", "DS-30")
def test_without_partitioned_scaling_every_node_gets_its_pod() -> None:
    pods = [pod(f"n{n}", NEW) for n in range(1, 6)] + [pod(f"n{n}") for n in range(7, 11)]
    settings = Settings(max_unavailable=1, partition=5)
    assert plan_scaling(cluster(10, pods), settings, {}).create == ["n6"]


@pytest.mark.behaviour("DS-24")
def test_a_terminating_pod_keeps_its_place_without_surge() -> None:
    observed = cluster(1, [pod("n1", terminating=True)])
    assert plan_scaling(observed, STANDARD, {}).create == []
    assert plan_scaling(observed, SURGE, {}).create == ["n1"]


@pytest.mark.behaviour("DS-25")
def test_a_pod_preparing_deletion_is_planned_for_deletion_again() -> None:
    going = pod("n1", preparing_delete=True)
    assert plan_scaling(cluster(1, [going]), STANDARD, {}).delete == [going]


@pytest.mark.behaviour("DS-25", "DS-29")
def test_a_finished_pod_is_deleted_with_backoff() -> None:
    failed = pod("n1", ended=True, available=False)
    plan = plan_scaling(cluster(1, [failed]), STANDARD, {})
    assert (plan.delete, plan.ended) == ([failed], [failed])
    held = plan_scaling(cluster(1, [failed]), STANDARD, {"n1": 3.5})
    assert (held.delete, held.create, held.waits) == ([], [], [3.5])
    assert plan_scaling(cluster(1, [failed]), SURGE, {"n1": 3.5}).create == []


@pytest.mark.behaviour("DS-25", "DS-27", "DS-47")
def test_with_surge_a_finished_pod_is_replaced_at_once() -> None:
    for hash_ in (OLD, NEW):
        failed = pod("n1", hash_, ended=True, available=False)
        plan = plan_scaling(cluster(1, [failed]), SURGE, {})
        assert (plan.delete, plan.create) == ([failed], ["n1"])
    waits = pod("n1", NEW, preparing_delete=True)
    assert plan_scaling(cluster(1, [failed, waits]), SURGE, {}).create == []


@pytest.mark.behaviour("DS-26")
def test_of_several_pods_the_oldest_stays() -> None:
    unbound, young, first = pod("n1", bound=False, age=1), pod("n1", age=3), pod("n1", age=2)
    plan = plan_scaling(cluster(1, [unbound, young, first]), STANDARD, {})
    assert plan.delete == [young, unbound]


@pytest.mark.behaviour("DS-27")
def test_with_surge_old_and_new_pods_stay_until_the_new_one_is_available() -> None:
    old, older, new, newer = pod("n1", age=2), pod("n1", age=1), pod("n1", NEW, age=3, available=False), pod("n1", NEW)
    assert set(plan_scaling(cluster(1, [old, older, new, newer]), SURGE, {}).delete) == {old, newer}
    ready = pod("n1", NEW, ready=True, available_after=NOW + 5)
    waiting = plan_scaling(cluster(1, [older, ready]), SURGE, {})
    assert waiting.delete == []
    assert waiting.waits == [pytest.approx(5.001)]
    assert plan_scaling(cluster(1, [older, pod("n1", NEW)]), SURGE, {}).delete == [older]
    broken = pod("n1", available=False)
    assert plan_scaling(cluster(1, [broken, new]), SURGE, {}).delete == [broken]
    serves, first = pod("n1", age=2), pod("n1", age=1, available=False)
    assert plan_scaling(cluster(1, [first, serves, new]), SURGE, {}).delete == [first]


@pytest.mark.behaviour("DS-28", "DS-18")
def test_pods_leave_ineligible_nodes() -> None:
    kept, gone = pod("n1"), pod("n2")
    stray, lost = pod("n9", bound=False), pod("n9")
    observed = cluster(2, [kept, gone, stray, lost], eligibility={"n1": KEEPS_ONLY, "n2": NEITHER})
    assert plan_scaling(observed, STANDARD, {}).delete == [gone, stray]


@pytest.mark.behaviour("DS-33")
def test_burst_limits_creations_and_deletions() -> None:
    pods = [one for n in range(1, 5) for one in (pod(f"n{n}"), pod(f"n{n}"))]
    plan = plan_scaling(cluster(9, pods), Settings(burst_replicas=2, max_unavailable=1), {})
    assert (len(plan.create), len(plan.delete)) == (2, 2)


@pytest.mark.behaviour("DS-24", "DS-26", "DS-27", "DS-47")
@given(states(), settings_of)
def test_surge_allows_at_most_two_pods_on_a_node(observed: Observed, settings: Settings) -> None:
    plan = plan_scaling(observed, settings, {})
    for node in observed.nodes:
        if node.name in plan.create:
            assert node.eligibility.should_run
            if not settings.surges:
                assert not node.pods
            # Finished Pods are being deleted.
            assert not any(observed.is_new(one) for one in node.live if not one.ended)
            assert all(one.preparing_delete or one.ended for one in node.live)
        left = [one for one in node.live if one not in plan.delete and not one.ended]
        assert len(left) <= 1 + settings.surges


@pytest.mark.behaviour("DS-26", "DS-27")
@given(states(), st.sampled_from([STANDARD, SURGE]))
def test_a_node_with_an_available_pod_keeps_one(observed: Observed, settings: Settings) -> None:
    plan = plan_scaling(observed, settings, {})
    for node in observed.nodes:
        running = [one for one in node.live if not one.ended and not one.preparing_delete]
        if node.eligibility.should_continue and running:
            assert [one for one in running if one not in plan.delete]
