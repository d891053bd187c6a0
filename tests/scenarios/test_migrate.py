"""`pykruise migrate` takes over native workloads without recreating a Pod."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.scenarios.conftest import LEVELS
from tests.scenarios.world import World, eventually

on_all_levels = pytest.mark.parametrize("world", LEVELS, indirect=True)
#: On the sandbox the native controller is simulated, and its revisions have another form.
on_a_real_controller = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)

#: Rollouts are paused in both: whether a template is recorded alike is another question.
NATIVE: dict[str, tuple[dict[str, Any], str]] = {
    "StatefulSet": (
        {
            "serviceName": "web",
            "replicas": 2,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        },
        "readyReplicas",
    ),
    "DaemonSet": ({"updateStrategy": {"type": "OnDelete"}}, "numberReady"),
}


def uids(world: World) -> dict[str, str]:
    return world.uids("-l", "app=moving")


def are_adopted(world: World, app: str) -> bool:
    owners = [one["metadata"].get("ownerReferences") for one in world.list("pods", "-l", f"app={app}")]
    return all(one and one[0]["apiVersion"].startswith("apps.kruise.io/") for one in owners)


@on_all_levels
@pytest.mark.behaviour("CLI-21")
@pytest.mark.parametrize("kind", list(NATIVE))
def test_a_native_workload_is_migrated_with_its_pods(world: World, kind: str) -> None:
    spec, ready = NATIVE[kind]
    resource = f"{kind.lower()}s.apps"
    world.apply(native(kind, **spec))
    wanted = "replicas" if kind == "StatefulSet" else "desiredNumberScheduled"

    def is_ready() -> bool:
        status = world.get(resource, "web").get("status", {})
        return bool(status.get(ready)) and status.get(ready) == status.get(wanted) and len(uids(world)) > 1

    eventually(is_ready, "the native one is ready")
    before = uids(world)
    migrate = ("migrate", f"{kind.lower()}/web", "--from", f"{kind.lower()}/web")
    tried = world.pykruise(*migrate, "--dry-run")
    assert (tried.returncode, "would be deleted without its Pods" in tried.stdout) == (0, True), tried.stderr
    assert world.get(resource, "web")["metadata"]["name"] == "web"
    done = world.pykruise(*migrate, "--timeout", "2m")
    assert done.returncode == 0, done.stdout + done.stderr
    assert uids(world) == before
    eventually(lambda: are_adopted(world, "moving"), "it has adopted the Pods")
    again = world.pykruise(*migrate)
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True)
    world.kubectl("delete", f"{resource}.kruise.io", "web", "-n", world.namespace)


def native(kind: str, image: str = "nginx:1.25", **spec: Any) -> str:
    template = {
        "metadata": {"labels": {"app": "moving"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]},
    }
    whole = {**spec, "selector": {"matchLabels": {"app": "moving"}}, "template": template}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": whole})


def images(world: World) -> dict[str, str]:
    found = world.list("pods", "-l", "app=moving")
    return {one["metadata"]["name"]: one["spec"]["containers"][0]["image"] for one in found}


@on_a_real_controller
@pytest.mark.behaviour("CLI-21")
def test_a_statefulset_migrated_during_a_rollout_continues_it(world: World) -> None:
    def held(partition: int) -> dict[str, Any]:
        return {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}

    common = {"serviceName": "web", "replicas": 3, "podManagementPolicy": "Parallel"}

    def stands(kind: str, updated: int) -> bool:
        # The native controller reports no updated Pods once all are; ours reports the number.
        status = world.get(kind, "web").get("status", {})
        return (status.get("readyReplicas"), status.get("updatedReplicas")) == (3, updated)

    world.apply(native("StatefulSet", **common, updateStrategy=held(0)))
    eventually(lambda: stands("statefulsets.apps", 3), "the native one is ready")
    world.apply(native("StatefulSet", "nginx:1.26", **common, updateStrategy=held(2)))
    eventually(lambda: stands("statefulsets.apps", 1) and images(world)["web-2"] == "nginx:1.26", "one is updated")
    before, running = uids(world), images(world)
    assert running == {"web-0": "nginx:1.25", "web-1": "nginx:1.25", "web-2": "nginx:1.26"}
    done = world.pykruise("migrate", "statefulset/web", "--from", "statefulset/web", "--timeout", "2m")
    assert done.returncode == 0, done.stdout + done.stderr
    ours = "statefulsets.apps.kruise.io"
    eventually(lambda: stands(ours, 1), "ours counts as many")
    assert (uids(world), images(world)) == (before, running)
    world.patch(ours, "web", {"spec": {"updateStrategy": held(0)}})
    eventually(lambda: stands(ours, 3) and set(images(world).values()) == {"nginx:1.26"}, "it continues", 120)
    assert uids(world)["web-2"] == before["web-2"]
    world.kubectl("delete", ours, "web", "-n", world.namespace)


@on_all_levels
@pytest.mark.behaviour("CLI-21")
def test_a_deployment_migrates_to_a_cloneset_in_parts(world: World) -> None:
    world.apply(native("Deployment", replicas=3))
    eventually(lambda: world.get("deployments.apps", "web").get("status", {}).get("readyReplicas") == 3, "it is ready")
    for moved, replicas in ((1, "1"), (3, "2")):
        said = world.pykruise("migrate", "clone/web", "--from", "deploy/web", "--replicas", replicas, "--timeout", "2m")
        assert said.returncode == 0, said.stdout + said.stderr
        assert f"{replicas} of {replicas} replicas moved" in said.stdout
        assert world.get("clonesets.apps.kruise.io", "web")["status"]["availableReplicas"] == moved
        assert world.get("deployments.apps", "web")["spec"]["replicas"] == 3 - moved
    world.kubectl("delete", "clonesets.apps.kruise.io", "web", "-n", world.namespace)
