"""Container launch priority at admission, in its three forms, and what is rejected."""

from __future__ import annotations

import json

import pytest

from tests.scenarios.world import World

BARRIER = "KRUISE_CONTAINER_BARRIER"


def pod(annotation: str | None = None, **priorities: str) -> str:
    """A Pod of two containers with an annotation or priority env by container name."""
    containers = []
    for name in ("app", "agent"):
        env = [{"name": "KRUISE_CONTAINER_PRIORITY", "value": priorities[name]}] if name in priorities else []
        containers.append({"name": name, "image": "busybox:1.36", "command": ["sleep", "999d"], "env": env})
    metadata: dict[str, object] = {"name": "ordered"}
    if annotation is not None:
        metadata["annotations"] = {"apps.kruise.io/container-launch-priority": annotation}
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def barrier_keys(world: World) -> dict[str, str]:
    """Return, by container, the key of the barrier ConfigMap that it waits for."""
    keys = {}
    for container in world.get("pod", "ordered")["spec"]["containers"]:
        for env in container.get("env", []):
            if env["name"] == BARRIER:
                assert env["valueFrom"]["configMapKeyRef"]["name"] == "ordered-barrier"
                keys[container["name"]] = env["valueFrom"]["configMapKeyRef"]["key"]
    return keys


@pytest.mark.parametrize(
    ("manifest", "keys"),
    [
        pytest.param(pod("Ordered"), {"app": "p_0", "agent": "p_-1"}, id="annotation Ordered"),
        pytest.param(pod(agent="5"), {"app": "p_0", "agent": "p_5"}, id="env"),
        pytest.param(pod('{"agent": 2, "app": 1}'), {"app": "p_1", "agent": "p_2"}, id="JSON by container"),
        pytest.param(pod(app="3", agent="3"), {}, id="equal priorities need no order"),
        pytest.param(pod("ordered"), {}, id="an unknown word is ignored"),
    ],
)
@pytest.mark.behaviour("PW-11", "PW-12", "PW-13", "PW-15", "PM-141", "PM-142")
def test_containers_wait_for_their_key(world: World, manifest: str, keys: dict[str, str]) -> None:
    world.apply(manifest)
    assert barrier_keys(world) == keys
