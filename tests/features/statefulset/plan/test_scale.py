"""Which Pods are created and deleted, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.statefulset.plan.scale import ScalePlan, plan_scaling
from app.features.statefulset.plan.settings import Gates, Settings
from app.workloads.pods import MAX_CREATIONS
from tests.features.statefulset.samples import HOOKS, NEW, NOW, OLD, pod, replicas, settings

Json = dict[str, Any]


def plan(chosen: Settings, pods: list[Json], **options: Any) -> ScalePlan:
    return plan_scaling(replicas(chosen, pods), current=OLD, update=NEW, now=NOW, **options)


def created(found: ScalePlan) -> list[int]:
    return [ordinal for ordinal, _ in found.create]


def deleted(found: ScalePlan) -> list[int]:
    return [one.ordinal for one in found.delete]


@pytest.mark.behaviour("AS-50", "AS-62", "AS-64")
@pytest.mark.parametrize(
    ("count", "reserve", "create", "delete"),
    [(4, [1, 3], [5], [3]), (3, [1, 3], [], [3]), (4, [], [1], [4]), (2, [1], [], [4, 3]), (6, [1], [5, 6], [])],
)
def test_a_parallel_set_creates_and_deletes_all_pods_at_once(
    count: int, reserve: list[int], create: list[int], delete: list[int]
) -> None:
    found = plan(settings(count, reserve=reserve), [pod(ordinal) for ordinal in (0, 2, 3, 4)])
    assert (created(found), deleted(found)) == (create, delete)


@pytest.mark.behaviour("AS-52", "AS-57", "AS-60", "AS-61")
@pytest.mark.parametrize(("wanted", "unready", "delete"), [
    (2, [], [4]),
    (2, [1], []),
    (2, [3], [4]),
    (2, [2, 3], [4]),
])  # fmt: skip
def test_an_ordered_scale_in_deletes_the_highest_ordinal(wanted: int, unready: list[int], delete: list[int]) -> None:
    pods = [pod(ordinal, ready=ordinal not in unready) for ordinal in range(5)]
    assert deleted(plan(settings(wanted, ordered=True), pods)) == delete


@pytest.mark.behaviour("AS-61", "AS-132")
def test_an_ordered_scale_in_deletes_one_pod_at_a_time() -> None:
    chosen = settings(2, ordered=True)
    assert deleted(plan(chosen, [*map(pod, range(4)), pod(4, terminating=True)])) == []
    assert deleted(plan(chosen, [*map(pod, range(4))])) == [3]
    # Pod 3 is the first unhealthy one, so it may be deleted.
    assert deleted(plan(chosen, [*map(pod, range(3)), pod(3, ready=False)])) == [3]
    # Pod 2 is the first unhealthy one, so Pod 3 waits.
    assert deleted(plan(chosen, [pod(0), pod(1), pod(2, ready=False), pod(3, ready=False)])) == []
    # Finished Pods are not waited for.
    assert deleted(plan(chosen, [pod(0), pod(1), pod(2, phase="Failed"), pod(3, phase="Failed")])) == [3]
    young = [*map(pod, range(4)), pod(4, ready_for=10)]
    assert deleted(plan(settings(3, ordered=True, min_ready=30), young)) == []


@pytest.mark.behaviour("AS-60", "AS-62")
def test_a_parallel_scale_in_deletes_all_from_the_highest_down() -> None:
    pods = [pod(0), pod(1, ready=False), pod(2, ready=False), pod(3), pod(4, terminating=True)]
    assert deleted(plan(settings(2), pods)) == [3, 2]


@pytest.mark.behaviour("AS-48", "AS-60")
def test_a_changed_start_deletes_lower_ordinals() -> None:
    assert deleted(plan(settings(3, start=7), [pod(ordinal) for ordinal in range(5, 10)])) == [6, 5]


@pytest.mark.behaviour("AS-55", "AS-57", "AS-141")
@pytest.mark.parametrize(("pods", "create", "delete"), [
    ([], [0], []),
    ([pod(0, ready=False)], [], []),
    ([pod(0)], [1], []),
    ([pod(0), pod(1, terminating=True), pod(2)], [], []),
    ([pod(0), pod(1, phase="Failed"), pod(2)], [], [1]),
    ([pod(0), pod(1), pod(2), pod(3), pod(4), pod(5, ready=False)], [], [5]),
    ([pod(0), pod(2), pod(9)], [1], []),
], ids=["none", "not-ready", "next", "terminating", "failed", "surplus", "hole"])  # fmt: skip
def test_an_ordered_set_creates_one_pod_at_a_time(pods: list[Json], create: list[int], delete: list[int]) -> None:
    found = plan(settings(5, ordered=True), pods)
    assert (created(found), deleted(found), found.blocked) == (create, delete, True)


@pytest.mark.behaviour("AS-54", "AS-58", "AS-59")
def test_creations_are_limited_by_unavailable_pods() -> None:
    chosen = settings(100, scale_limit="10%")
    assert created(plan(chosen, [])) == list(range(10))
    half = [pod(ordinal, ready=ordinal < 4) for ordinal in range(10)]
    assert created(plan(chosen, half)) == [10, 11, 12, 13]
    assert created(plan(chosen, [pod(ordinal, ready=False) for ordinal in range(10)])) == []
    surplus = [pod(ordinal, ready=False) for ordinal in (*range(10), 100, 101)]
    assert deleted(plan(chosen, surplus)) == [101, 100]


@pytest.mark.behaviour("AS-138")
def test_finished_pods_are_deleted_over_the_limit_and_terminating_ones_count_once() -> None:
    chosen = settings(4, scale_limit=1)
    assert deleted(plan(chosen, [pod(0, phase="Failed"), pod(1)])) == [0]
    assert created(plan(settings(4, scale_limit=2), [pod(0, terminating=True), pod(1), pod(2)])) == [3]


@pytest.mark.behaviour("AS-41")
@pytest.mark.parametrize(("chosen", "pods", "new"), [
    (settings(3, partition=2), [], [False, False, True]),
    (settings(3, partition=2, reserve=[1]), [], [False, False, True]),
    (settings(3, partition=2, on_delete=True), [], [True, True, True]),
    (settings(3, partition=2, paused=True), [], [False, False, True]),
    (settings(4, partition=2, unordered=True), [pod(0), pod(3, NEW)], [False, True]),
    (settings(3, partition=1, unordered=True, gates=Gates(preparing_update_as_update=True)), [pod(0,
     state="PreparingUpdate")], [False, True]),
])  # fmt: skip
def test_the_partition_decides_the_revision_of_new_pods(chosen: Settings, pods: list[Json], new: list[bool]) -> None:
    assert [is_new for _, is_new in plan(chosen, pods).create] == new


@pytest.mark.behaviour("AS-98", "AS-102")
def test_a_hook_delays_the_deletion_and_the_order() -> None:
    chosen = settings(2, ordered=True, lifecycle=HOOKS)
    pods = [pod(0), pod(1), pod(2, hooked=True), pod(3, hooked=True)]
    found = plan(chosen, pods)
    assert ([one.ordinal for one in found.prepare], deleted(found)) == ([3], [])
    found = plan(chosen, [*pods[:3], pod(3, hooked=True, state="PreparingDelete")])
    assert (found.prepare, deleted(found)) == ([], [])
    assert deleted(plan(chosen, [*pods[:3], pod(3, state="PreparingDelete")])) == [3]


@pytest.mark.behaviour("AS-101")
@pytest.mark.parametrize(("waiting", "options", "back"), [
    (pod(2, NEW, state="PreparingDelete"), {}, [2]),
    (pod(2, OLD, state="PreparingDelete"), {}, []),
    (pod(2, OLD, state="PreparingDelete"), {"partition": 3}, [2]),
    (pod(2, OLD, state="PreparingDelete"), {"unordered": True}, []),
    (pod(2, OLD, state="PreparingDelete"), {"unordered": True, "partition": 3}, [2]),
    (pod(2, NEW, state="PreparingDelete", marked=True), {}, []),
    (pod(2, NEW, state="PreparingDelete", terminating=True), {}, []),
    (pod(2, NEW, state="PreparingDelete", phase="Failed"), {}, []),
])  # fmt: skip
def test_a_pod_needed_again_is_revived(waiting: Json, options: Json, back: list[int]) -> None:
    found = plan(settings(3, lifecycle=HOOKS, **options), [pod(0), pod(1), waiting])
    assert [one.ordinal for one in found.cancel_deletion] == back


@pytest.mark.behaviour("AS-76", "AS-101")
def test_a_paused_update_replaces_no_pod_and_waiting_pods_return_to_service() -> None:
    waiting = pod(1, OLD, state="PreparingDelete")
    found = plan(settings(3, ordered=True, paused=True, lifecycle=HOOKS), [pod(0), waiting])
    assert [one.ordinal for one in found.cancel_deletion] == [1]


def test_a_pod_that_just_advanced_waits_for_the_next_reconcile() -> None:
    found = plan(settings(1), [pod(0), pod(1), pod(2)])
    moved = frozenset(one.facts for one in found.delete if one.ordinal == 2)
    assert [one.ordinal for one in found.without(moved).delete] == [1]
    assert found.without(frozenset()) is found


@pytest.mark.behaviour("AS-67", "AS-71")
def test_a_terminating_claim_delays_only_its_pod_unless_ordered() -> None:
    def claim(ordinal: int) -> str:
        return "data-web-1" if ordinal == 1 else ""

    found = plan(settings(3), [pod(0)], claim_in_the_way=claim)
    assert (created(found), found.waits_for) == ([2], ["data-web-1"])
    found = plan(settings(3, ordered=True), [pod(0)], claim_in_the_way=claim)
    assert (created(found), found.waits_for, found.blocked) == ([], ["data-web-1"], True)


def test_a_large_set_is_created_in_batches() -> None:
    assert len(plan(settings(2**31 - 1), []).create) == MAX_CREATIONS
    assert not plan(settings(2**31 - 1), [], claim_in_the_way=lambda ordinal: f"c-{ordinal}").create
