"""What OpenKruise left behind, on a real API server: taken over, then changed, scaled and deleted by ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.api.conversion import convert
from app.features.uniteddeployment.plan.subsets import content_of
from app.features.uniteddeployment.types import UnitedDeployment
from tests.cluster.controlplane import ControlPlane
from tests.openkruise import FOLDER
from tests.scenarios.world import eventually, install, manager

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
GATE = "--feature-gates=ResourceDistributionGate=true"
NAMESPACE = "/apis/apps.kruise.io/v1beta1/namespaces/moving"
UNITED, DISTRIBUTION = f"{NAMESPACE}/uniteddeployments", "/apis/apps.kruise.io/v1beta1/resourcedistributions"
PATHS = {
    "UnitedDeployment": UNITED,
    "CloneSet": f"{NAMESPACE}/clonesets",
    "Pod": "/api/v1/namespaces/moving/pods",
    "ControllerRevision": "/apis/apps/v1/namespaces/moving/controllerrevisions",
    "ResourceDistribution": DISTRIBUTION,
    "ConfigMap": "/api/v1/namespaces/moving/configmaps",
}
GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName")


def recorded() -> list[Json]:
    items = json.loads((FOLDER / "14-united-distribution.json").read_text("utf-8"))["items"]
    united = next(one for one in items if one["kind"] == "UnitedDeployment")
    # OpenKruise keeps the revision of a CloneSet template without the template's labels.
    model = UnitedDeployment.model_validate(convert(united, "apps.kruise.io/v1beta1"))
    revision: Json = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": united["status"]["currentRevision"],
            "namespace": "moving",
            "uid": "revision",
            "labels": {"controller.kubernetes.io/hash": "dd9979f77"},
            "ownerReferences": [content_of(model).owner.reference],
        },
        "data": json.loads(content_of(model).data),
        "revision": 1,
    }
    return [*items, revision]


def lay_down(api: ControlPlane) -> None:
    """The recorded objects, under the uids that this API server gives."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "moving"}})
    account = {"metadata": {"name": "default", "namespace": "moving"}}
    api.request("POST", "/api/v1/namespaces/moving/serviceaccounts", account)
    uids: dict[str, str] = {}
    order = list(PATHS)
    for one in sorted(recorded(), key=lambda found: order.index(found["kind"])):
        metadata = one["metadata"]
        if metadata["name"] == "kube-root-ca.crt":
            continue
        if one["kind"] == "UnitedDeployment":
            one = convert(one, "apps.kruise.io/v1beta1")
            metadata = one["metadata"]
        old, status = metadata["uid"], one.pop("status", None)
        for field in GIVEN_BY_SERVER:
            metadata.pop(field, None)
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = uids[owner["uid"]]
        if one["kind"] == "Pod":
            without_projections(one)
        path = PATHS[one["kind"]]
        code, made = api.request("POST", path, one)
        assert code == 201, json.dumps(made)
        uids[old] = made["metadata"]["uid"]
        if status is not None:
            if "observedGeneration" in status and one["kind"] != "Pod":
                status["observedGeneration"] = made["metadata"]["generation"]
            answer: Json = {}
            code = 409
            while code == 409:
                _, answer = api.request("GET", f"{path}/{metadata['name']}")
                code, answer = api.request("PUT", f"{path}/{metadata['name']}/status", {**answer, "status": status})
            assert code == 200, answer


def without_projections(pod: Json) -> None:
    """Nobody issues tokens here, and no node is there."""
    spec = pod["spec"]
    spec["volumes"] = [one for one in spec.get("volumes", ()) if "projected" not in one]
    for container in spec["containers"]:
        container.pop("volumeMounts", None)
    for field in ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy", "ephemeralContainers"):
        spec.pop(field, None)
    spec["automountServiceAccountToken"] = False


class Cluster:
    def __init__(self, api: ControlPlane) -> None:
        self.api = api

    def list(self, kind: str) -> dict[str, Json]:
        items = self.api.request("GET", PATHS[kind])[1]["items"]
        return {one["metadata"]["name"]: one for one in items if one["metadata"]["name"] != "kube-root-ca.crt"}

    def versions(self, *kinds: str) -> dict[str, str]:
        found = ((kind, name, one) for kind in kinds for name, one in self.list(kind).items())
        return {f"{kind}/{name}": one["metadata"]["resourceVersion"] for kind, name, one in found}

    def workloads(self) -> dict[str, tuple[int, Json]]:
        """All that is not status has a generation or stands in the labels."""
        found = self.list("CloneSet").items()
        return {name: (one["metadata"]["generation"], one["metadata"]["labels"]) for name, one in found}

    def get(self, path: str) -> Json:
        found: Json = self.api.request("GET", path)[1]
        return found

    def change(self, path: str, **spec: Any) -> None:
        """Replace the object; once more after a conflict, since the manager writes its status meanwhile."""
        for _ in range(10):
            found = self.get(path)
            code, answer = self.api.request("PUT", path, {**found, "spec": {**found["spec"], **spec}})
            if code != 409:
                break
        assert code == 200, answer

    def seen(self, path: str) -> bool:
        found = self.get(path)
        return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])

    def counts(self) -> dict[str, int]:
        return {
            one["metadata"]["labels"]["apps.kruise.io/subset-name"]: one["spec"]["replicas"]
            for one in self.list("CloneSet").values()
        }

    def images(self) -> set[str]:
        return {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in self.list("CloneSet").values()}


@pytest.mark.behaviour("UD-32", "UD-42", "UD-45", "UD-48", "RD-34", "RD-36", "RD-39", "RD-40")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    # No node of the recorded Pods exists, so the garbage collector of Pods would remove them after a minute.
    with ControlPlane(controller_manager_args=["--controllers=*,-podgc"]) as api:
        install(api)
        lay_down(api)
        there = Cluster(api)
        before = there.versions("Pod", "ControllerRevision", "ConfigMap")
        workloads = there.workloads()
        with manager(api, tmp_path / "manager", GATE):
            # Changes that ask nothing of any workload or copy: once they are seen, all has been worked on.
            there.change(f"{UNITED}/ud", revisionHistoryLimit=9)
            targets = there.get(f"{DISTRIBUTION}/rd")["spec"]["targets"]
            excluded = {"excludedNamespaces": {"list": [{"name": "kruise-system"}]}}
            there.change(f"{DISTRIBUTION}/rd", targets={**targets, **excluded})
            eventually(lambda: there.seen(f"{UNITED}/ud"), "the UnitedDeployment is taken over")
            eventually(lambda: there.seen(f"{DISTRIBUTION}/rd"), "the ResourceDistribution is taken over")
            assert there.versions("Pod", "ControllerRevision", "ConfigMap") == before
            assert there.workloads() == workloads
            assert there.get(f"{UNITED}/ud")["status"]["currentRevision"] == "ud-dd9979f77"
            # Scaled: those that are free share the rest.
            there.change(f"{UNITED}/ud", replicas=6)
            eventually(lambda: there.counts() == {"one": 1, "two": 3, "three": 2}, "the subsets grow")
            # Changed: one more revision, and every subset has it.
            template = there.get(f"{UNITED}/ud")["spec"]["template"]
            template["cloneSetTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.15.1"
            there.change(f"{UNITED}/ud", template=template)
            eventually(lambda: there.images() == {"nginx:1.15.1"}, "all subsets have the image")
            own = [
                one["metadata"]["name"]
                for one in there.list("ControllerRevision").values()
                if one["metadata"]["ownerReferences"][0]["kind"] == "UnitedDeployment"
            ]
            assert len(own) == 2
            assert "ud-dd9979f77" in own
            # Changed: the copy follows.
            resource = there.get(f"{DISTRIBUTION}/rd")["spec"]["resource"]
            there.change(f"{DISTRIBUTION}/rd", resource={**resource, "data": {"level": "changed"}})

            def data() -> Any:
                return there.list("ConfigMap").get("shared-settings", {}).get("data")

            eventually(lambda: data() == {"level": "changed"}, "the copy follows")
            # A subset goes with its workload, and all of it with its object.
            topology = there.get(f"{UNITED}/ud")["spec"]["topology"]
            there.change(f"{UNITED}/ud", topology={**topology, "subsets": topology["subsets"][:2]})
            eventually(lambda: there.counts() == {"one": 1, "two": 5}, "the subset that is gone gave its Pods")
            api.request("DELETE", f"{UNITED}/ud")
            api.request("DELETE", f"{DISTRIBUTION}/rd")
            eventually(lambda: not there.list("CloneSet"), "the workloads go with it", 120)
            eventually(lambda: data() is None, "the copies go with theirs", 120)
