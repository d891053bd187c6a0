from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.features.launchpriority.plan import Step, added_in, config_map, is_held, is_left_behind, not_ready, plan
from app.kube.objects import ConfigMap, Pod, decode_config_map, decode_pod
from app.pods.container_meta import launch_priorities
from tests.features.launchpriority.pods import BARRIER, COMPLETED, barrier, ordered

# PM-148's example: priorities 3, 5, 0, none, -1, 3.
EXAMPLE: dict[str, int | None] = {"a": 3, "b": 5, "c": 0, "d": None, "e": -1, "f": 3}


def pod(*args: Any, **kwargs: Any) -> Pod:
    return decode_pod(orjson.dumps(ordered(*args, **kwargs)))


@pytest.mark.behaviour("PM-146")
def test_priorities_are_read_from_the_injected_env() -> None:
    assert launch_priorities(pod(EXAMPLE)) == {"a": 3, "b": 5, "c": 0, "e": -1, "f": 3}
    assert not_ready(pod(EXAMPLE, ready=["b", "d", "c"])) == {"a": 3, "e": -1, "f": 3}


@pytest.mark.behaviour("PM-142", "PM-146")
def test_pods_with_openkruise_priorities_keep_starting() -> None:
    assert launch_priorities(pod({"a": 99999999999, "b": -99999999999})) == {"a": 99999999999, "b": -99999999999}


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"name": BARRIER, "value": "mine"}, id="a plain value"),
        pytest.param({"name": BARRIER, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, id="another source"),
        pytest.param(barrier("p_1", "other-barrier"), id="another ConfigMap"),
        pytest.param(barrier("colour"), id="another key"),
        pytest.param(barrier("p_"), id="no number"),
        pytest.param(barrier("p_01"), id="a number with a leading zero"),
        pytest.param(barrier("p_" + "9" * 5000), id="an enormous number"),
        pytest.param({"name": "OTHER", **{k: v for k, v in barrier("p_1").items() if k != "name"}}, id="another env"),
    ],
)
@pytest.mark.behaviour("PM-142", "PM-146")
def test_an_env_of_the_user_is_not_a_barrier(env: dict[str, Any]) -> None:
    raw = ordered({"a": 1, "b": 0})
    raw["spec"]["containers"].append({"name": "x", "env": [env]})
    raw["spec"]["containers"][0]["env"].insert(0, env)  # ours follows
    assert launch_priorities(decode_pod(orjson.dumps(raw))) == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    ("given_pod", "held"),
    [
        pytest.param(pod(EXAMPLE), True, id="nothing is ready"),
        pytest.param(pod(EXAMPLE, status={"containerStatuses": []}), True, id="nothing is reported"),
        pytest.param(pod(EXAMPLE, metadata={"annotations": {COMPLETED: "true"}}), False, id="completed"),
        pytest.param(pod(EXAMPLE, metadata={"annotations": {COMPLETED: "false"}}), True, id="not completed"),
        pytest.param(pod(EXAMPLE, ready=EXAMPLE), False, id="all containers are ready"),
        pytest.param(pod(EXAMPLE, ready=["a", "b", "c", "e", "f"]), False, id="only one without a barrier is not"),
        pytest.param(pod({"a": None, "b": None}), False, id="no barriers"),
        pytest.param(pod(EXAMPLE, metadata={"deletionTimestamp": "2026-11-21T03:10:17Z"}), False, id="terminating"),
        pytest.param(pod(EXAMPLE, status={"phase": "Failed"}), False, id="finished"),
    ],
)
@pytest.mark.behaviour("PM-146")
def test_only_pods_with_waiting_containers_are_reconciled(given_pod: Pod, held: bool) -> None:
    assert is_held(given_pod) is held


@pytest.mark.parametrize(
    ("ready", "added", "step"),
    [
        ([], set(), (5, False)),
        ([], {5}, (None, False)),
        (["b"], {5}, (3, False)),
        (["b", "a"], {5, 3}, (None, False)),  # f, of the same priority as a, is not ready
        (["b", "a", "f"], {5, 3}, (0, False)),
        (["b", "a", "f", "c"], {5, 3, 0}, (-1, True)),
        (["b", "a", "f", "c"], {5, 3, 0, -1}, (None, True)),
        (["a", "f", "c"], {5, 3, 0}, (None, False)),  # b failed: the remaining containers wait for it again
        (["b", "a", "f", "c", "e"], {5, 3, 0, -1}, (None, True)),
    ],
)
@pytest.mark.behaviour("PM-147", "PM-148", "PM-149")
def test_keys_are_added_from_the_highest_priority_down(
    ready: list[str], added: set[int], step: tuple[Any, bool]
) -> None:
    found = plan(pod(EXAMPLE, ready), added)
    assert (found.add, found.completed) == step


@pytest.mark.parametrize(
    ("ready", "added", "text"),
    [
        ([], {5}, "a, c, e, f cannot start until b (launch priority 5) is ready"),
        (["b"], {5, 3}, "c, e cannot start until a, f (launch priority 3) are ready"),
        (["b", "a", "f"], {5, 3, 0}, "e cannot start until c (launch priority 0) is ready"),
    ],
)
@pytest.mark.behaviour("PM-150")
def test_the_container_that_others_wait_for_is_named(ready: list[str], added: set[int], text: str) -> None:
    assert str(plan(pod(EXAMPLE, ready), added).waiting) == text


def test_one_priority_needs_one_step() -> None:
    assert plan(pod({"a": 1, "b": 1}), ()) == Step(add=1, completed=True)


@pytest.mark.behaviour("PM-147")
def test_the_config_map_is_owned_and_not_controlled_by_its_pod() -> None:
    assert config_map(pod(EXAMPLE, metadata={"uid": "u1"}), 5) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "web-0-barrier",
            "namespace": "shop",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "u1"}],
        },
        "data": {"p_5": "true"},
    }


def found_map(*owners: tuple[str, str, str], **data: str) -> ConfigMap:
    references = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid} for kind, name, uid in owners]
    metadata = {"name": "web-0-barrier", "namespace": "shop", "ownerReferences": references}
    return decode_config_map(orjson.dumps({"metadata": metadata, "data": data}))


@pytest.mark.parametrize(
    ("found", "left_behind"),
    [
        (found_map(("Pod", "web-0", "u1")), False),
        (found_map(("Pod", "web-0", "u0")), True),
        (found_map(("Pod", "web-0", "u0"), ("Pod", "web-0", "u1")), False),
        (found_map(("Pod", "other", "u0")), False),
        (found_map(("ReplicaSet", "web-0", "u0")), False),
        (found_map(), False),
    ],
)
@pytest.mark.behaviour("PM-147")
def test_the_config_map_of_the_former_pod_is_recognized(found: ConfigMap, left_behind: bool) -> None:
    assert is_left_behind(found, pod(EXAMPLE, metadata={"uid": "u1", "namespace": "shop"})) is left_behind


def test_foreign_keys_in_the_config_map_are_ignored() -> None:
    assert added_in(found_map(**{"p_5": "true", "p_-1": "true", "p_x": "true", "colour": "green"})) == {5, -1}
