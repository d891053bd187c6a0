"""Container launch priority at admission in its three forms, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.launchpriority.plan import generated_name, requested_priorities
from app.kube.hashes import ALPHABET
from app.pods.draft import PodRefusedError
from tests.features.admitting import Json, World, pod

ANNOTATION = "apps.kruise.io/container-launch-priority"
PRIORITY = "KRUISE_CONTAINER_PRIORITY"


def containers(**priorities: Any) -> list[Json]:
    """Containers by name with the value of their priority env; None for one without."""
    return [
        {"name": name, "env": None if value is None else [{"name": PRIORITY, "value": value}]}
        for name, value in priorities.items()
    ]


def keys(pod_: Json) -> list[str | None]:
    """The barrier key of each container."""
    found: list[str | None] = []
    for container in pod_["spec"]["containers"]:
        entries = [e for e in container.get("env") or [] if e["name"] == "KRUISE_CONTAINER_BARRIER"]
        found.append(entries[-1]["valueFrom"]["configMapKeyRef"]["key"] if entries else None)
    return found


@pytest.mark.behaviour("PW-11", "PW-12", "PW-14", "PW-15", "PM-141", "PM-142", "PM-143", "D-4")
@pytest.mark.parametrize(
    ("given", "annotation", "expected"),
    [
        (containers(a=None, b=None, c=None), "Ordered", [0, -1, -2]),
        (containers(a="7", b=None), "Ordered", [0, -1]),
        (containers(a="3", b="5", c="0", d=None, e="-1", f="3"), None, [3, 5, 0, 0, -1, 3]),
        (containers(a="+2", b=None), None, [2, 0]),
        (containers(a="007", b="-0"), None, [7, 0]),
        (containers(a="0" * 5000 + "1", b="-" + "0" * 5000 + "2"), None, [1, -2]),
        (containers(a="2147483647", b="-2147483647"), None, [2147483647, -2147483647]),
        (containers(a="1", b="1"), None, None),
        (containers(a="0", b=None), None, None),
        (containers(a=None, b=None), None, None),
        (containers(a=None, b=None), "ordered", None),
        (containers(a=None, b=None), "", None),
        (containers(a="1", b=None), "ordered", [1, 0]),
        (containers(a=None, b=None, c=None), '{"c":3,"a":-1}', [-1, 0, 3]),
        (containers(a="9", b=None), ' {"b": 1} ', [0, 1]),
        (containers(a="9", b=None), "{}", None),
        (containers(a=None, b=None), '{"a":1,"b":1}', None),
        (containers(a="x"), "Ordered", None),
        (containers(a="x"), "{", None),
        ([], "Ordered", None),
    ],
)
def test_priorities_come_from_env_or_the_annotation(
    given: list[Json], annotation: str | None, expected: list[int] | None
) -> None:
    assert requested_priorities(given, annotation) == expected


@pytest.mark.behaviour("PW-14", "PW-15", "PM-143", "D-4")
@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("x", None, f"container a: env {PRIORITY}: 'x' is not an integer"),
        ("", None, f"container a: env {PRIORITY}: '' is not an integer"),
        (" 1", None, f"container a: env {PRIORITY}: ' 1' is not an integer"),
        ("1.5", None, f"container a: env {PRIORITY}: '1.5' is not an integer"),
        ("1_0", None, f"container a: env {PRIORITY}: '1_0' is not an integer"),
        ("２", None, f"container a: env {PRIORITY}: '２' is not an integer"),
        ("2147483648", None, f"container a: env {PRIORITY}: 2147483648 is outside -2147483647…2147483647"),
        ("-2147483648", None, f"container a: env {PRIORITY}: -2147483648 is outside -2147483647…2147483647"),
        ("9" * 9000, None, f"container a: env {PRIORITY}: 99999999999999999999 is outside -2147483647…2147483647"),
        ("-" + "0" * 5000 + "9" * 9000, None, f"container a: env {PRIORITY}: -0000000000000000000 is outside"),
        ("x" * 9000, None, f"container a: env {PRIORITY}: '{'x' * 255}… is not an integer"),
        (None, '{"main":1,}', f"annotation {ANNOTATION} is neither 'Ordered' nor a JSON object of container names"),
        (None, "{" * 9000, f"annotation {ANNOTATION} is neither 'Ordered' nor a JSON object of container names"),
        (None, '{"nobody":1}', f"annotation {ANNOTATION}: the Pod has no container nobody; it has a, b ("),
        (None, '{"a":1.0}', f"annotation {ANNOTATION}: container a: the priority must be an integer"),
        (None, '{"a":"1"}', f"annotation {ANNOTATION}: container a: the priority must be an integer"),
        (None, '{"a":true}', f"annotation {ANNOTATION}: container a: the priority must be an integer"),
        (None, '{"a":null}', f"annotation {ANNOTATION}: container a: the priority must be an integer"),
        (None, '{"a":{"a":1}}', f"annotation {ANNOTATION}: container a: the priority must be an integer"),
        (None, '{"a":1,"a":2}', f"annotation {ANNOTATION}: a container is listed twice"),
        (None, '{"a":99999999999}', f"annotation {ANNOTATION}: container a: 99999999999 is outside"),
    ],
)
def test_a_refusal_names_pod_container_and_value(value: str | None, annotation: str | None, message: str) -> None:
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    answer = World().create(pod(containers=containers(a=value, b=None), annotations=annotations))
    assert answer.denied is not None
    assert answer.denied.code == 400
    assert answer.denied.message.startswith(f"Pod shop/web-0: {message}")


@pytest.mark.behaviour("PW-12")
def test_the_last_of_duplicate_priorities_counts_as_in_the_kubelet() -> None:
    given = containers(a="1", b="2")
    given[0]["env"].append({"name": PRIORITY, "value": "2"})
    assert requested_priorities(given, None) is None
    given[0]["env"].append({"name": PRIORITY, "value": "3"})
    assert requested_priorities(given, None) == [3, 2]
    given[0]["env"].insert(0, {"name": PRIORITY, "value": "x"})
    with pytest.raises(PodRefusedError, match="container a: env KRUISE_CONTAINER_PRIORITY: 'x' is not an integer"):
        requested_priorities(given, None)


@pytest.mark.behaviour("PW-14", "PM-143")
def test_a_priority_from_a_reference_is_refused() -> None:
    given = containers(a="1", b="2")
    given[1]["env"] = [{"name": PRIORITY, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    answer = World().create(pod(containers=given))
    assert answer.denied is not None
    assert "container b: env KRUISE_CONTAINER_PRIORITY must be a plain value, not valueFrom" in answer.denied.message


@pytest.mark.behaviour("PW-13", "PM-142", "PM-143")
def test_every_container_waits_for_its_key_and_user_env_stays() -> None:
    given = containers(a="2", b=None)
    mine = {"name": "KRUISE_CONTAINER_BARRIER", "value": "mine"}
    given[0]["env"].append(mine)
    answer = World().create(pod(containers=given))
    barrier = {"name": "KRUISE_CONTAINER_BARRIER"}
    reference = {"name": "web-0-barrier"}
    assert answer.container("a")["env"] == [
        {"name": PRIORITY, "value": "2"},
        mine,
        {**barrier, "valueFrom": {"configMapKeyRef": {**reference, "key": "p_2"}}},
    ]
    assert answer.container("b")["env"] == [
        {**barrier, "valueFrom": {"configMapKeyRef": {**reference, "key": "p_0"}}},
    ]
    assert "env" not in answer.container("prep")
    assert answer.rules == ["PM-142", "PM-142"]


@pytest.mark.behaviour("PW-13", "PM-144")
def test_a_pod_with_generate_name_gets_its_name() -> None:
    prefix = "x" * 70
    given = pod(metadata={"name": None, "generateName": prefix}, containers=containers(a="1", b=None))
    answer = World().create(given)
    name = answer.pod["metadata"]["name"]
    assert name[:58] == prefix[:58]
    assert len(name) == 63
    assert set(name[58:]) <= set(ALPHABET)
    reference = answer.container("a")["env"][-1]["valueFrom"]["configMapKeyRef"]
    assert reference == {"name": f"{name}-barrier", "key": "p_1"}
    assert answer.rules[0] == "PM-144"
    assert generated_name("short-", "abcde") == "short-abcde"


def test_a_pod_without_name_is_left_to_the_api_server() -> None:
    given = pod(metadata={"name": None}, containers=containers(a="1", b=None))
    assert World().create(given).operations == []


@pytest.mark.behaviour("PM-141", "PM-151")
def test_pods_of_any_owner_are_ordered_unless_they_have_one_container() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}]
    answer = World().create(pod(metadata={"ownerReferences": owners}, containers=containers(a="1", b=None)))
    assert keys(answer.pod) == ["p_1", "p_0"]
    single = World().create(pod(containers=containers(a="x"), annotations={ANNOTATION: "{"}))
    assert single.operations == []
