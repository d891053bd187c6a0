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
  concurrencyPolicy: {concurrency}
  template:
    {kind}:
      spec:
        template:
          spec:
            restartPolicy: Never
            containers: [{{name: main, image: "busybox:1.36", command: ["/bin/sh", "-c", "sleep {sleep}"]}}]
"""


def broadcast(name: str, policy: str = "{type: Always}", sleep: int = 1, parallelism: str = "100%") -> str:
    return BROADCAST.format(
        version="v1beta1", name=name, policy=policy, sleep=sleep, parallelism=parallelism, annotations=""
    )


def cron(
    name: str,
    kind: str,
    schedule: str,
    *,
    version: str = "v1beta1",
    concurrency: str = "Allow",
    sleep: int = 1,
) -> str:
    return CRON.format(version=version, name=name, kind=kind, schedule=schedule, concurrency=concurrency, sleep=sleep)


def pods(world: World, name: str) -> list[dict[str, Any]]:
    return world.list("pods", f"-l=broadcastjob-name={name}")


def status(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.get("broadcastjob", name).get("status", {})
    return found


@pytest.mark.behaviour("BJ-1", "BJ-5", "BJ-13", "BJ-18", "U-50")
def test_a_broadcast_job_runs_one_pod_on_every_node(world: World) -> None:
    world.apply(broadcast("once", sleep=600))
    nodes = {one["metadata"]["name"] for one in world.list("nodes")}

    def running() -> bool:
        found = pods(world, "once")
        return {one["spec"].get("nodeName") for one in found} == nodes and len(found) == len(nodes)

    eventually(running, "every node has its Pod")
    eventually(lambda: status(world, "once").get("active") == len(nodes), "they are counted")
    assert world.columns("broadcastjob", "once")[:5] == ["once", str(len(nodes)), str(len(nodes)), "0", "0"]


@pytest.mark.behaviour("ACJ-6", "ACJ-13", "ACJ-16", "ACJ-27", "ACJ-28", "U-54")
@pytest.mark.parametrize(
    ("kind", "made", "version"),
    [("jobTemplate", "Job", "v1beta1"), ("broadcastJobTemplate", "BroadcastJob", "v1alpha1")],
)
def test_a_scheduled_job_replaces_the_one_before(world: World, kind: str, made: str, version: str) -> None:
    name = made.lower()
    resource = "jobs.batch" if made == "Job" else "broadcastjobs"
    world.apply(cron(name, kind, "@every 3s", version=version, concurrency="Replace", sleep=600))
    eventually(lambda: made in world.columns("advancedcronjob", name), "the type is shown")

    def runs() -> set[str]:
        return {one["metadata"]["name"] for one in world.list(resource)}

    first = eventually(runs, "the first run")
    later = eventually(lambda: not (found := runs()) & first and found, "a later run in place of the first")
    for job in first | later:
        prefix, _, seconds = job.rpartition("-")
        assert prefix == name
        assert seconds.isdigit()
    assert eventually(
        lambda: world.get("advancedcronjob", name).get("status", {}).get("lastScheduleTime"), "the last run is reported"
    )
