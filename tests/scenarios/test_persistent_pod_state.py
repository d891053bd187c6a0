"""Pods return to the node they ran on (U-38)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.world import World, eventually

HOST = "kubernetes.io/hostname"
STATEFUL_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: StatefulSet
metadata:
  name: web
  annotations:
    kruise.io/auto-generate-persistent-pod-state: "true"
    kruise.io/required-persistent-topology: kubernetes.io/hostname
    kruise.io/preferred-persistent-topology: kubernetes.io/hostname, kubernetes.io/os
    kruise.io/persistent-pod-annotations: example.com/address
spec:
  replicas: 3
  podManagementPolicy: Parallel
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {example.com/address: "here"}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: main, image: registry.k8s.io/pause:3.10}]
"""
PLAIN = "\n".join(
    line for line in STATEFUL_SET.splitlines() if "kruise.io/" not in line or "apiVersion" in line
).replace("  annotations:\n", "")
NATIVE = PLAIN.replace("apps.kruise.io/v1beta1", "apps/v1")
WRITTEN = """
apiVersion: apps.kruise.io/v1alpha1
kind: PersistentPodState
metadata: {name: places}
spec:
  targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}
  preferredPersistentTopology:
  - weight: 7
    preference: {nodeTopologyKeys: [kubernetes.io/hostname]}
"""


def remembered(world: World, name: str = "web") -> dict[str, Any]:
    found = world.get("persistentpodstates.apps.kruise.io", name)
    states: dict[str, Any] = found.get("status", {}).get("podStates", {})
    return states


def is_generated(world: World) -> bool:
    return any(one["metadata"]["name"] == "web" for one in world.list("persistentpodstates.apps.kruise.io"))


def replaced(world: World, name: str) -> dict[str, Any]:
    """Return the Pod that replaces a deleted one, once it is ready."""
    before = world.get("pod", name)
    world.kubectl("delete", "pod", name, "-n", world.namespace, "--wait=false")

    def look() -> dict[str, Any] | None:
        found = world.pod_is_ready(name)
        return found if found and found["metadata"]["uid"] != before["metadata"]["uid"] else None

    after = eventually(look, f"{name} is recreated")
    assert after["spec"]["nodeName"] == before["spec"]["nodeName"]
    return after


@pytest.mark.behaviour("PPS-13", "PPS-15", "PPS-18", "PPS-23", "PPS-26", "PPS-33", "PPS-34", "PPS-35")
def test_pods_of_an_annotated_statefulset_return_to_their_nodes(world: World) -> None:
    world.apply(STATEFUL_SET)
    names = ["web-0", "web-1", "web-2"]
    eventually(lambda: is_generated(world), "a PersistentPodState is created from the annotations")
    eventually(lambda: sorted(remembered(world)) == names, "all places are recorded")
    for name in names:
        pod, one = world.get("pod", name), remembered(world)[name]
        # The first Pod of a name runs anywhere.
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert one["nodeName"] == pod["spec"]["nodeName"]
        assert one["nodeTopologyLabels"][HOST]
        assert one["annotations"] == {"example.com/address": "here"}
    again = replaced(world, "web-1")
    host = remembered(world)["web-1"]["nodeTopologyLabels"][HOST]
    assert again["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", HOST: host}
    (term,) = again["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["weight"] == 100
    assert {"key": HOST, "operator": "In", "values": [host]} in term["preference"]["matchExpressions"]
    assert again["metadata"]["annotations"]["kruise.io/injected-persistent-pod-state"] == "web"

    world.kubectl("scale", "statefulsets.apps.kruise.io", "web", "--replicas=2", "-n", world.namespace)
    eventually(lambda: sorted(remembered(world)) == names[:2], "the record of the scaled-in Pod is removed")
    switch = "kruise.io/auto-generate-persistent-pod-state"
    world.kubectl("annotate", "statefulsets.apps.kruise.io", "web", f"{switch}-", "-n", world.namespace)
    eventually(lambda: not is_generated(world), "it is removed when switched off")


@pytest.mark.behaviour("PPS-7", "PPS-4", "PPS-21", "PPS-34")
def test_a_manual_object_returns_pods_of_a_native_statefulset(world: World) -> None:
    world.apply(NATIVE)
    world.apply(WRITTEN)
    eventually(lambda: len(remembered(world, "places")) == 3, "all places are recorded")
    again = replaced(world, "web-2")
    host = remembered(world, "places")["web-2"]["nodeTopologyLabels"][HOST]
    preferred = again["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    expression = {"key": HOST, "operator": "In", "values": [host]}
    assert preferred == [{"weight": 7, "preference": {"matchExpressions": [expression]}}]
    refused = world.apply(WRITTEN.replace("name: places", "name: second"), check=False)
    assert "pps.spec.targetRef is in conflict with other PersistentPodState places: " in refused.stderr
    impossible = world.apply(WRITTEN.replace("weight: 7", "weight: 101"), check=False)
    assert "must be in the range 1-100" in impossible.stderr
    world.kubectl("delete", "statefulset.apps", "web", "-n", world.namespace)
    eventually(lambda: not remembered(world, "places"), "without the workload nothing is recorded")
