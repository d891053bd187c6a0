"""Which nodes are updated next: worked examples and invariants."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.daemonset.plan.scale import DaemonPod, Observed
from app.features.daemonset.plan.settings import Gates, Settings
from app.features.daemonset.plan.update import NOTHING, node_state, plan_update, update_candidates
from app.kube.selectors import EVERYTHING
from app.pods.node_fit import Eligibility
from tests.features.daemonset.plan.samples import NEW, NOW, cluster, nodes_of, old_pods, pod

KEEPS_ONLY = Eligibility(False, True, "taint")


@dataclass
class Example:
    """Settings, the Pods that differ, and the expected update."""

    settings: Settings
    pods: list[DaemonPod] = field(default_factory=list)
    order: str = "n5 n4 n3 n2 n1"
    unavailable: int | None = 0
    picks: str = ""
    create: str = ""
    nodes: int = 5
    selected: str | None = None
    gone: tuple[str, ...] = ()

    @property
    def observed(self) -> Observed:
        pods = [one for one in old_pods(*self.pods, nodes=self.nodes) if one.node not in self.gone]
        return cluster(self.nodes, pods, selected=self.selected.split() if self.selected is not None else None)


def limit(number: int | str = 1, **more: object) -> Settings:
    return Settings(max_unavailable=number, max_surge=0, **more)  # type: ignore[arg-type]


def surge(number: int, **more: object) -> Settings:
    return Settings(max_unavailable=0, max_surge=number, **more)  # type: ignore[arg-type]


def new(node: str, *, available: bool = True) -> DaemonPod:
    return pod(node, NEW, available=available)


def selecting(number: int | str = 1, **more: object) -> Settings:
    return limit(number, node_selector=EVERYTHING, **more)


EXAMPLES = {
    "1": Example(limit(2), picks="n5 n4"),
    "2 terminating": Example(
        limit(2), [pod("n5", terminating=True), pod("n4", terminating=True)], unavailable=2
    ),
    "2 gone": Example(limit(2), gone=("n5", "n4"), unavailable=2),
    "3": Example(limit(2), [new("n5", available=False), new("n4", available=False)], unavailable=2),
    "4": Example(limit(2), [new("n5"), new("n4")], picks="n3 n2"),
    "5": Example(limit(1), [pod("n1", available=False), pod("n2", available=False)], picks="n2 n1 n5"),
    "6": Example(limit(1), [new("n5", available=False), pod("n1", available=False)], unavailable=1, picks="n1"),
    "7": Example(limit("30%"), picks="n5 n4"),
    "8": Example(limit(1, partition=3), order="n5 n4", picks="n5"),
    "8 later": Example(limit(1, partition=3), [new("n5")], order="n5 n4", picks="n4"),
    "8 end": Example(limit(1, partition=3), [new("n5"), new("n4")], order="n5 n4"),
    "9": Example(limit(1, partition=3), [new("n1")], order="n1 n5", picks="n5"),
    "9 end": Example(limit(1, partition=3), [new("n1"), new("n5")], order="n5 n1"),
    "10": Example(limit("100%", partition="50%"), order="n5 n4 n3", picks="n5 n4 n3"),
    "11": Example(limit(1, partition=9), order=""),
    "12": Example(selecting(1), selected="n1 n3", order="n3 n1", picks="n3"),
    "13": Example(selecting(1, partition=4), selected="n1 n3", order="n3", picks="n3"),
    "14": Example(
        selecting(1, partition=1), [new("n2")], nodes=4, selected="n3", order="n2 n3", picks="n3"
    ),
    "15": Example(
        selecting(1, partition=2), [new("n2")], nodes=4, selected="n1 n3 n4", order="n2 n4", picks="n4"
    ),
    "16": Example(selecting(1), gone=("n5",), selected="n1", order="n5 n1", unavailable=1),
    "17 one": Example(
        limit(1), [pod("n3", preparing_delete=True)], order="n3 n5 n4 n2 n1", unavailable=1
    ),
    "17 two": Example(
        limit(2), [pod("n3", preparing_delete=True)], order="n3 n5 n4 n2 n1", unavailable=1, picks="n5"
    ),
    "18": Example(limit(1, partition=3), [new(f"n{n}") for n in range(1, 6)], order="n5 n4"),
    "19": Example(surge(2), create="n5 n4"),
    "20": Example(
        surge(2),
        [new("n5", available=False), pod("n5"), new("n4", available=False), pod("n4")],
    ),
    "21": Example(surge(2), [new("n5"), pod("n5"), new("n4", available=False), pod("n4")], picks="n5", create="n3"),
    "22": Example(surge(1), [pod("n2", available=False)], create="n2 n5"),
    "23": Example(surge(2, partition=4), order="n5", create="n5"),
    "24": Example(
        limit(3), [pod(f"n{n}", available=False) for n in range(1, 6)], picks="n5 n4 n3 n2 n1"
    ),
}  # fmt: skip


@pytest.mark.behaviour("DS-38", "DS-40", "DS-41", "DS-42", "DS-43", "DS-44", "DS-46", "DS-47")
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_updates_match_the_worked_examples(example: Example) -> None:
    observed = example.observed
    assert [one.node.name for one in update_candidates(observed, example.settings)] == example.order.split()
    plan = plan_update(observed, example.settings)
    assert nodes_of(plan.update) == example.picks.split()
    assert list(plan.create) == example.create.split()
    if not example.settings.surges and example.unavailable is not None:
        candidates = [one for one in plan.update if observed.available(one)]
        assert plan.unavailable - len(candidates) == example.unavailable


@pytest.mark.behaviour("DS-38")
def test_two_zero_limits_allow_one_unavailable_pod() -> None:
    assert Settings(max_unavailable=0, max_surge=0).limits(5).max_unavailable == 1
    assert Settings(max_unavailable=0, max_surge=0).limits(0).max_unavailable == 0


@pytest.mark.behaviour("DS-74", "DS-33")
@pytest.mark.parametrize(
    ("burst", "desired", "expected"),
    [(None, 3, 250), ("10%", 3, 1), ("10%", 40, 4), (0, 9, 0), ("0%", 9, 0), ("x", 9, 250), (-1, 9, 250), (7, 9, 7)],
)
def test_a_percentage_of_few_nodes_is_at_least_one_pod(burst: int | str | None, desired: int, expected: int) -> None:
    assert Settings(burst_replicas=burst).limits(desired).burst == expected


@pytest.mark.behaviour("DS-23", "DS-84")
@pytest.mark.parametrize("reason", ["paused", "on_delete", "node_selector_unreadable"])
def test_an_update_may_be_off(reason: str) -> None:
    assert plan_update(cluster(5, old_pods()), limit(2, **{reason: True})) == NOTHING


@pytest.mark.behaviour("DS-39")
@pytest.mark.parametrize(("changed", "updated"), [
    pytest.param([], ["n5"], id="an ineligible node takes part"),
    pytest.param([pod("n5", terminating=True)], [], id="a stuck Pod there blocks the update"),
])  # fmt: skip
def test_ineligible_nodes_count_unless_pruned(changed: list[DaemonPod], updated: list[str]) -> None:
    observed = cluster(5, old_pods(*changed), eligibility={"n5": KEEPS_ONLY})
    assert nodes_of(plan_update(observed, limit(1)).update) == updated
    pruned = limit(1, gates=Gates(prune_ineligible=True))
    assert nodes_of(plan_update(observed, pruned).update) == ["n4"]


@pytest.mark.behaviour("DS-46")
def test_a_node_that_takes_no_pod_gets_no_surge() -> None:
    observed = cluster(5, old_pods(), eligibility={"n5": KEEPS_ONLY})
    assert plan_update(observed, surge(1)).create == ("n4",)


@pytest.mark.behaviour("DS-77")
def test_unavailable_old_pods_count_against_a_strict_limit() -> None:
    pods = [pod("n5", ready=True, available_after=NOW + 5), pod("n4", available=False)]
    observed = cluster(5, old_pods(*pods))
    strict = limit(1, gates=Gates(strict=True))
    # Only the ready Pod serves requests.
    assert nodes_of(plan_update(observed, strict).update) == ["n4"]
    assert nodes_of(plan_update(observed, limit(1)).update) == ["n5", "n4", "n3"]
    both = plan_update(cluster(5, old_pods(pods[1])), limit(2, gates=Gates(strict=True)))
    assert nodes_of(both.update) == ["n4", "n5"]


@pytest.mark.behaviour("DS-78")
def test_pods_that_wait_for_the_limit_are_counted() -> None:
    plan = plan_update(cluster(5, old_pods()), limit(2))
    assert (plan.unavailable, plan.waiting) == (2, 3)
    assert plan_update(cluster(2, old_pods(nodes=2)), limit(2)).waiting == 0


@pytest.mark.behaviour("DS-83")
def test_a_node_added_during_an_update_counts_as_unavailable() -> None:
    observed = cluster([*(f"n{n}" for n in range(1, 6)), "n9"], old_pods())
    assert plan_update(observed, limit(1)).update == ()
    assert nodes_of(plan_update(observed, limit(2)).update) == ["n5"]


# ---- whatever the state


def any_pod(node: str) -> st.SearchStrategy[DaemonPod]:
    return st.builds(
        pod,
        st.just(node),
        st.sampled_from(["oldhash", "older", NEW]),
        available=st.booleans(),
        terminating=st.booleans(),
        preparing_delete=st.booleans(),
        ended=st.booleans(),
    )


@st.composite
def states(draw: st.DrawFn) -> Observed:
    names = [f"n{n}" for n in range(draw(st.integers(1, 7)))]
    pods = [one for name in names for one in draw(st.lists(any_pod(name), max_size=3))]
    kinds = st.sampled_from([Eligibility(True, True), KEEPS_ONLY, Eligibility(False, False)])
    return cluster(
        names, pods, eligibility={name: draw(kinds) for name in names}, selected=draw(st.sets(st.sampled_from(names)))
    )


settings_of = st.builds(
    Settings,
    max_unavailable=st.sampled_from([None, 0, 1, 2, "30%", "100%"]),
    max_surge=st.sampled_from([None, 0, 0, 1, "50%"]),
    partition=st.sampled_from([None, 0, 1, 3, "50%", 100]),
    node_selector=st.sampled_from([None, EVERYTHING]),
    gates=st.builds(Gates, prune_ineligible=st.booleans(), strict=st.booleans()),
)


@pytest.mark.behaviour("DS-41", "DS-43", "DS-44")
@given(states(), settings_of)
def test_unavailable_nodes_never_exceed_the_limit(observed: Observed, settings: Settings) -> None:
    limits = settings.limits(observed.desired)
    plan = plan_update(observed, settings)
    lost = [one for one in plan.update if observed.available(one) and not one.preparing_delete]
    if limits.max_surge:
        for one in lost:
            node = next(node for node in observed.nodes if node.name == one.node)
            assert any(observed.is_new(other) and observed.available(other) for other in node.live)
        return
    # Nodes the update looks at that have no service, whose fault ever that is, but for old Pods that never had any.
    missing = 0
    for state in update_candidates(observed, settings):
        serving = [one for one in state.node.live if observed.available(one) and not one.preparing_delete]
        broken = state.old is not None and not state.excess and state.new is None and not state.old.preparing_delete
        missing += not serving and not broken
    assert not lost or missing + len(lost) <= limits.max_unavailable


@pytest.mark.behaviour("DS-40", "DS-41", "DS-42")
@given(states(), settings_of)
def test_neither_partition_nor_selector_is_exceeded(observed: Observed, settings: Settings) -> None:
    plan = plan_update(observed, settings)
    touched = {one.node for one in plan.update} | set(plan.create)
    by_name = {node.name: node for node in observed.nodes}
    assert not any(observed.is_new(one) for one in plan.update)
    taking_part = [
        node
        for node in observed.nodes
        if node.eligibility.should_run or (node.pods and not settings.gates.prune_ineligible)
    ]
    already = {node.name for node in taking_part if node_state(node, observed).new is not None}
    held = settings.limits(observed.desired).partition
    assert len(already | touched) <= max(len(already), len(taking_part) - held)
    for name in touched - already:
        assert settings.node_selector is None or by_name[name].selected


@pytest.mark.behaviour("DS-47")
@given(states(), settings_of)
def test_surge_never_creates_a_third_pod_or_a_second_new_one(observed: Observed, settings: Settings) -> None:
    by_name = {node.name: node for node in observed.nodes}
    for name in plan_update(observed, settings).create:
        live = by_name[name].live
        assert len(live) == 1
        assert not observed.is_new(live[0])
        assert by_name[name].eligibility.should_run
