"""Kubernetes' HorizontalPodAutoscaler follows the load of the Pods that the scale subresource selects."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import wait_until_established
from tests.scenarios.world import World, eventually

pytestmark = pytest.mark.peers

#: Replaces metrics-server: the test writes the usage of each Pod.
METRICS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, stands in for metrics-server"}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, kind: PodMetrics, listKind: PodMetricsList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
POD = """
metadata: {labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "nginx:1.25", resources: {requests: {cpu: 100m}}}]
"""
AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  minReplicas: 1
  maxReplicas: 9
  scaleTargetRef: {apiVersion: apps.kruise.io/v1beta1, kind: %s, name: web}
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
"""


def workload(kind: str) -> dict[str, Any]:
    """Return a workload of two Pods."""
    selector, template = {"matchLabels": {"app": "web"}}, yaml.safe_load(POD)
    spec: dict[str, Any] = {"replicas": 2, "selector": selector, "template": template}
    if kind == "StatefulSet":
        spec |= {"serviceName": "web", "podManagementPolicy": "Parallel"}
    if kind == "UnitedDeployment":
        inner = {"metadata": template["metadata"], "spec": {"selector": selector, "template": template}}
        spec |= {"template": {"cloneSetTemplate": inner}, "topology": {"subsets": [{"name": "one"}, {"name": "two"}]}}
    return {"apiVersion": "apps.kruise.io/v1beta1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def share(world: World, load: int) -> None:
    """Divide the load, in millicores, among the Pods of the workload; the other Pod uses far more."""
    pods = [pod["metadata"] for pod in world.list("pods")]
    selected = [pod for pod in pods if pod["labels"]["app"] == "web"]
    metrics = [
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": pod["name"], "labels": pod["labels"]},
            "timestamp": (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "1s",
            "containers": [{"name": "main", "usage": {"cpu": f"{load // len(selected)}m", "memory": "1Mi"}}],
        }
        for pod in selected
    ]
    metrics.append({**metrics[0], "metadata": {"name": "other", "labels": {"app": "other"}}})
    metrics[-1]["containers"] = [{"name": "main", "usage": {"cpu": "90", "memory": "1Mi"}}]
    world.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": metrics}))


@pytest.mark.parametrize("kind", ["CloneSet", "StatefulSet", "UnitedDeployment"])
def test_replicas_follow_the_load_of_the_selected_pods(world: World, kind: str) -> None:
    world.kubectl("apply", "-f", "-", stdin=METRICS)
    wait_until_established(world.kubectl, "crd/pods.metrics.k8s.io")
    world.kubectl("run", "other", "-n", world.namespace, "--image=nginx:1.25", "--labels=app=other")
    world.apply(json.dumps(workload(kind)))
    resource = f"{kind.lower()}s.apps.kruise.io"

    def settles_at(replicas: int, load: int) -> bool:
        share(world, load)
        found, autoscaler = world.get(resource, "web"), world.get("hpa", "web").get("status", {})
        ready = found.get("status", {}).get("readyReplicas")
        usage = [one["resource"]["current"].get("averageValue") for one in autoscaler.get("currentMetrics") or ()]
        return (found["spec"]["replicas"], ready, usage) == (replicas, replicas, ["50m"])

    eventually(lambda: world.get(resource, "web").get("status", {}).get("readyReplicas") == 2, "both Pods run", 40)
    share(world, 100)
    world.apply(AUTOSCALER % kind)
    eventually(lambda: settles_at(2, 100), "two Pods share the load", 40)
    eventually(lambda: settles_at(4, 200), "twice the load doubles them", 40)
    eventually(lambda: settles_at(2, 100), "half the load halves them", 40)
