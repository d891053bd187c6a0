"""Commands about nodes: pull images, restart and add containers, and what they report about jobs."""

from __future__ import annotations

import pytest

from tests.scenarios.test_node_operations import POD, nodes_with_images
from tests.scenarios.world import World, eventually, restarts

BROADCAST = """
apiVersion: apps.kruise.io/v1beta1
kind: BroadcastJob
metadata: {name: once}
spec:
  parallelism: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1.36", command: [/bin/sh, -c, sleep 600]}]
"""
SCHEDULED = """
apiVersion: apps.kruise.io/v1beta1
kind: AdvancedCronJob
metadata: {name: yearly}
spec:
  schedule: "0 0 1 1 *"
  template:
    jobTemplate:
      spec:
        template:
          spec:
            restartPolicy: Never
            containers: [{name: main, image: "busybox:1.36"}]
"""


@pytest.mark.behaviour("IMG-43", "IMG-49", "IMG-51")
def test_pull_shows_the_progress_of_each_node(world: World) -> None:
    there = nodes_with_images(world)
    one = f"kubernetes.io/hostname={there[0]}"
    done = world.pykruise("pull", "busybox:1.36", "--nodes", one, "--wait")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"ImagePullJob {world.namespace}/pull-busybox-1-36-")
    assert lines[-2:] == [f"{there[0]}: Succeeded", "1 of 1 nodes have the image"]
    none = world.pykruise("pull", "busybox:1.36", "--nodes", "no=node", "--wait")
    assert (none.returncode, none.stdout.splitlines()[-1]) == (
        1,
        "0 of 0 nodes have the image; no node matched, see: kubectl get nodeimages --show-labels",
    )
    without = world.pykruise("pull", "busybox:1.36", "--secret", "none")
    assert (without.returncode, f"Secret {world.namespace}/none: not found" in without.stderr) == (1, True)
    wrong = world.pykruise("pull", "UPPER/x")
    assert (wrong.returncode, "not an image reference" in wrong.stderr) == (2, True)
    jobs = world.list("imagepulljobs")
    tried = world.pykruise("pull", "busybox:1.36", "--wait", "--dry-run").stdout
    assert (tried.endswith("busybox:1.36 (dry run)\n"), world.list("imagepulljobs")) == (True, jobs)
    name = lines[0].partition(":")[0].partition(" ")[2]

    def told() -> bool:
        """Other tests may pull the same image meanwhile."""
        lines = world.pykruise("explain", "node", there[0]).stdout.splitlines()
        return any(name in line and "Succeeded" in line for line in lines)

    eventually(told, "the node has the image")


@pytest.mark.behaviour("CRR-37", "CRR-38")
def test_restart_shows_the_progress_of_each_container(world: World) -> None:
    world.apply(POD)
    eventually(lambda: world.pod_is_ready("web"), "the Pod is ready", 120)
    before = restarts(world.get("pod", "web"))
    which = world.pykruise("restart", "pod/web")
    assert (which.returncode, "name the container with -c: main, side" in which.stderr) == (1, True)
    none = world.pykruise("restart", "pod/nobody", "-c", "main")
    assert (none.returncode, f"Pod {world.namespace}/nobody: not found" in none.stderr) == (1, True)
    other = world.pykruise("restart", "pod/web", "-c", "sid")
    assert (other.returncode, "has no container sid; name one with -c: main, side" in other.stderr) == (1, True)
    done = world.pykruise("restart", "pod/web", "-c", "main", "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["main: Succeeded", "1 of 1 containers restarted"]
    assert restarts(world.get("pod", "web")) == {"main": before["main"] + 1, "side": before["side"]}
    unknown = world.pykruise("restart", "pod/web", "-c", "nobody")
    assert (unknown.returncode, "nobody" in unknown.stderr) == (1, True)


@pytest.mark.behaviour("BJ-12", "ACJ-9")
def test_explain_shows_the_next_step_of_a_job(world: World) -> None:
    world.apply(BROADCAST)
    active = lambda: world.get("broadcastjob", "once").get("status", {}).get("active") == 1  # noqa: E731
    eventually(active, "one Pod exists")
    told = world.pykruise("explain", "broadcastjob", "once").stdout
    assert f"BroadcastJob {world.namespace}/once: {len(world.nodes())} nodes are desired; it is running" in told
    assert told.count("parallelism 1") == len(world.nodes()) - 1
    assert "phase running:" in told
    (pod,) = world.list("pods", "-l", "broadcastjob-name=once")
    assert "created for node" in world.pykruise("explain", "pod", pod["metadata"]["name"]).stdout
    world.apply(SCHEDULED)
    told = world.pykruise("explain", "acj", "yearly").stdout
    assert told.count("-01-01T00:00:00Z   yearly-") == 5
    assert told.endswith("last run: none yet\nto do: nothing\n")


@pytest.mark.behaviour("CLI-17")
def test_jobs_are_paused_and_resumed(world: World) -> None:
    for manifest, kind, name in ((BROADCAST, "broadcastjob", "once"), (SCHEDULED, "acj", "yearly")):
        world.apply(manifest)
        assert "paused" in world.pykruise("rollout", "pause", kind, name).stdout
        assert world.get(kind, name)["spec"]["paused"] is True
        assert "is already paused" in world.pykruise("rollout", "pause", kind, name).stdout
        last = world.pykruise("explain", kind, name).stdout.splitlines()[-1]
        assert last.startswith("to do: pykruise rollout resume ")
        assert world.pykruise(*last.split()[3:]).returncode == 0
        assert world.get(kind, name)["spec"]["paused"] is False
