"""Objects left by OpenKruise on a real API server: taken over, then changed, scaled and deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.api.conversion import convert
from app.features.uniteddeployment.plan.subsets import content_of
from app.features.uniteddeployment.types import UnitedDeployment
from app.manager.features import kinds
from tests.cluster.controlplane import ControlPlane
from tests.openkruise import FOLDER, bare
from tests.scenarios.world import eventually, install, manager

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
GATE = "--feature-gates=ResourceDistributionGate=true"
NAMESPACE = "moving"
OURS = {kind.kind: kind.resource() for kind in kinds()}
#: Owners before dependents.
NATIVE = {"ControllerRevision": ("/apis/apps/v1", "controllerrevisions"), "ConfigMap": ("/api/v1", "configmaps")}
NATIVE["Pod"] = ("/api/v1", "pods")
ORDER = ("UnitedDeployment", "ResourceDistribution", "CloneSet", *NATIVE)


def path_of(kind: str, name: str = "") -> str:
    if kind in NATIVE:
        base, plural = NATIVE[kind]
        path = f"{base}/namespaces/{NAMESPACE}/{plural}"
    else:
        resource = OURS[kind]
        where = f"namespaces/{NAMESPACE}/" if resource.namespaced else ""
        path = f"/apis/{resource.api_version}/{where}{resource.plural}"
    return f"{path}/{name}" if name else path


UNITED, DISTRIBUTION = path_of("UnitedDeployment", "ud"), path_of("ResourceDistribution", "rd")


def create_all(api: ControlPlane, items: list[Json]) -> None:
    """Create the objects with their statuses, under the uids of this API server; skip those with a missing owner."""
    api.kubectl("create", "namespace", NAMESPACE)
    api.kubectl("wait", "--for=create", "-n", NAMESPACE, "serviceaccount/default", "--timeout=30s")
    uids: dict[str, str] = {}

    def with_uids(item: Json) -> Json:
        text = json.dumps(item)
        for old, new in uids.items():
            text = text.replace(old, new)
        return dict(json.loads(text))

    for item in sorted(items, key=lambda one: ORDER.index(one["kind"])):
        kind, metadata = item["kind"], item["metadata"]
        owners = [one for one in metadata.get("ownerReferences", ()) if one["uid"] in uids]
        if ("ownerReferences" in metadata and not owners) or metadata["name"] == "kube-root-ca.crt":
            continue  # of a missing workload, or of Kubernetes
        made = with_uids({**bare(item), "status": item.get("status", {})})
        if "namespace" in metadata:
            made["metadata"]["namespace"] = NAMESPACE
        if owners:
            made["metadata"]["ownerReferences"] = with_uids({"": owners})[""]
        if kind in OURS and made["apiVersion"] != OURS[kind].api_version:
            made = convert(made, OURS[kind].api_version)
        if kind == "Pod":
            made["spec"].pop("ephemeralContainers", None)  # they can only be added
        status = made.pop("status")
        code, answer = api.request("POST", path_of(kind), made)
        assert code == 201, (kind, answer["message"])
        uids[metadata["uid"]] = answer["metadata"]["uid"]
        if status:
            if "observedGeneration" in status:
                status["observedGeneration"] = answer["metadata"]["generation"]
            change(api, path_of(kind, answer["metadata"]["name"]), "status", **status)


def change(api: ControlPlane, path: str, part: str = "spec", **fields: Any) -> None:
    """Replace fields of the spec or status; retry conflicts, because controllers react to new objects at once."""
    code = 409
    while code == 409:
        found = api.request("GET", path)[1]
        changed = {**found, part: {**found.get(part, {}), **fields}}
        code, answer = api.request("PUT", f"{path}/status" if part == "status" else path, changed)
    assert code == 200, (path, answer)


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
            "namespace": NAMESPACE,
            "uid": "5a2b7d1e-8f0c-4c55-9a53-0b1f6d2c7e94",
            "labels": {"controller.kubernetes.io/hash": "dd9979f77"},
            "ownerReferences": [content_of(model).owner.reference],
        },
        "data": json.loads(content_of(model).data),
        "revision": 1,
    }
    return [*items, revision]


class Cluster:
    def __init__(self, api: ControlPlane) -> None:
        self.api = api

    def list(self, kind: str) -> dict[str, Json]:
        items = self.api.request("GET", path_of(kind))[1]["items"]
        return {one["metadata"]["name"]: one for one in items if one["metadata"]["name"] != "kube-root-ca.crt"}

    def versions(self, *kinds: str) -> dict[str, str]:
        found = ((kind, name, one) for kind in kinds for name, one in self.list(kind).items())
        return {f"{kind}/{name}": one["metadata"]["resourceVersion"] for kind, name, one in found}

    def workloads(self) -> dict[str, tuple[int, Json]]:
        """Return generation and labels of each workload: they change with everything but the status."""
        found = self.list("CloneSet").items()
        return {name: (one["metadata"]["generation"], one["metadata"]["labels"]) for name, one in found}

    def get(self, path: str) -> Json:
        found: Json = self.api.request("GET", path)[1]
        return found

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


@pytest.mark.behaviour("UD-32", "UD-42", "UD-45", "UD-48", "RD-34", "RD-36", "RD-33", "RD-40")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    # No node of the recorded Pods exists, so the garbage collector of Pods would remove them after a minute.
    with ControlPlane(controller_manager_args=["--controllers=*,-podgc"]) as api:
        install(api)
        create_all(api, recorded())
        there = Cluster(api)
        before = there.versions("Pod", "ControllerRevision", "ConfigMap")
        pods, workloads = set(there.list("Pod")), there.workloads()
        with manager(api, tmp_path / "manager", GATE):
            # Changes that affect no workload or copy: once they are observed, both objects have been reconciled.
            change(api, UNITED, revisionHistoryLimit=9)
            targets = there.get(DISTRIBUTION)["spec"]["targets"]
            excluded = {"excludedNamespaces": {"list": [{"name": "kruise-system"}]}}
            change(api, DISTRIBUTION, targets={**targets, **excluded})
            eventually(lambda: there.seen(UNITED), "the UnitedDeployment is taken over")
            eventually(lambda: there.seen(DISTRIBUTION), "the ResourceDistribution is taken over")
            assert there.versions("Pod", "ControllerRevision", "ConfigMap") == before
            assert there.workloads() == workloads
            assert there.get(UNITED)["status"]["currentRevision"] == "ud-dd9979f77"
            # Scaling out: the subsets without a fixed number share the rest.
            change(api, UNITED, replicas=6)
            eventually(lambda: there.counts() == {"one": 1, "two": 3, "three": 2}, "the subsets grow")
            eventually(lambda: len(there.list("Pod")) == 6, "the CloneSets grow")
            kept = {name for name, pod in there.list("Pod").items() if "deletionTimestamp" not in pod["metadata"]}
            assert pods <= kept
            # A template change: one more revision, used by every subset.
            template = there.get(UNITED)["spec"]["template"]
            template["cloneSetTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.15.1"
            change(api, UNITED, template=template)
            eventually(lambda: there.images() == {"nginx:1.15.1"}, "all subsets have the image")
            own = [
                one["metadata"]["name"]
                for one in there.list("ControllerRevision").values()
                if one["metadata"]["ownerReferences"][0]["kind"] == "UnitedDeployment"
            ]
            assert len(own) == 2
            assert "ud-dd9979f77" in own
            # A changed resource: the copy follows.
            resource = there.get(DISTRIBUTION)["spec"]["resource"]
            change(api, DISTRIBUTION, resource={**resource, "data": {"level": "changed"}})

            def data() -> Any:
                return there.list("ConfigMap").get("shared-settings", {}).get("data")

            eventually(lambda: data() == {"level": "changed"}, "the copy follows")
            # A removed subset loses its workload, and a deleted owner its dependents.
            topology = there.get(UNITED)["spec"]["topology"]
            change(api, UNITED, topology={**topology, "subsets": topology["subsets"][:2]})
            eventually(lambda: there.counts() == {"one": 1, "two": 5}, "the removed subset's Pods are redistributed")
            api.request("DELETE", UNITED)
            api.request("DELETE", DISTRIBUTION)
            # The garbage collector looks for new kinds every 30 s.
            eventually(lambda: not there.list("CloneSet"), "its workloads are deleted", 120)
            eventually(lambda: data() is None, "its copies are deleted", 120)
