"""Which Pods are updated, and in which order."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from app.features.statefulset.plan.claims import ClaimState
from app.features.statefulset.plan.scale import plan_scaling
from app.features.statefulset.plan.settings import Gates, Settings
from app.features.statefulset.plan.update import RolloutPlan, candidates, plan_update, released
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import StepKind
from tests.features.statefulset.samples import HOOKS, NEW, NOW, OLD, pod, replicas, settings

Json = dict[str, Any]


def rollout(chosen: Settings, pods: list[Json], **options: Any) -> RolloutPlan:
    found = replicas(chosen, pods)
    listed = candidates(found, current=OLD, update=NEW)
    return plan_update(found, listed, update=NEW, now=NOW, **{"obstacle": lambda _: None, **options})


def picked(chosen: Settings, pods: list[Json], **options: Any) -> list[int]:
    return [int(step.pod.name.rpartition("-")[2]) for step in rollout(chosen, pods, **options).update.steps]


def pods_of(ordinals: range | list[int], **special: Json) -> list[Json]:
    return [special.get(f"p{ordinal}") or pod(ordinal) for ordinal in ordinals]


WEIGHTS: Json = {
    "weightPriority": [
        {"weight": 50, "matchSelector": {"matchLabels": {"a": "1"}}},
        {"weight": 30, "matchSelector": {"matchLabels": {"b": "1"}}},
    ]
}
ROLLOUTS: dict[int, tuple[Settings, list[Json], list[int], list[int]]] = {
    1: (settings(5, limit=3, partition=4), pods_of(range(5)), [4], [4]),
    2: (settings(5, limit=3), pods_of(range(5), p4=pod(4, NEW)), [4, 3, 2, 1, 0], [3, 2, 1]),
    3: (
        settings(5, limit=3),
        pods_of(range(5), p4=pod(4, NEW), p3=pod(3, NEW), p2=pod(2, NEW, ready=False), p1=pod(1, NEW, ready=False)),
        [4, 3, 2, 1, 0],
        [0],
    ),
    4: (settings(6, limit=2, partition=3), pods_of(range(6)), [5, 4, 3], [5, 4]),
    5: (settings(6, limit=2, partition=3), pods_of(range(6), p0=pod(0, terminating=True)), [5, 4, 3], [5]),
    # AS-139: OpenKruise picks none, though Pod 1 is unavailable.
    6: (settings(5), pods_of(range(5), p1=pod(1, ready=False)), [4, 3, 2, 1, 0], [1]),
    7: (settings(5), pods_of(range(5), p4=pod(4, ready=False)), [4, 3, 2, 1, 0], [4]),
    8: (settings(5, limit=2), pods_of(range(5), p3=pod(3, ready=False)), [4, 3, 2, 1, 0], [4, 3]),
    9: (settings(3, reserve=[1, 3], limit=2, partition=1), pods_of([0, 2, 4]), [4, 2], [4, 2]),
    10: (settings(3, start=5, partition=2), pods_of([5, 6, 7]), [7], [7]),
    11: (
        settings(10, limit=10, partition=6, unordered=True),
        pods_of(range(10), p6=pod(6, NEW), p7=pod(7, NEW)),
        [7, 6, 9, 8],
        [9, 8],
    ),
    12: (
        settings(6, unordered=True, priority=WEIGHTS),
        pods_of(range(6), p3=pod(3, labels={"a": "1"}), p0=pod(0, labels={"b": "1"})),
        [3, 0, 5, 4, 2, 1],
        [3],
    ),
    13: (settings(5, limit=2, partition=5), pods_of(range(5)), [], []),
    14: (
        settings(5, limit=3, min_ready=60),
        pods_of(range(5), p4=pod(4, NEW, ready_for=10), p3=pod(3, NEW, ready_for=10)),
        [4, 3, 2, 1, 0],
        [2],
    ),
    15: (settings(3, ordered=True), pods_of(range(3)), [2, 1, 0], [2]),
}


@pytest.mark.behaviour("AS-79", "AS-80", "AS-81", "AS-83", "AS-139")
@pytest.mark.parametrize("example", ROLLOUTS)
def test_updates_match_the_worked_examples(example: int) -> None:
    chosen, pods, listed, steps = ROLLOUTS[example]
    found = candidates(replicas(chosen, pods), current=OLD, update=NEW)
    assert [one.ordinal for one in found] == listed
    assert picked(chosen, pods) == steps


@pytest.mark.behaviour("AS-79", "PM-79")
@pytest.mark.parametrize(("gate", "listed"), [(True, [0, 2]), (False, [2, 1])])
def test_a_pod_held_by_its_hook_counts_as_updated_only_with_the_gate(gate: bool, listed: list[int]) -> None:
    chosen = settings(3, partition=1, unordered=True, priority=WEIGHTS, gates=Gates(preparing_update_as_update=gate))
    found = replicas(chosen, [pod(0, state="PreparingUpdate"), pod(1), pod(2, labels={"a": "1"})])
    assert [one.ordinal for one in candidates(found, current=OLD, update=NEW)] == listed


@pytest.mark.behaviour("AS-141")
def test_the_set_is_requeued_when_a_pod_becomes_available() -> None:
    chosen, pods, _, _ = ROLLOUTS[14]
    assert replicas(chosen, pods).next_available(NOW) == NOW + 50


@pytest.mark.behaviour("AS-51", "PM-114")
@pytest.mark.parametrize(("ready_for", "available"), [(59.0, False), (60.0, True), (61.0, True)])
def test_a_pod_is_available_at_the_end_of_min_ready_seconds(ready_for: float, available: bool) -> None:
    found = replicas(settings(1, min_ready=60), [pod(0, ready_for=ready_for)])
    assert (found.wanted[0].available(NOW), found.next_available(NOW) == inf) == (available, available)


@pytest.mark.behaviour("AS-77")
@pytest.mark.parametrize(("limit", "count"), [("10%", 1), ("25%", 1), ("50%", 2), ("80%", 4), (2, 2), ("x", 1)])
def test_the_limit_is_rounded_down_to_at_least_one(limit: int | str, count: int) -> None:
    assert len(picked(settings(5, limit=limit), pods_of(range(5)))) == count


@pytest.mark.behaviour("AS-75", "AS-76", "AS-86", "AS-87", "AS-142")
def test_pods_held_back_by_the_strategy_are_not_updated() -> None:
    assert not picked(settings(3, on_delete=True), pods_of(range(3)))
    marked = pods_of(range(3), p1=pod(1, marked=True))
    assert not picked(settings(3, paused=True), marked)
    assert picked(settings(3, on_delete=True), marked) == [1]
    # Raising the partition reverts no Pod, and Pods of an abandoned rollout are updated first.
    assert not picked(settings(3, partition=3), pods_of(range(3), p2=pod(2, NEW)))
    assert picked(settings(3, limit=3), [pod(0, NEW), pod(1, NEW), pod(2, "third")]) == [2]


@pytest.mark.behaviour("AS-89", "AS-90", "AS-91", "AS-94")
def test_marked_pods_are_deleted_from_the_highest_ordinal_within_the_limit() -> None:
    pods = [pod(n, NEW, marked=True, ready=n not in (1, 2)) for n in range(5)]
    assert picked(settings(5, limit=3, partition=5), pods) == [4, 2, 1]
    assert not picked(settings(2, partition=2), [pod(0), pod(1, marked=True, terminating=True)])
    # A Pod that is deleted is not updated as well.
    steps = rollout(settings(2, policy=UpdatePolicy.IN_PLACE_IF_POSSIBLE), [pod(0), pod(1, marked=True)]).update.steps
    assert [(step.pod.name, step.kind) for step in steps] == [("web-1", StepKind.RECREATE)]


@pytest.mark.behaviour("AS-78")
@pytest.mark.parametrize("other", [
    pod(0, state="Updating"),
    pod(0, state="PreparingNormal"),
    pod(0, terminating=True),
    pod(0, phase="Pending"),
    pod(0, labels={"x": "y"}, ready=False),
])  # fmt: skip
def test_unavailable_pods_count_toward_the_limit(other: Json) -> None:
    steps = picked(settings(3, partition=1), [other, pod(1), pod(2)])
    assert not steps
    assert picked(settings(3, partition=1, limit=2), [other, pod(1), pod(2)]) == [2]


@pytest.mark.behaviour("AS-78")
def test_a_slot_without_pod_uses_up_the_limit() -> None:
    assert not picked(settings(4, partition=1), [pod(1), pod(2), pod(3)])


@pytest.mark.behaviour("AS-98", "AS-100", "AS-109", "AS-110")
def test_each_pod_takes_the_step_its_state_requires() -> None:
    in_place = settings(1, policy=UpdatePolicy.IN_PLACE_IF_POSSIBLE, lifecycle=HOOKS)

    def kinds(chosen: Settings, one: Json, obstacle: str | None = None) -> list[StepKind]:
        return [step.kind for step in rollout(chosen, [one], obstacle=lambda _: obstacle).update.steps]

    assert kinds(in_place, pod(0)) == [StepKind.IN_PLACE]
    assert kinds(in_place, pod(0, hooked=True)) == [StepKind.PREPARE]
    assert kinds(in_place, pod(0, hooked=True, state="PreparingUpdate")) == []
    assert kinds(in_place, pod(0, state="PreparingUpdate")) == [StepKind.IN_PLACE]
    assert kinds(in_place, pod(0), "its volumes differ") == [StepKind.RECREATE]
    assert kinds(in_place, pod(0, hooked=True, state="PreparingDelete"), "its volumes differ") == []
    assert kinds(in_place, pod(0, state="PreparingDelete"), "its volumes differ") == [StepKind.RECREATE]
    only = settings(1, policy=UpdatePolicy.IN_PLACE_ONLY)
    failed = rollout(only, [pod(0)], obstacle=lambda _: "its volumes differ").update
    assert (failed.steps, "can not update in-place: its volumes differ" in failed.failure) == ((), True)


@pytest.mark.behaviour("AS-84", "AS-92")
def test_an_update_has_begun_while_its_hook_holds_the_pod() -> None:
    chosen = settings(4, limit=4, policy=UpdatePolicy.IN_PLACE_IF_POSSIBLE, lifecycle=HOOKS)
    held = pod(1, hooked=True, state="PreparingUpdate")
    plan = rollout(chosen, [pod(0), held, pod(2, marked=True), pod(3, hooked=True, marked=True)])
    assert [step.pod.name for step in plan.update.steps] == ["web-3", "web-2", "web-0"]
    # A deletion has not: its preDelete hook must complete first.
    assert sorted(one.name for one in plan.begun(plan.update.steps)) == ["web-0", "web-1", "web-2"]
    assert sorted(one.name for one in plan.begun(())) == ["web-1"]
    assert not rollout(chosen, [held], begin=False).begun(())


@pytest.mark.behaviour("AS-57")
def test_updates_in_progress_continue_without_capacity_for_new_ones() -> None:
    chosen = settings(4, policy=UpdatePolicy.IN_PLACE_IF_POSSIBLE, lifecycle=HOOKS)
    marked = {"apps.kruise.io/specified-delete": "true"}
    pods = [
        pod(0),
        pod(1, state="PreparingUpdate"),
        pod(2, state="PreparingDelete", labels=marked),
        pod(3, hooked=True, state="PreparingUpdate"),
    ]
    assert picked(chosen, pods, begin=False) == [2, 1]
    assert picked(chosen, [pod(0, labels=marked), *pods[1:]], begin=False) == [2, 1]


@pytest.mark.behaviour("AS-57", "AS-140")
@pytest.mark.parametrize(("options", "pods", "repaired"), [
    pytest.param({"repairs": True}, [pod(0), pod(1, ready=False), pod(2)], [1], id="it waits for an outdated Pod"),
    pytest.param({}, [pod(0), pod(1, ready=False), pod(2)], [], id="not requested"),
    pytest.param({"repairs": True}, [pod(0), pod(1, NEW, ready=False), pod(2)], [], id="it is not outdated"),
    pytest.param({"repairs": True}, [pod(0), pod(1, terminating=True), pod(2)], [], id="it is terminating"),
    pytest.param({"repairs": True}, [pod(0), pod(1, phase="Failed"), pod(2)], [], id="scaling deletes it"),
    pytest.param({"repairs": True}, [pod(0, phase="Pending")], [0], id="higher Pods do not exist yet"),
    pytest.param({"repairs": True, "min_ready": 60}, [pod(0), pod(1, ready_for=10), pod(2)], [],
     id="it will be available"),
    pytest.param({"repairs": True}, [pod(0, ready=False), pod(1), pod(2, ready=False)], [0],
     id="the lowest comes first"),
    pytest.param({"repairs": True, "partition": 2}, [pod(0), pod(1, ready=False)], [], id="the partition keeps it"),
    pytest.param({"repairs": True, "paused": True}, [pod(0), pod(1, ready=False)], [], id="paused"),
    pytest.param({"repairs": True, "on_delete": True}, [pod(0), pod(1, ready=False)], [], id="OnDelete"),
])  # fmt: skip
def test_a_broken_ordered_ready_set_is_repaired_on_request(
    options: Json, pods: list[Json], repaired: list[int]
) -> None:
    chosen = settings(3, ordered=True, **options)
    scaling = plan_scaling(replicas(chosen, pods), current=OLD, update=NEW, now=NOW)
    assert (scaling.blocked, scaling.create) == (True, [])
    assert picked(chosen, pods, begin=False, held_by=scaling.held_by) == repaired


@pytest.mark.behaviour("AS-100")
def test_a_pod_prepared_for_a_withdrawn_update_returns_to_service() -> None:
    pods = [pod(0, state="PreparingUpdate"), pod(1, NEW, state="PreparingUpdate"), pod(2, state="PreparingUpdate")]

    def back(chosen: Settings) -> list[str]:
        found = replicas(chosen, pods)
        return sorted(one.name for one in released(found, candidates(found, current=OLD, update=NEW), update=NEW))

    assert back(settings(3, partition=1)) == ["web-0", "web-1"]
    assert back(settings(3, partition=1, paused=True)) == ["web-1"]
    assert back(settings(3, on_delete=True)) == ["web-0", "web-1", "web-2"]


@pytest.mark.behaviour("AS-103", "AS-105", "AS-148")
def test_claims_expand_with_the_update() -> None:
    chosen = settings(3, limit=2, gates=Gates(auto_resize_claims=True))
    pods = [pod(0, NEW), pod(1, NEW), pod(2)]
    small, growing = ClaimState(compatible=False, completed=False), ClaimState(completed=False)
    found = rollout(chosen, pods, claims={2: small, 1: small, 0: small})
    assert ([one.ordinal for one in found.grow], found.update.steps) == ([2, 1], ())
    assert not rollout(chosen, pods, claims={2: growing}).update.steps
    waiting = ClaimState(pending=True)
    assert picked(chosen, pods, claims={1: waiting}) == [2, 1]
