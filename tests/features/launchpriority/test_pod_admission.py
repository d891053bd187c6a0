"""Container launch priority at admission in its three forms, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.launchpriority.plan import generated_name, requested_priorities
from app.kube.hashes import ALPHABET
from tests.features.admitting import Json, World, pod

ANNOTATION = "apps.kruise.io/container-launch-priority"
PRIORITY = "KRUISE_CONTAINER_PRIORITY"


def containers(**priorities: Any) -> list[Json]:
    """Containers by name with the value of their priority env; None for one without."""
    return [
        {"name": name, "env": None if value is None else [{"name": PRIORITY, "value": value}]}
        for name, value in priorities.items()
    ]


@pytest.mark.behaviour("PW-11", "PW-12", "PW-13", "PW-15", "PM-141", "PM-142")
@pytest.mark.parametrize(
    ("annotation", "priorities", "keys"),
    [
        pytest.param("Ordered", {"a": None, "b": "5"}, {"a": "p_0", "b": "p_-1"}, id="Ordered overrides env"),
        pytest.param(None, {"a": None, "b": "5"}, {"a": "p_0", "b": "p_5"}, id="env"),
        pytest.param('{"b": 2, "a": 1}', {"a": None, "b": None}, {"a": "p_1", "b": "p_2"}, id="JSON by container"),
        pytest.param(None, {"a": "3", "b": "3"}, {}, id="equal priorities need no order"),
        pytest.param("ordered", {"a": None, "b": None}, {}, id="an unknown word is ignored"),
    ],
)
def test_containers_wait_for_their_key(annotation: str | None, priorities: Json, keys: dict[str, str]) -> None:
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    answer = World().create(pod(containers=containers(**priorities), annotations=annotations))
    found = {}
    for name in priorities:
        for env in answer.container(name)["env"] or ():
            if env["name"] == "KRUISE_CONTAINER_BARRIER":
                assert env["valueFrom"]["configMapKeyRef"]["name"] == "web-0-barrier"
                found[name] = env["valueFrom"]["configMapKeyRef"]["key"]
    assert found == keys


@pytest.mark.behaviour("PW-14")
@pytest.mark.parametrize("annotation", ["Ordered", "{"])
def test_a_single_container_needs_no_order(annotation: str) -> None:
    assert requested_priorities(containers(a="x"), annotation) is None


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
    assert answer.refusal.code == 400
    assert answer.refusal.message.startswith(f"Pod shop/web-0: {message}")


@pytest.mark.behaviour("PW-14", "PM-143")
def test_a_priority_from_a_reference_is_refused() -> None:
    given = containers(a="1", b="2")
    given[1]["env"] = [{"name": PRIORITY, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    answer = World().create(pod(containers=given))
    assert "container b: env KRUISE_CONTAINER_PRIORITY must be a plain value, not valueFrom" in answer.refusal.message


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
