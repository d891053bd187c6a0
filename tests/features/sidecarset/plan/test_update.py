"""Number, choice and order of the Pods that are updated now: the tables of SS-95 and related rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.api.fields import OrderPriorityTerm, UpdatePriorityStrategy, UpdateScatterTerm, WeightPriorityTerm
from app.features.sidecarset.plan.pod_state import PodFacts, Wait
from app.features.sidecarset.plan.settings import Strategy
from app.features.sidecarset.plan.status import Neighbor, Neighbors, PodCounts, max_unavailable_of
from app.features.sidecarset.plan.update import (
    MAX_VALUES,
    expanded,
    in_order,
    next_pods,
    next_to_idle,
    partition_of,
    room,
)
from app.kube.objects import ObjectMeta, Pod, PodCondition, PodSpec, PodStatus
from app.kube.resources import ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = PodFacts(True, False, True, "")
OLD_DOWN = PodFacts(True, False, False, "", free=True)
NEW = PodFacts(True, True, True, "")
NEW_DOWN = PodFacts(True, True, False, "")
UNSELECTED = PodFacts(True, False, True, "", wait=Wait.UNSELECTED)
BLOCKED = PodFacts(True, False, True, "", wait=Wait.BLOCKED)
IN_FLIGHT = PodFacts(True, False, False, "", wait=Wait.IN_FLIGHT, disturbed=True)
#: Not ready since our last update.
DISTURBED = PodFacts(True, False, False, "", free=True, disturbed=True)
#: Not ready because another set is being updated.
DOWN_BY_ANOTHER = PodFacts(True, False, False, "", by_others=True)


def pod(name: str, facts: PodFacts = OLD, labels: Mapping[str, str] | None = None, age: int = 0) -> Pod:
    ready = PodCondition("Ready", str(facts.ready), last_transition_time=NOW - timedelta(seconds=age))
    metadata = ObjectMeta(name, "shop", f"uid-{name}", labels=dict(labels or {}), creation_timestamp=NOW)
    return Pod(metadata, PodSpec(node_name="n"), PodStatus("Running", conditions=(ready,)))


def pod_counts(*groups: tuple[int, PodFacts]) -> PodCounts:
    found = PodCounts()
    for number, (count, facts) in enumerate(groups):
        for index in range(count):
            name = f"p{number}-{index:04}"
            found.observe(ObjectKey("shop", name), facts, pod(name, facts))
    return found


def rolling(**more: Any) -> Strategy:
    return Strategy(**{"rolling": True, "max_unavailable": 1, "partition": 0} | more)


@pytest.mark.behaviour("SS-95")
@pytest.mark.parametrize(
    ("matched", "updated", "ready", "unavailable", "partition", "now"),
    [
        (100, 30, 26, 10, 0, 6),
        (1000, 300, 260, "10%", 0, 60),
        (1000, 300, 250, "5%", 0, 0),
        (100, 30, 27, 100, 0, 70),
        (1000, 800, 760, 100, 180, 20),
        (1000, 800, 760, 100, "18%", 20),
        (1000, 800, 760, 100, 100, 60),
        (1000, 800, 760, 100, "10%", 60),
        (5, 0, 0, "5%", 0, 1),
        (5, 0, 0, 5, "99%", 1),
        (5, 0, 0, 5, "1%", 4),
        (100, 0, 0, 10, 50, 10),
        (100, 0, 0, 30, 80, 20),
        (100, 50, 50, 10, 50, 0),
        (100, 0, 0, 0, 0, 0),
        (100, 0, 0, 10, "100%", 0),
        (100, 0, 0, 10, "120%", 0),
        (100, 0, 0, 10, 1000, 0),
        (1, 0, 0, 1, "50%", 0),
        (0, 0, 0, 1, 0, 0),
    ],
)
def test_the_number_of_updates_respects_partition_and_max_unavailable(
    matched: int, updated: int, ready: int, unavailable: int | str, partition: int | str, now: int
) -> None:
    found = pod_counts((matched - updated, OLD), (ready, NEW), (updated - ready, NEW_DOWN))
    assert len(next_pods(rolling(max_unavailable=unavailable, partition=partition), found)) == now


@pytest.mark.behaviour("SS-92", "SS-95")
@pytest.mark.parametrize(
    ("groups", "limit", "taken"),
    [
        pytest.param([(970, UNSELECTED), (30, OLD)], 100, [OLD] * 30, id="only selected Pods"),
        pytest.param([(5, OLD), (3, OLD_DOWN)], 1, [*[OLD_DOWN] * 3, OLD], id="unavailable Pods are free"),
        pytest.param([(5, OLD), (3, OLD_DOWN), (1, NEW_DOWN)], 1, [OLD_DOWN] * 3, id="and an updated one counts"),
        # The image changed again while two Pods were being updated.
        pytest.param([(8, OLD), (1, IN_FLIGHT), (1, DISTURBED)], 2, [DISTURBED], id="the last update counts"),
        pytest.param([(8, OLD), (1, IN_FLIGHT), (1, DISTURBED)], 3, [DISTURBED, OLD], id="and leaves room for one"),
        # Pods that another set has made unavailable cost like available ones.
        pytest.param([(1, DOWN_BY_ANOTHER), (5, OLD)], 1, [DOWN_BY_ANOTHER], id="one down by another set"),
        pytest.param([(2, DOWN_BY_ANOTHER), (5, OLD)], 1, [], id="two down by another set"),
        pytest.param([(2, DOWN_BY_ANOTHER), (5, OLD)], 2, [DOWN_BY_ANOTHER] * 2, id="two, within the limit"),
        pytest.param([(2, DOWN_BY_ANOTHER), (1, NEW_DOWN)], 1, [], id="two, and an updated one"),
    ],
)
def test_unavailable_pods_are_updated_first_and_within_the_limit(
    groups: list[tuple[int, PodFacts]], limit: int, taken: list[PodFacts]
) -> None:
    assert [one.facts for one in next_pods(rolling(max_unavailable=limit), pod_counts(*groups))] == taken


@pytest.mark.behaviour("SS-131")
def test_a_second_rolling_set_keeps_its_limit() -> None:
    labels = {names.SIDECARSET_INJECTED_LIST: "s,t"}
    both = msgspec.structs.replace(pod("p"), metadata=ObjectMeta("p", "shop", "uid-p", annotations=labels))
    found = PodCounts()
    found.observe(ObjectKey("shop", "p"), OLD, both)

    def chosen(other: PodCounts, *, limit: int = 1, rolls: bool = True, writing: int = 0) -> int:
        beside = Neighbor(rolling(max_unavailable=limit) if rolls else Strategy(), other)
        writes = {ObjectKey("shop", f"w{number}"): "t" for number in range(writing)}
        neighbors = Neighbors("s", {"t": beside}.get, writes)
        taken = len(next_pods(rolling(), found, neighbors=neighbors))
        assert neighbors.waited is not bool(taken)
        return taken

    busy = PodFacts(True, True, False, "", disturbed=True)
    assert chosen(pod_counts((3, OLD))) == 1  # it updates no Pod
    assert chosen(pod_counts((3, NEW_DOWN))) == 1  # it did not take these Pods down
    assert chosen(pod_counts((3, OLD), (1, busy))) == 0
    assert chosen(pod_counts((3, OLD), (1, busy)), limit=2) == 1
    assert chosen(pod_counts((3, OLD)), writing=1) == 0
    assert chosen(pod_counts((3, OLD), (1, busy)), rolls=False) == 1


@pytest.mark.behaviour("SS-81", "SS-131")
def test_sets_that_end_hot_upgrades_do_not_wait_for_each_other() -> None:
    labels = {names.SIDECARSET_INJECTED_LIST: "s,t"}
    ready = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
    both = Pod(metadata=ObjectMeta("p", "shop", "uid-p", annotations=labels), status=ready)
    found = PodCounts()
    found.observe(ObjectKey("shop", "p"), PodFacts(True, True, False, "", disturbed=True, migrated=True), both)

    def idled(other: PodCounts, *, limit: int = 1) -> int:
        beside = Neighbor(rolling(max_unavailable=limit), other)
        return len(next_to_idle(rolling(), found, (), Neighbors("s", {"t": beside}.get, {})))

    waiting = PodFacts(True, True, False, "", disturbed=True, migrated=True)
    down = PodFacts(True, True, False, "", disturbed=True, down=True)
    assert idled(pod_counts((3, waiting))) == 1
    assert idled(pod_counts((3, waiting), (1, down))) == 0
    assert idled(pod_counts((3, waiting), (1, down)), limit=2) == 1
    assert idled(pod_counts((3, waiting)), limit=0) == 1  # at least one Pod, or no upgrade would ever end


@pytest.mark.behaviour("SS-124")
def test_the_partition_covers_all_outdated_pods() -> None:
    found = pod_counts((4, OLD), (3, BLOCKED), (1, IN_FLIGHT), (2, NEW))
    # Eight are outdated; five stay outdated, including the four that cannot be updated now.
    assert room(rolling(max_unavailable=10, partition=5), found).pods == 3
    assert len(next_pods(rolling(max_unavailable=10, partition=5), found)) == 3
    assert len(next_pods(rolling(max_unavailable=10, partition=8), found)) == 0


@pytest.mark.behaviour("SS-103")
@pytest.mark.parametrize("strategy", [rolling(paused=True), Strategy(rolling=False, max_unavailable=1)])
def test_paused_and_not_update_update_no_pod(strategy: Strategy) -> None:
    assert next_pods(strategy, pod_counts((5, OLD))) == []


@pytest.mark.behaviour("SS-102")
def test_a_postponed_pod_yields_its_turn() -> None:
    found = pod_counts((3, OLD))
    assert [one.pod.metadata.name for one in next_pods(rolling(), found)] == ["p0-0000"]
    assert [one.pod.metadata.name for one in next_pods(rolling(), found, {"uid-p0-0000"})] == ["p0-0001"]
    # A Pod that may have been updated counts as unavailable and against the partition.
    assert next_pods(rolling(), found, {"uid-p0-0000"}, uncertain=1) == []
    assert next_pods(rolling(max_unavailable=3, partition=2), found, {"uid-p0-0000"}, uncertain=1) == []


@pytest.mark.behaviour("SS-95")
def test_an_unreadable_limit_updates_no_pod() -> None:
    assert partition_of("a lot", 10) == 10
    assert max_unavailable_of("a lot", 10) == 0
    assert partition_of(None, 10) == 0


@pytest.mark.behaviour("SS-94")
def test_the_least_useful_pod_is_updated_first() -> None:
    found = PodCounts()
    for name, age in (("long", 500), ("short", 5), ("middle", 50)):
        found.observe(ObjectKey("shop", name), OLD, pod(name, age=age))
    found.observe(ObjectKey("shop", "down"), OLD_DOWN, pod("down", OLD_DOWN))
    ordered = in_order(rolling(), found.waiting, found)
    assert [one.pod.metadata.name for one in ordered] == ["down", "short", "middle", "long"]


def _labeled(labels: Sequence[Mapping[str, str]]) -> PodCounts:
    found = PodCounts()
    for index, one in enumerate(labels):
        found.observe(ObjectKey("shop", f"p{index}"), OLD, pod(f"p{index}", labels=one))
    return found


@pytest.mark.behaviour("SS-94")
def test_priority_by_weight_and_by_order() -> None:
    labels = [{"tier": "a"}, {"tier": "b"}, {"rank": "n-2"}, {"rank": "n-10"}, {}]
    found = _labeled(labels)
    weights = [
        WeightPriorityTerm.model_validate({"weight": 20, "matchSelector": {"matchLabels": {"tier": "b"}}}),
        WeightPriorityTerm.model_validate({"weight": 10, "matchSelector": {"matchLabels": {"tier": "a"}}}),
    ]
    strategy = rolling(priority=UpdatePriorityStrategy(weight_priority=weights))
    order = [one.pod.metadata.name for one in in_order(strategy, found.waiting, found)]
    assert order[:2] == ["p1", "p0"]
    by_order = UpdatePriorityStrategy(order_priority=[OrderPriorityTerm(ordered_key="rank")])
    order = [one.pod.metadata.name for one in in_order(rolling(priority=by_order), found.waiting, found)]
    # Pods without the key come first, then the larger number.
    assert order[-2:] == ["p3", "p2"]


@pytest.mark.behaviour("SS-94")
def test_scatter_terms_apply_per_value() -> None:
    found = _labeled([{"zone": "a"}] * 3 + [{"zone": "b"}] * 3 + [{}] * 3)
    star = UpdateScatterTerm(key="zone", value="*")
    named = UpdateScatterTerm(key="zone", value="b")
    assert [(one.key, one.value) for one in expanded([named, star], found.matched())] == [("zone", "b"), ("zone", "a")]
    order = [
        one.pod.metadata.labels.get("zone", "-") for one in in_order(rolling(scatter=[star]), found.waiting, found)
    ]
    assert sorted(order) == sorted(["a"] * 3 + ["b"] * 3 + ["-"] * 3)
    assert order != ["a"] * 3 + ["b"] * 3 + ["-"] * 3


@pytest.mark.behaviour("SS-94", "MGR-164")
def test_a_star_stands_for_the_values_of_most_pods() -> None:
    """Each value is a term that reorders all Pods, and users may give each Pod a value of its own."""
    found = _labeled([{"zone": f"{number:03}"} for number in range(MAX_VALUES)] + [{"zone": "z"}] * 2)
    values = [one.value for one in expanded([UpdateScatterTerm(key="zone", value="*")], found.matched())]
    assert values == [*(f"{number:03}" for number in range(MAX_VALUES - 1)), "z"]


_FACTS = st.sampled_from([OLD, OLD_DOWN, NEW, NEW_DOWN, UNSELECTED, BLOCKED, IN_FLIGHT, DISTURBED, DOWN_BY_ANOTHER])
_LIMITS = st.one_of(st.integers(0, 30), st.integers(0, 120).map(lambda part: f"{part}%"))


@pytest.mark.behaviour("SS-95", "SS-124")
@given(st.lists(st.tuples(st.integers(0, 6), _FACTS), max_size=8), _LIMITS, _LIMITS)
def test_both_limits_always_hold(
    groups: list[tuple[int, PodFacts]], unavailable: int | str, partition: int | str
) -> None:
    found = pod_counts(*groups)
    taken = next_pods(rolling(max_unavailable=unavailable, partition=partition), found)
    counts = found.counts
    outdated = counts.matched - counts.updated
    kept = partition_of(partition, counts.matched)
    assert outdated - len(taken) >= min(kept, outdated)
    down = found.unavailable + sum(not one.facts.free for one in taken)
    assert down <= max(found.unavailable, max_unavailable_of(unavailable, counts.matched))
    # No further Pod is taken down while the Pods that any set has taken down reach the limit.
    down = found.disturbed + sum(one.facts.ready for one in taken)
    assert down <= max(found.disturbed, max_unavailable_of(unavailable, counts.matched))
    assert all(one.facts.wait is Wait.NO and not one.facts.updated for one in taken)
