"""Deletion costs: the tables of the rules."""

from __future__ import annotations

from collections import Counter

import pytest

from app.features.workloadspread.plan.deletion_costs import costs, first_costs, is_priced
from app.features.workloadspread.plan.subsets import NO_SUBSET
from app.kube.objects import Pod
from tests.features.workloadspread.spreads import IGNORED, pod, spread

THREE: dict[str, int | str | None] = {"a": 10, "b": 10, "c": None}


def groups(a: int = 0, b: int = 0, c: int = 0, nowhere: int = 0) -> dict[str, list[Pod]]:
    counts = {"a": a, "b": b, "c": c, NO_SUBSET: nowhere}
    return {
        name: [pod(f"{name[-1]}{number}", name) for number in range(count)] for name, count in counts.items() if count
    }


@pytest.mark.behaviour("WS-55", "WS-56")
@pytest.mark.parametrize(
    ("given", "latest", "expected"),
    [
        (groups(10, 10, 10), True, {"a 300": 10, "b 200": 10, "c 100": 10}),
        (groups(20, 20, 20), True, {"a 300": 10, "a -100": 10, "b 200": 10, "b -200": 10, "c 100": 20}),
        (groups(10, 10, 10), False, {"a 100": 10, "b 200": 10, "c 300": 10}),
        (groups(20, 20, 20), False, {"a 100": 10, "a -300": 10, "b 200": 10, "b -200": 10, "c 300": 20}),
        (groups(nowhere=2), True, {f"{NO_SUBSET} -400": 2}),
    ],
    ids=["full", "more than full", "full of an old version", "more than full of an old version", "in no subset"],
)
def test_later_subsets_are_cheaper_and_excess_pods_cheapest(
    given: dict[str, list[Pod]], latest: bool, expected: dict[str, int]
) -> None:
    found = costs(spread(THREE), {IGNORED: given}, "" if latest else "newer", 0)
    assert Counter(f"{one.subset} {one.cost}" for one in found) == expected


@pytest.mark.behaviour("WS-56")
def test_excess_pods_of_a_single_subset_have_no_cost() -> None:
    def nowhere(limit: int | None) -> list[tuple[str, str]]:
        found = costs(spread({"a": limit}), {IGNORED: groups(a=1, nowhere=1)}, "", 0)
        return sorted((one.subset, one.cost) for one in found)

    assert nowhere(1) == [("a", "100")]
    assert nowhere(None) == [("a", "100"), (NO_SUBSET, "-200")]


@pytest.mark.behaviour("WS-55")
def test_during_a_rollout_revisions_are_priced_against_each_other() -> None:
    given = {"new": groups(3, 2), "old": groups(3, 2)}
    found = costs(spread({"a": 3, "b": None}, kind="Deployment"), given, "new", 0)
    new, old = found[:5], found[5:]
    assert {(one.subset, one.cost) for one in new} == {("a", "200"), ("b", "100")}
    assert {(one.subset, one.cost) for one in old} == {("a", "100"), ("b", "200")}


@pytest.mark.behaviour("WS-55")
def test_excess_pods_are_the_least_important() -> None:
    given = [
        pod("good", "a"),
        pod("unassigned", "a", node="", phase="Pending", ready_for=None),
        pod("pending", "a", phase="Pending", ready_for=None),
        pod("unknown", "a", phase="Unknown", ready_for=None),
        pod("not-ready", "a", ready_for=None),
        pod("just-ready", "a", ready_for=1),
        pod("restarted", "a", restarts=3),
        pod("young", "a", age=10),
    ]
    order = ["unassigned", "pending", "unknown", "not-ready", "just-ready", "restarted", "young", "good"]
    for limit in range(len(given)):
        found = costs(spread({"a": limit}), {IGNORED: {"a": given}}, "", 0)
        surplus = {one.pod.metadata.name for one in found if one.cost == "-100"}
        assert surplus == set(order[: len(given) - limit])


@pytest.mark.behaviour("WS-59", "WS-55")
def test_only_differences_are_written_to_active_pods() -> None:
    given = [pod("same", "a", cost="100"), pod("other", "a", cost="7"), pod("gone", "a", deleting=True)]
    found = costs(spread({"a": None}), {IGNORED: {"a": given}}, "", 0)
    assert [(one.pod.metadata.name, one.cost) for one in found] == [("other", "100")]


@pytest.mark.behaviour("WS-58")
def test_a_replicaset_without_hash_has_one_version() -> None:
    found = costs(spread({"a": 1, "b": None}, kind="ReplicaSet"), {IGNORED: groups(1, 1)}, "", 0)
    assert {(one.subset, one.cost) for one in found} == {("a", "200"), ("b", "100")}


@pytest.mark.behaviour("WS-54")
@pytest.mark.parametrize(
    ("kind", "priced"),
    [("CloneSet", True), ("Deployment", True), ("ReplicaSet", True), ("StatefulSet", False), ("Job", False)],
)
def test_deletion_costs_are_written_only_for_workloads_that_read_them(kind: str, priced: bool) -> None:
    assert is_priced(spread({"a": 1}, kind=kind)) is priced
    assert first_costs(spread({"a": 1, "b": None}, kind=kind)) == ({"a": "200", "b": "100"} if priced else {})
