"""Jobs on every node and on a schedule (U-50 … U-55)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.world import World, eventually

BROADCAST = """
apiVersion: apps.kruise.io/{version}
kind: BroadcastJob
metadata: {{name: {name}}}
spec:
  parallelism: {parallelism}
  template:
    metadata: {{labels: {{app: {name}}}, annotations: {{{annotations}}}}}
    spec:
      restartPolicy: Never
      tolerations: [{{operator: Exists}}]
      containers: [{{name: main, image: "busybox:1.36", command: ["/bin/sh", "-c", "sleep {sleep}"]}}]
  completionPolicy: {policy}
"""
CRON = """
apiVersion: apps.kruise.io/{version}
kind: AdvancedCronJob
metadata: {{name: {name}}}
spec:
  schedule: "{schedule}"
  template:
    {kind}:
      spec:
        template:
          spec:
            restartPolicy: {restart}
            containers: [{{name: main, image: "busybox:1.36", command: ["/bin/sh", "-c", "sleep 1"]}}]
"""


def broadcast(name: str, policy: str = "{type: Always}", sleep: int = 1, parallelism: str = "100%") -> str:
    return BROADCAST.format(
        version="v1beta1", name=name, policy=policy, sleep=sleep, parallelism=parallelism, annotations=""
    )


def cron(name: str, kind: str, schedule: str, restart: str = "Never", version: str = "v1beta1") -> str:
    return CRON.format(version=version, name=name, kind=kind, schedule=schedule, restart=restart)


def pods(world: World, name: str) -> list[dict[str, Any]]:
    return world.list("pods", f"-l=broadcastjob-name={name}")


def status(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.get("broadcastjob", name).get("status", {})
    return found


@pytest.mark.behaviour("BJ-1", "BJ-5", "BJ-13", "BJ-18", "U-50")
def test_one_pod_on_every_node(world: World) -> None:
    world.apply(broadcast("once", sleep=600))
    nodes = {one["metadata"]["name"] for one in world.list("nodes")}

    def running() -> bool:
        found = pods(world, "once")
        return {one["spec"].get("nodeName") for one in found} == nodes and len(found) == len(nodes)

    eventually(running, "every node has its Pod")
    eventually(lambda: status(world, "once").get("active") == len(nodes), "they are counted")
    assert world.columns("broadcastjob", "once")[:5] == ["once", str(len(nodes)), str(len(nodes)), "0", "0"]


@pytest.mark.behaviour("ACJ-6", "ACJ-13", "ACJ-27", "ACJ-28", "U-54")
@pytest.mark.parametrize(
    ("kind", "made", "version"),
    [("jobTemplate", "Job", "v1beta1"), ("broadcastJobTemplate", "BroadcastJob", "v1alpha1")],
)
def test_a_job_on_a_schedule(world: World, kind: str, made: str, version: str) -> None:
    name = made.lower()
    world.apply(cron(name, kind, "@every 3s", version=version))
    eventually(lambda: made in world.columns("advancedcronjob", name), "the type is shown")

    def two() -> list[str]:
        resource = "jobs.batch" if made == "Job" else "broadcastjobs"
        found = [one["metadata"]["name"] for one in world.list(resource)]
        return found if len(found) > 1 else []

    for job in eventually(two, "two runs"):
        prefix, _, seconds = job.rpartition("-")
        assert prefix == name
        assert seconds.isdigit()
    assert eventually(
        lambda: world.get("advancedcronjob", name).get("status", {}).get("lastScheduleTime"), "the last run is reported"
    )
