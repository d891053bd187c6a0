from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.objects import Container, ContainerStatus, ObjectMeta, Pod, PodCondition, PodSpec, PodStatus
from app.pods.sorting import (
    HOSTNAME,
    deletion_cost,
    in_default_update_order,
    in_deletion_order,
    ranks_of,
    same_node_ranks,
    spread_ranks,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
COST = "controller.kubernetes.io/pod-deletion-cost"


def pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: int | bool | None = 0,
    restarts: int = 0,
    sidecar_restarts: int = 0,
    age: int | None = 100,
    cost: str = "",
) -> Pod:
    """``ready``: seconds after T0 since when; None: ready for an unknown time; False: not ready."""
    since = T0 + timedelta(seconds=ready) if isinstance(ready, int) and not isinstance(ready, bool) else None
    condition = PodCondition("Ready", "False" if ready is False else "True", last_transition_time=since)
    return Pod(
        ObjectMeta(
            name,
            uid=name,
            creation_timestamp=None if age is None else T0 - timedelta(seconds=age),
            annotations={COST: cost} if cost else {},
        ),
        PodSpec(node, init_containers=(Container("s", restart_policy="Always"), Container("once"))),
        PodStatus(
            phase,
            conditions=(condition,),
            container_statuses=(ContainerStatus("a"), ContainerStatus("b", restart_count=restarts)),
            init_container_statuses=(
                ContainerStatus("s", restart_count=sidecar_restarts),
                ContainerStatus("once", restart_count=99),
            ),
        ),
    )


def names(pods: Any) -> list[str]:
    return [found.metadata.name for found in pods]


BASE = {"node": "n", "phase": "Running", "ready": 0, "restarts": 0, "age": 100, "cost": ""}

FIRST_LAST = [
    pytest.param({"node": ""}, {"phase": "Pending"}, id="no node before a node"),
    pytest.param({"phase": "Pending"}, {"phase": "Unknown", "ready": False}, id="pending before unknown"),
    pytest.param({"phase": "Unknown"}, {"ready": False}, id="unknown before running"),
    pytest.param({"ready": False}, {"ready": 5}, id="not ready before ready"),
    pytest.param({"ready": None}, {"ready": 5}, id="unknown ready time comes first"),
    pytest.param({"ready": 5}, {"ready": 1, "restarts": 9}, id="ready for a shorter time"),
    pytest.param({"restarts": 2}, {"restarts": 1, "age": 1}, id="more restarts"),
    pytest.param({"age": None}, {"age": 1}, id="no creation time"),
    pytest.param({"age": 1}, {"age": 2}, id="newer"),
]


@pytest.mark.parametrize(("first", "last"), FIRST_LAST)
@pytest.mark.behaviour("PM-121", "PM-126")
def test_both_orders_start_with_the_least_useful_pod(first: Any, last: Any) -> None:
    # The names are in reverse order, so they do not decide.
    one, two = pod("z", **(BASE | first)), pod("a", **(BASE | last))
    assert names(in_deletion_order([two, one])) == ["z", "a"]
    assert names(in_default_update_order([two, one])) == ["z", "a"]


@pytest.mark.behaviour("PM-121")
@pytest.mark.parametrize(("first", "last", "options"), [
    pytest.param({"cost": "9"}, {"cost": "1"}, {"available": lambda found: found.metadata.name == "a"}, id="available"),
    pytest.param({"ready": False, "cost": "9"}, {"cost": "1"}, {}, id="ready before cost"),
    pytest.param({"cost": "-1"}, {"ready": 9}, {"ranks": {"a": 5.0}}, id="cost before rank"),
    pytest.param({"ready": 0}, {"ready": 9}, {"ranks": {"z": 1.0}}, id="rank before time"),
])  # fmt: skip
def test_deletion_order_also_uses_cost_rank_and_time(first: Any, last: Any, options: Any) -> None:
    one, two = pod("z", **(BASE | first)), pod("a", **(BASE | last))
    assert names(in_deletion_order([two, one], **options)) == ["z", "a"]


@pytest.mark.behaviour("PM-126")
def test_restarts_of_sidecars_break_ties_in_updates() -> None:
    one, two = pod("z", sidecar_restarts=3), pod("a", sidecar_restarts=1)
    assert names(in_default_update_order([two, one])) == ["z", "a"]


@pytest.mark.behaviour("PM-122")
@pytest.mark.parametrize(("text", "cost"), [
    ("", 0),
    ("0", 0),
    ("7", 7),
    ("-7", -7),
    ("-07", -7),
    ("+5", 0),
    ("007", 0),
    ("1.5", 0),
    ("x", 0),
    ("2147483647", 2147483647),
    ("2147483648", 0),
    ("-2147483648", -2147483648),
    ("-2147483649", 0),
    ("9" * 5000, 0),
    ("١", 0),
])  # fmt: skip
def test_an_invalid_deletion_cost_counts_as_zero(text: str, cost: int) -> None:
    assert deletion_cost(pod("a", cost=text)) == cost


@pytest.mark.behaviour("PM-123")
def test_pods_that_share_a_node_are_ranked() -> None:
    pods = [pod("0", node="a"), pod("4", node="a"), pod("10", node="a"), pod("b", node="b"), pod("c", node="")]
    ordered = [pod("0", node="a", age=1), pod("4", node="a", age=2), pod("10", node="a", age=3), *pods[3:]]
    assert same_node_ranks(ordered) == {"0": 2.0, "4": 1.0, "10": 0.0}


ZONES = {"n1": {"zone": "x", HOSTNAME: "n1"}, "n2": {"zone": "x", HOSTNAME: "n2"}, "n3": {"zone": "y"}, "n4": {}}


@pytest.mark.behaviour("PM-124")
def test_pods_are_ranked_by_zone() -> None:
    pods = [pod("a", node="n1", age=1), pod("b", node="n1", age=2), pod("c", node="n2", age=3), pod("d", node="n3")]
    pods += [pod("e", node="n4"), pod("f", node="gone"), pod("g", node="")]
    weight = log(4)
    ranks = spread_ranks(pods, ["zone"], ZONES.get)
    # In zone x, Pods that share a node come first.
    assert ranks == {"a": 3 * weight, "b": 2 * weight, "c": weight, "d": weight}
    twice = spread_ranks(pods, ["zone", HOSTNAME], ZONES.get)
    assert twice["a"] == pytest.approx(3 * weight + 2 * log(4))
    assert ranks_of(pods, {"spec": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}, ZONES.get) == ranks
    assert ranks_of(pods, {"spec": {}}, ZONES.get) == same_node_ranks(pods)


_pods = st.lists(
    st.builds(
        lambda **given: given,
        node=st.sampled_from(["", "n1", "n2"]),
        phase=st.sampled_from(["Pending", "Running", "Unknown"]),
        ready=st.sampled_from([False, None, 1, 2]),
        restarts=st.integers(0, 2),
        age=st.sampled_from([None, 1, 2]),
        cost=st.sampled_from(["", "1", "-1"]),
    ),
    max_size=8,
)


@given(_pods, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_before(given_pods: Any, shuffle: random.Random) -> None:
    pods = [pod(str(index), **fields) for index, fields in enumerate(given_pods)]
    ranks = same_node_ranks(pods)
    mixed = list(pods)
    shuffle.shuffle(mixed)
    assert names(in_deletion_order(mixed, ranks=ranks)) == names(in_deletion_order(pods, ranks=ranks))
    assert names(in_default_update_order(mixed)) == names(in_default_update_order(pods))
    assert same_node_ranks(mixed) == ranks
