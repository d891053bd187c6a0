"""A Job ends although one container of its Pods would never exit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.world import World, eventually

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: once}}
spec:
  backoffLimit: 0
  template:
    metadata: {{labels: {{app: once, team: $ns}}}}
    spec:
      restartPolicy: {policy}
      terminationGracePeriodSeconds: 10
      containers:
        - {{name: main, image: "busybox:1.36", command: ["/bin/sh", "-c", "sleep 3; exit {code}"]}}
"""
SIDECAR = """
        - name: {name}
          image: busybox:1.36
          command: ["/bin/sh", "-c", "trap 'exit {code}' TERM; while true; do sleep 1; done"]
          env:
            - {{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: "true"}}
            - {{name: KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE, value: "{ignored}"}}
"""
SET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: shippers-$ns, labels: {team: $ns}}
spec:
  selector: {matchLabels: {team: $ns}}
  containers:
    - name: shipper
      image: busybox:1.36
      command: ["/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
      env: [{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: "true"}]
"""


def job(*sidecars: str, policy: str = "Never", code: int = 0) -> str:
    return JOB.format(policy=policy, code=code) + "".join(one.strip("\n") + "\n" for one in sidecars)


def sidecar(name: str, code: int = 0, ignored: str = "false") -> str:
    return SIDECAR.format(name=name, code=code, ignored=ignored)


def pod(world: World) -> dict[str, Any]:
    (found,) = world.list("pods", "-l=app=once")
    return found


def ended(world: World, condition: str) -> dict[str, Any]:
    """Return the Pod once its Job has ended this way, no container runs and its phase is final. A kubelet that has not
    seen the phase set by the controller replaces it with Running for a moment."""

    def look() -> dict[str, Any] | None:
        conditions = world.get("job", "once").get("status", {}).get("conditions") or []
        if not any(one["type"] == condition and one["status"] == "True" for one in conditions):
            return None
        found = pod(world)
        final = found["status"]["phase"] in ("Succeeded", "Failed") and None not in codes(found).values()
        return found if final else None

    return eventually(look, f"the Job is {condition}", 120)


def codes(found: dict[str, Any]) -> dict[str, int | None]:
    statuses = found["status"].get("containerStatuses", [])
    return {one["name"]: one["state"].get("terminated", {}).get("exitCode") for one in statuses}


def requests(world: World, found: dict[str, Any]) -> dict[str, list[str]]:
    """Return the containers by the suffix of each request's name."""
    prefix = f"sidecar-termination-{found['metadata']['uid']}"
    return {
        one["metadata"]["name"].removeprefix(prefix): [container["name"] for container in one["spec"]["containers"]]
        for one in world.list("containerrecreaterequests")
    }


@pytest.mark.behaviour("SS-111", "SS-112", "SS-113")
@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_job_completes_when_its_main_container_has_ended(world: World, policy: str) -> None:
    world.apply(job(sidecar("side"), policy=policy))
    found = ended(world, "Complete")
    assert found["status"]["phase"] == "Succeeded"
    assert codes(found) == {"main": 0, "side": 0}
    assert requests(world, found) == {"": ["side"]}

    name = found["metadata"]["name"]

    def told() -> bool:
        return any("[side] using crr" in one for one in world.messages("SidecarTerminator", about=name))

    eventually(told, "an event reports it")


@pytest.mark.behaviour("SS-111")
def test_an_injected_sidecar_ends_with_its_job(world: World) -> None:
    world.apply(SET)
    eventually(lambda: world.list("sidecarsets", "-l=team=" + world.namespace), "the set exists")
    eventually(lambda: injected(world), "sidecars are injected", 30)
    found = ended(world, "Complete")
    assert codes(found) == {"main": 0, "shipper": 0}


def injected(world: World) -> bool:
    """Return whether the Pod of a new Job has the sidecar; webhooks may learn of the set a moment later."""
    world.kubectl("delete", "job", "once", "-n", world.namespace, "--ignore-not-found")
    eventually(lambda: not world.list("pods", "-l=app=once"), "the old Pod is deleted")
    world.apply(job())
    eventually(lambda: world.list("pods", "-l=app=once"), "the Job has its Pod")
    return len(pod(world)["spec"]["containers"]) == 2


@pytest.mark.behaviour("SS-115")
@pytest.mark.parametrize(("code", "condition", "phase"), [(0, "Complete", "Succeeded"), (2, "Failed", "Failed")])
def test_sidecars_whose_exit_code_is_ignored_end_last(world: World, code: int, condition: str, phase: str) -> None:
    world.apply(job(sidecar("proxy"), sidecar("side", code=3, ignored="true"), code=code))
    found = ended(world, condition)
    assert found["status"]["phase"] == phase
    assert codes(found) == {"main": code, "proxy": 0, "side": 3}
    made = requests(world, found)
    # Once the Pod's phase is final its node stops the other containers, possibly before the request does.
    assert made.pop("-ignore-exit-code", ["side"]) == ["side"]
    assert made == {"": ["proxy"]}
    conditions = {one["type"]: one.get("message") for one in found["status"]["conditions"]}
    assert conditions["SidecarTerminated"] == "Terminated by Sidecar Terminator"
