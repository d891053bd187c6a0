"""The status of subsets, and the Pods to reschedule."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.workloadspread.plan.status import Missed, Outcome, compute
from app.features.workloadspread.types import SubsetStatus
from app.kube.objects import Pod
from tests.features.workloadspread.spreads import IGNORED, NOW, Json, ago, condition, pod, spread


def versioned(outcome: Outcome, version: str = IGNORED) -> dict[str, SubsetStatus]:
    return {one.name: one for one in (outcome.status.versioned_subset_statuses or {})[version]}


def members(count: int, subset: str = "a", **more: Any) -> list[Pod]:
    return [pod(f"{subset}{number}", subset, **more) for number in range(count)]


@pytest.mark.behaviour("WS-60", "WS-61", "WS-62", "WS-76")
@pytest.mark.parametrize(
    ("limit", "wanted", "active", "deleting", "creating", "missing", "missed"),
    [
        (5, 0, 0, {}, {}, 5, []),
        (5, 0, 2, {}, {"new": 1}, 2, []),
        (5, 0, 5, {}, {}, 0, []),
        (5, 0, 5, {"a0": 1}, {}, 1, []),
        (5, 0, 5, {"a0": 16}, {}, 0, [Missed("a0", coming=False)]),
        (5, 0, 1, {}, {"new": 31}, 4, [Missed("new", coming=True)]),
        (3, 0, 5, {"a0": 1}, {}, 0, []),
        ("80%", 5, 1, {}, {}, 3, []),
        (None, 0, 3, {}, {}, -1, []),
        (5, 0, 1, {}, {"a0": 1}, 4, []),
        (5, 0, 1, {"gone": 1}, {}, 4, []),
    ],
)
def test_places_are_the_remaining_ones(
    limit: Any,
    wanted: int,
    active: int,
    deleting: dict[str, float],
    creating: dict[str, float],
    missing: int,
    missed: Any,
) -> None:
    before: Json = {
        "name": "a",
        "replicas": 0,
        "missingReplicas": 0,
        "creatingPods": {name: ago(seconds) for name, seconds in creating.items()},
        "deletingPods": {name: ago(seconds) for name, seconds in deleting.items()},
    }
    pods = [*members(active), pod("done", "a", phase="Succeeded"), pod("leaving", "a", deleting=True)]
    outcome = compute(spread({"a": limit}, {IGNORED: [before]}), {IGNORED: {"a": pods}}, wanted, NOW)
    found = versioned(outcome)["a"]
    assert (found.replicas, found.missing_replicas, outcome.missed) == (active, missing, missed)


@pytest.mark.behaviour("WS-61")
def test_a_created_pod_is_matched_by_uid() -> None:
    before = {"name": "a", "replicas": 0, "missingReplicas": 4, "creatingPods": {"u-1": ago(1), "u-2": ago(1)}}
    pods = [pod("shop-x7k", "a", uid="u-1")]
    outcome = compute(spread({"a": 5}, {IGNORED: [before]}), {IGNORED: {"a": pods}}, 0, NOW)
    assert versioned(outcome)["a"].creating_pods == {"u-2": ago(1)}
    assert outcome.again_after == 29


@pytest.mark.behaviour("WS-61")
def test_a_terminating_pod_is_not_its_successor() -> None:
    before = {"name": "a", "replicas": 1, "missingReplicas": 3, "creatingPods": {"p": ago(1)}}
    outcome = compute(spread({"a": 5}, {IGNORED: [before]}), {IGNORED: {"a": [pod("p", "a", deleting=True)]}}, 0, NOW)
    assert versioned(outcome)["a"].creating_pods == {"p": ago(1)}
    outcome = compute(spread({"a": 5}, {IGNORED: [before]}), {IGNORED: {"a": [pod("p", "a")]}}, 0, NOW)
    assert versioned(outcome)["a"].creating_pods is None


@pytest.mark.behaviour("WS-61")
@pytest.mark.parametrize(
    ("text", "holds"),
    [("garbage", False), ("", False), (ago(-10), True), (ago(-3600), False), ("2026-01-01T12:00:00", False)],
)
def test_an_invalid_time_reserves_no_place(text: str, holds: bool) -> None:
    before = {"name": "a", "replicas": 0, "missingReplicas": 4, "creatingPods": {"p": text}}
    outcome = compute(spread({"a": 5}, {IGNORED: [before]}), {IGNORED: {"a": []}}, 0, NOW)
    assert versioned(outcome)["a"].missing_replicas == (4 if holds else 5)


@pytest.mark.behaviour("WS-60")
def test_a_version_is_kept_while_it_has_pods() -> None:
    empty = {"name": "a", "replicas": 0, "missingReplicas": 5}
    coming = {**empty, "creatingPods": {"p": ago(1)}}
    late = {**empty, "creatingPods": {"p": ago(60)}}
    given = spread({"a": 5}, {"empty": [empty], "coming": [coming], "late": [late]})
    found = compute(given, {"seen": {"a": members(2)}}, 0, NOW).status
    assert set(found.versioned_subset_statuses or {}) == {"seen", "coming"}
    assert [(one.name, one.replicas, one.missing_replicas) for one in found.subset_statuses or ()] == [("a", 2, 3)]
    assert found.observed_generation == 3


@pytest.mark.behaviour("WS-60")
def test_subsets_are_matched_by_name_and_follow_the_spec() -> None:
    before = [
        {"name": "gone", "replicas": 1, "missingReplicas": 0},
        {"name": "b", "replicas": 0, "missingReplicas": 4, "creatingPods": {"p": ago(1)}},
        {"name": "a", "replicas": 0, "missingReplicas": 5},
    ]
    found = versioned(compute(spread({"a": 5, "b": 5}, {IGNORED: before}), {IGNORED: {}}, 0, NOW))
    assert list(found) == ["a", "b"]
    assert found["b"].creating_pods == {"p": ago(1)}


def schedulable(outcome: Outcome, subset: str) -> tuple[str, str, str] | None:
    statuses = {one.name: one for one in outcome.status.subset_statuses or ()}
    conditions = statuses[subset].conditions
    return (conditions[0].status, conditions[0].reason, conditions[0].last_transition_time) if conditions else None


WAITING = pod("late", "a", unschedulable=True, age=31)
YES, NO = "Sufficient", "PodUnschedulable"


@pytest.mark.behaviour("WS-65", "WS-66", "WS-67")
@pytest.mark.parametrize(
    ("former", "pods", "after", "recovered", "again"),
    [
        (None, [], ("True", YES, ago(0)), [], None),
        (None, [WAITING], ("False", NO, ago(0)), [], None),
        (("True", 400), [WAITING], ("False", NO, ago(0)), [], None),
        (("False", 100), [WAITING], ("False", NO, ago(100)), [], None),
        (("False", 299), [], ("False", NO, ago(299)), [], 1),
        (("False", 300), [], ("True", YES, ago(0)), ["a"], None),
        (("True", 50), [], ("True", YES, ago(50)), [], None),
    ],
)
def test_a_subset_that_loses_pods_is_unschedulable_for_a_while(
    former: tuple[str, float] | None, pods: list[Pod], after: Any, recovered: list[str], again: float | None
) -> None:
    overall = [
        {"name": "a", "replicas": 0, "missingReplicas": 5} | ({"conditions": [condition(*former)]} if former else {})
    ]
    outcome = compute(spread({"a": 5, "b": None}, {}, overall=overall, critical=30), {IGNORED: {"a": pods}}, 0, NOW)
    assert schedulable(outcome, "a") == after
    assert outcome.recovered == recovered
    assert outcome.again_after == again
    assert outcome.moved_on == [("a", one) for one in pods]


@pytest.mark.behaviour("WS-66")
def test_the_last_subset_always_takes_pods() -> None:
    waiting = pod("late", "b", unschedulable=True, age=1000)
    overall = [{"name": "b", "replicas": 1, "missingReplicas": -1, "conditions": [condition("False")]}]
    outcome = compute(
        spread({"a": 5, "b": None}, {}, overall=overall, critical=30), {IGNORED: {"b": [waiting]}}, 0, NOW
    )
    assert schedulable(outcome, "b") == ("True", YES, ago(0))
    assert outcome.moved_on == []


@pytest.mark.behaviour("WS-64")
@pytest.mark.parametrize("critical", [None, 0])
def test_without_a_deadline_no_pod_is_rescheduled(critical: int | None) -> None:
    overall = [{"name": "a", "replicas": 1, "missingReplicas": 4, "conditions": [condition("False")]}]
    given = spread({"a": 5, "b": None}, {}, overall=overall, critical=critical)
    outcome = compute(given, {IGNORED: {"a": [WAITING]}}, 0, NOW)
    assert schedulable(outcome, "a") is None
    assert outcome.moved_on == []


@pytest.mark.behaviour("WS-65", "WS-47")
@pytest.mark.parametrize(
    ("waiting", "late", "again"),
    [
        (pod("p", "a", unschedulable=True, age=31), True, None),
        (pod("p", "a", unschedulable=True, age=10), False, 20.01),
        (pod("p", "a", unschedulable=True, age=31, deleting=True), False, None),
        (pod("p", "a", phase="Pending", age=31), False, None),
        (pod("p", "a", phase="Pending", node="", age=31), False, None),
    ],
)
def test_a_pod_unschedulable_past_the_deadline_is_rescheduled(waiting: Pod, late: bool, again: float | None) -> None:
    outcome = compute(spread({"a": 5, "b": None}, critical=30), {IGNORED: {"a": [waiting]}}, 0, NOW)
    assert bool(outcome.moved_on) is late
    assert outcome.again_after == again


@pytest.mark.behaviour("WS-68")
def test_a_version_first_seen_by_the_controller_knows_unschedulable_subsets() -> None:
    overall = [{"name": "a", "replicas": 0, "missingReplicas": 5, "conditions": [condition("False", 10)]}]
    outcome = compute(spread({"a": 5, "b": None}, {}, overall=overall, critical=30), {"new": {"a": members(1)}}, 0, NOW)
    conditions = versioned(outcome, "new")["a"].conditions
    assert conditions is not None
    assert conditions[0].status == "False"


@pytest.mark.behaviour("WS-63")
def test_recomputing_changes_nothing() -> None:
    given = spread({"a": 5, "b": None}, critical=30)
    versions = {IGNORED: {"a": members(2), "b": members(1, "b")}}
    once = compute(given, versions, 0, NOW)
    again = compute(given.model_copy(update={"status": once.status}), versions, 0, NOW)
    assert again.status.to_dict() == once.status.to_dict()
