"""A DaemonSet of Kubernetes and the same with our apiVersion, side by side: the same Pods, status and events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.pods.revisions import template_data, template_hash
from app.pods.template_text import NEWEST, OPENKRUISE
from tests.cluster.controlplane import ControlPlane, wait_for_service_account
from tests.scenarios.world import eventually, manager, running

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
NODES = ["app.sandbox.nodes", "--nodes", "4"]
#: Who drives Pods away from tainted nodes by itself would be faster than either, or not.
CONTROLLERS = ["--controllers=*,-taint-eviction-controller"]
PATHS = {
    "native": "/apis/apps/v1/namespaces/side/daemonsets",
    "ours": "/apis/apps.kruise.io/v1beta1/namespaces/side/daemonsets",
}
RESOURCES = {"native": "daemonsets.apps", "ours": "daemonsets.apps.kruise.io"}
COUNTS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
)
TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}


def manifest(name: str) -> Json:
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx:1.25"}]
    pod = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": containers}
    return {
        "apiVersion": PATHS[name].removeprefix("/apis/").partition("/namespaces")[0],
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "side"},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


class Side:
    def __init__(self, api: ControlPlane) -> None:
        self.api = api

    def pods(self, name: str) -> dict[str, list[str]]:
        """Node → images and state of its Pods."""
        path = f"/api/v1/namespaces/side/pods?labelSelector=app%3D{name}"
        found: dict[str, list[str]] = {}
        for pod in self.api.request("GET", path)[1]["items"]:
            phase = "terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"].get("phase", "")
            node = pod["spec"].get("nodeName", "")
            found.setdefault(node, []).append(f"{pod['spec']['containers'][0]['image']} {phase}")
        return found

    def status(self, name: str) -> dict[str, int]:
        """Return the counts of the current spec."""
        found = self.api.request("GET", f"{PATHS[name]}/{name}")[1]
        status = found.get("status") or {}
        assert status.get("observedGeneration") == found["metadata"]["generation"]
        return {field: status.get(field, 0) for field in COUNTS}

    def alike(self, what: str, seconds: float = 90.0, **wanted: int) -> None:
        """Wait until both have these counts, and compare their Pods and counts."""

        def look(name: str) -> Callable[[], bool]:
            def seen() -> bool:
                pods, status = self.pods(name), self.status(name)
                assert status.items() >= wanted.items(), (status, pods)
                assert all(pod.endswith("Running") for there in pods.values() for pod in there), pods
                return True

            return seen

        for name in PATHS:
            # Kubernetes' controller does not recount when a taint lets its Pods stay, so make both reconcile.
            self.api.kubectl("annotate", "--overwrite", RESOURCES[name], name, "-n", "side", f"stage={what}")
            eventually(look(name), f"{what}: {name}", seconds)
        assert self.pods("ours") == self.pods("native"), what
        assert self.status("ours") == self.status("native"), what

    def change(self, patch: Json) -> None:
        """Replace both; retry after a conflict with a status write."""
        for name, path in PATHS.items():
            for _ in range(10):
                _, answer = self.api.request("GET", f"{path}/{name}")
                answer["spec"]["template"]["spec"] |= patch
                code, answer = self.api.request("PUT", f"{path}/{name}", answer)
                if code != 409:
                    break
            assert code == 200, answer

    def hashes(self, name: str) -> set[str]:
        path = f"/apis/apps/v1/namespaces/side/controllerrevisions?labelSelector=app%3D{name}"
        items = self.api.request("GET", path)[1]["items"]
        return {one["metadata"]["labels"]["controller-revision-hash"] for one in items}

    def expected_hash(self, name: str, release: str) -> str:
        """Return the hash of the stored template with the types of that release."""
        template = self.api.request("GET", f"{PATHS[name]}/{name}")[1]["spec"]["template"]
        return template_hash(template_data(template), release=release)

    def events(self, name: str) -> Counter[tuple[str, ...]]:
        """Return how often each event occurred, without random parts of the message."""
        field = f"involvedObject.name%3D{name},involvedObject.kind%3DDaemonSet"
        found: Counter[tuple[str, ...]] = Counter()
        for one in self.api.request("GET", f"/api/v1/namespaces/side/events?fieldSelector={field}")[1]["items"]:
            message = re.sub(rf"{name}-[a-z0-9]{{5}}$", "NAME", one["message"])
            found[one["type"], one["reason"], message, one["source"]["component"]] += one.get("count") or 1
        return found


@pytest.mark.behaviour("DS-82", "DS-53", "DS-18", "DS-24", "DS-28", "DS-41", "DS-44", "DS-66", "DS-69")
def test_a_daemonset_behaves_like_a_native_one_through_taints_cordons_and_updates(tmp_path: Path) -> None:
    with (
        ControlPlane(controller_manager_args=CONTROLLERS, scheduler=True) as api,
        manager(api, tmp_path / "manager"),
        running([*NODES, "--kubeconfig", str(api.kubeconfig)], tmp_path / "nodes.log"),
    ):
        side = Side(api)
        eventually(lambda: len(api.request("GET", "/api/v1/nodes")[1]["items"]) == 4, "the nodes are there")
        api.kubectl("create", "namespace", "side")
        wait_for_service_account(api.kubectl, "side")
        for name, path in PATHS.items():
            code, answer = api.request("POST", path, manifest(name))
            assert code == 201, answer
        side.alike("created", desiredNumberScheduled=4, numberAvailable=4)
        for name, release in (("native", NEWEST), ("ours", OPENKRUISE)):
            assert side.hashes(name) == {side.expected_hash(name, release)}, name

        api.kubectl("taint", "node", "node2", "dedicated=x:NoSchedule")
        side.alike("a taint that lets Pods stay", desiredNumberScheduled=3, numberMisscheduled=1)
        api.kubectl("taint", "node", "node3", "dedicated=x:NoExecute")
        side.alike("a taint that evicts Pods", desiredNumberScheduled=2, currentNumberScheduled=2)
        for name in PATHS:
            eventually(lambda name=name: "node3" not in side.pods(name), f"{name} has left node3")
        api.kubectl("cordon", "node1")
        api.kubectl("taint", "node", "node3", "dedicated-")
        side.alike("a removed taint, and a cordon", desiredNumberScheduled=3, numberAvailable=3)

        # The Pod on node2 may stay, but it is not replaced.
        side.change({"containers": [{"name": "main", "image": "nginx:1.26"}]})
        side.alike("another image", updatedNumberScheduled=3, numberAvailable=3, numberMisscheduled=0)
        side.change({"tolerations": [TOLERATION]})
        side.alike("a toleration", desiredNumberScheduled=4, updatedNumberScheduled=4, numberAvailable=4)

        api.kubectl("delete", "node", "node4")
        side.alike("a deleted node", 150, desiredNumberScheduled=3, numberAvailable=3)
        for name in PATHS:
            eventually(lambda name=name: "node4" not in side.pods(name), f"its Pod of {name} is deleted", 150)
        ours = side.events("ours")
        for event in list(ours):
            if event[1] == "numUnavailable >= maxUnavailable":
                del ours[event]  # DS-78: only ours
        native = side.events("native")
        assert {event[:3]: count for event, count in ours.items()} == {
            event[:3]: count for event, count in native.items()
        }
        assert {event[3] for event in (*ours, *native)} == {"daemonset-controller"}
