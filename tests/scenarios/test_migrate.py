"""Native workloads are moved over with `pykruise migrate`, and no Pod is made anew."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.scenarios.conftest import LEVELS
from tests.scenarios.world import World, eventually

pytestmark = pytest.mark.parametrize("world", LEVELS, indirect=True)

#: Roll-outs wait for a person in both: whether a template is recorded alike is another question.
NATIVE: dict[str, tuple[dict[str, Any], str]] = {
    "statefulset": (
        {
            "serviceName": "web",
            "replicas": 2,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        },
        "readyReplicas",
    ),
    "daemonset": ({"updateStrategy": {"type": "OnDelete"}}, "numberReady"),
}


def uids(world: World) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in world.list("pods", "-l", "app=moving")}


@pytest.mark.behaviour("CLI-21")
@pytest.mark.parametrize("kind", list(NATIVE))
def test_a_native_workload_moves_with_its_pods(world: World, kind: str) -> None:
    spec, ready = NATIVE[kind]
    names = {"statefulset": "StatefulSet", "daemonset": "DaemonSet"}
    template = {
        "metadata": {"labels": {"app": "moving"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "nginx:1.25"}]},
    }
    manifest = {
        "apiVersion": "apps/v1",
        "kind": names[kind],
        "metadata": {"name": "web"},
        "spec": {**spec, "selector": {"matchLabels": {"app": "moving"}}, "template": template},
    }
    world.apply(yaml.safe_dump(manifest))
    native = f"{kind}s.apps"
    wanted = "replicas" if kind == "statefulset" else "desiredNumberScheduled"

    def is_ready() -> bool:
        status = world.get(native, "web").get("status", {})
        return bool(status.get(ready)) and status.get(ready) == status.get(wanted) and len(uids(world)) > 1

    eventually(is_ready, "the native one is ready")
    before = uids(world)
    tried = world.pykruise("migrate", f"{kind}/web", "--from", f"{kind}/web", "--dry-run")
    assert (tried.returncode, "would be deleted without its Pods" in tried.stdout) == (0, True), tried.stderr
    assert world.get(native, "web")["metadata"]["name"] == "web"
    done = world.pykruise("migrate", f"{kind}/web", "--from", f"{kind}/web", "--timeout", "2m")
    assert done.returncode == 0, done.stdout + done.stderr
    assert uids(world) == before

    def adopted() -> bool:
        owners = [one["metadata"].get("ownerReferences") for one in world.list("pods", "-l", "app=moving")]
        return all(one and one[0]["apiVersion"].startswith("apps.kruise.io/") for one in owners)

    eventually(adopted, "the Pods are its own")
    again = world.pykruise("migrate", f"{kind}/web", "--from", f"{kind}/web")
    assert (again.returncode, "not found" in again.stderr) == (1, True)
    world.kubectl("delete", f"{kind}s.apps.kruise.io", "web", "-n", world.namespace)
