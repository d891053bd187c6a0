"""Why a Pod is not ready, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from app.pods.not_ready_reasons import Obstacle, obstacles
from tests.kit import objects


def found(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> list[Obstacle]:
    own = {"containers": [{"name": "main", "image": "nginx:9"}], "nodeName": "node-1", **(spec or {})}
    return list(obstacles(objects.pod(spec=own, status={"phase": "Pending", **(status or {})}, **metadata)))


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "image": "nginx:9", **state}]}


LOGS = "kubectl logs -n shop web-0 -c main"


@pytest.mark.parametrize(("given", "what", "way_out"), [
    ({"status": container(state={"waiting": {"reason": "ErrImagePull", "message": "no  such\nimage"}})},
     "image nginx:9 of container main cannot be pulled (ErrImagePull): no such image",
     "correct the image of main in the template, or add an image pull secret"),
    ({"status": container(restartCount=7, state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
     lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})},
     "container main keeps exiting with exit code 137 (OOMKilled), 7 restarts", f"{LOGS} --previous"),
    ({"status": container(state={"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}})},
     "container main does not start (CreateContainerConfigError): no secret", "kubectl describe pod -n shop web-0"),
    ({"status": {"phase": "Running", **container(state={"terminated": {"exitCode": 3, "reason": "Error"}})}},
     "container main exited with code 3: Error", LOGS),
    ({"status": {"phase": "Running", **container(started=False, state={"running": {}})}},
     "container main is running, but its startup probe has not succeeded yet", LOGS),
    ({"status": {"phase": "Running", **container(started=True, state={"running": {}})}},
     "container main is running but not ready: its readiness probe fails, or has not run yet",
     "kubectl describe pod -n shop web-0 shows the result of the probe"),
    ({"spec": {"nodeName": ""}, "status": {"conditions": [{"type": "PodScheduled", "status": "False",
     "reason": "Unschedulable", "message": "0/3 nodes: cpu"}]}}, "it cannot be scheduled: 0/3 nodes: cpu",
     "add nodes, free resources, or relax its template (resources, affinity, nodeSelector)"),
    ({"spec": {"nodeName": ""}, "status": {"conditions": [{"type": "PodScheduled", "status": "False",
     "reason": "SchedulingGated"}]}}, "scheduling gates keep it from being scheduled",
     "wait for the controller of spec.schedulingGates to remove the gates"),
    ({"labels": {"lifecycle.apps.kruise.io/state": "PreparingUpdate"}},
     "a lifecycle hook delays its update (state PreparingUpdate)",
     "wait for the hook's controller to remove its finalizers and labels (see spec.lifecycle)"),
    ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]},
     "it is being deleted, but finalizer a/b remains", "check the controller that owns the finalizer"),
    ({"spec": {"readinessGates": [{"conditionType": "example.com/traffic"}]}, "status": {"phase": "Running",
     "conditions": [{"type": "example.com/traffic", "status": "False", "message": "not in the pool"}]}},
     "readiness gate example.com/traffic is False: not in the pool",
     "check the controller that sets condition example.com/traffic"),
    ({"spec": {"readinessGates": [{"conditionType": "InPlaceUpdateReady"}]}, "status": {"phase": "Running",
     "conditions": [{"type": "InPlaceUpdateReady", "status": "False"}]}},
     "it is being updated in place: its node has not started the changed containers yet",
     "wait; if this persists, run kubectl describe pod -n shop web-0"),
])  # fmt: skip
@pytest.mark.behaviour("CLI-14")
def test_each_obstacle_is_reported_with_the_way_out(given: dict[str, Any], what: str, way_out: str) -> None:
    assert found(**given) == [Obstacle(what, way_out)]


@pytest.mark.parametrize("status", [
    {},
    container(state={"waiting": {"reason": "ContainerCreating"}}),
    container(state={}),
    {"phase": "Running", **container(ready=True, started=True, state={"running": {}})},
    {"phase": "Succeeded", **container(state={"terminated": {"exitCode": 0}})},
])  # fmt: skip
def test_temporary_conditions_are_not_obstacles(status: dict[str, Any]) -> None:
    assert found(status=status) == []


def test_a_long_message_is_cut() -> None:
    (one,) = found(status=container(state={"waiting": {"reason": "RunContainerError", "message": "x" * 10_000}}))
    assert len(one.what) < 400
    assert one.what.endswith(" …")
