"""Ephemeral containers in running Pods."""

from __future__ import annotations

from functools import partial

import pytest

from tests.scenarios.world import World, eventually

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: main, image: "busybox:1.36", command: ["/bin/sh", "-c", "sleep 600"]}]
"""
JOB = """
apiVersion: apps.kruise.io/v1alpha1
kind: EphemeralJob
metadata: {name: look}
spec:
  selector: {matchLabels: {app: web}}
  template:
    ephemeralContainers:
    - {name: look, image: "busybox:1.36", imagePullPolicy: IfNotPresent, terminationMessagePolicy: File}
"""


@pytest.mark.behaviour("EJ-3", "EJ-7", "EJ-8")
def test_a_container_is_added_to_a_running_pod_and_stays(world: World) -> None:
    world.apply(POD)
    eventually(lambda: world.pod_is_ready("web"), "the Pod is ready")
    world.apply(JOB)
    found = eventually(lambda: world.get("pod", "web")["spec"].get("ephemeralContainers"), "the container exists")
    assert [one["name"] for one in found] == ["look"]
    job = world.get("ephemeraljob", "look")
    assert {"name": "KRUISE_EJOB_ID", "value": job["metadata"]["uid"]} in found[0]["env"]
    eventually(lambda: world.get("ephemeraljob", "look").get("status", {}).get("match") == 1, "the Pod is counted")
    world.kubectl("delete", "ephemeraljob", "look", "-n", world.namespace)
    eventually(lambda: not world.list("ephemeraljobs"), "the job is deleted")
    assert world.get("pod", "web")["spec"]["ephemeralContainers"]


@pytest.mark.behaviour("EJ-5", "EJ-10", "EJ-11")
def test_a_job_ends_with_its_containers(world: World) -> None:
    world.apply(POD)
    eventually(lambda: world.pod_is_ready("web"), "the Pod is ready")
    for name, code, phase in (("well", 0, "Succeeded"), ("badly", 3, "Failed")):
        command = f'name: {name}, command: ["/bin/sh", "-c", "sleep 1; exit {code}"]'
        world.apply(JOB.replace("{name: look}", f"{{name: {name}}}").replace("name: look", command))

        def ended(name: str = name) -> str | None:
            status = world.get("ephemeraljob", name).get("status", {})
            return status["phase"] if status.get("completionTime") else None

        assert eventually(ended, f"{name} has ended", 90) == phase
        status = world.get("ephemeraljob", name)["status"]
        assert (status["match"], status["succeeded"], status["failed"]) == (1, int(not code), int(bool(code)))
        told = world.pykruise("explain", "ephemeraljob", name).stdout.splitlines()
        way_out = f"kubectl logs -n {world.namespace} web -c {name}" if code else "nothing"
        assert told[-1] == f"to do: {way_out}"


@pytest.mark.behaviour("EJ-7", "EJ-8", "EJ-10")
def test_a_command_debugs_one_pod(world: World) -> None:
    """`pykruise debug` reports at once what it cannot do, and leaves nothing behind."""
    world.apply(POD)
    world.apply(POD.replace("name: web,", "name: other,"))
    for name in ("web", "other"):
        eventually(partial(world.pod_is_ready, name), f"{name} is ready")
    there = ("debug", "pod/web", "--image=busybox:1.36")
    for words, said in (
        ((*there, "--name=main"), "--name: Pod web already has a container main; choose another name"),
        ((*there, "--target=mine"), "--target: Pod web has no container mine; it has main"),
        ((*there, "--timeout=long"), "--timeout: 'long' is not a duration such as 90s, 5m or 1h30m"),
        (("debug", "pod/web"), "--image is required"),
        (("debug", "pod/wed", "--image=busybox:1.36"), "wed: not found"),
        (("debug", "pod/web", "--image=no image!"), "cannot run: InvalidImageName"),
    ):
        found = world.pykruise(*words)
        assert found.returncode != 0
        assert said in found.stderr
    assert not world.list("ephemeraljobs")
    assert "pykruise.io/debug" not in world.get("pod", "web")["metadata"]["labels"]
    for code in (0, 3):
        found = world.pykruise(*there, f"--name=look{code}", "--", "/bin/sh", "-c", f"exit {code}")
        if world.real_containers and "attach with: " in found.stdout:
            continue  # the node reported the container while it was still running
        assert f"look{code}: exit code {code}" in found.stdout, found.stderr
        assert found.returncode == (1 if code else 0)
    found = world.pykruise(*there, "--name=stays", "--no-attach", "--", "/bin/sh", "-c", "sleep 600")
    assert "kubectl attach -it web -c stays" in found.stdout, found.stderr
    found = world.pykruise(*there, "--name=tools", "--target=main")
    assert f"attach with: kubectl attach -it web -c tools -n {world.namespace}" in found.stdout, found.stderr
    assert found.returncode == 0
    containers = {one["name"]: one for one in world.get("pod", "web")["spec"]["ephemeralContainers"]}
    assert (containers["tools"]["targetContainerName"], containers["tools"]["tty"]) == ("main", True)
    told = world.pykruise("explain", "pod", "web").stdout
    assert "ephemeral container tools: added by EphemeralJob debug-web-" in told
    assert "ephemeralContainers" not in world.get("pod", "other")["spec"]
