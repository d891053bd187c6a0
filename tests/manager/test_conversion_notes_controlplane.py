"""Attacks with the conversion note on a real API server: a tenant may write any annotation on its own objects."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.kit.objects import workload_spec
from tests.scenarios.world import eventually, manager

pytestmark = pytest.mark.controlplane

Json = dict[str, Any]
NOTES = "kruise.io/conversion-data"
PROTECTION = "policy.kruise.io/delete-protection"
APPS = "/apis/apps.kruise.io"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane() as control_plane:
        eventually(
            lambda: control_plane.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200,
            "Pods can be created",
            30,
        )
        with manager(control_plane, tmp_path_factory.mktemp("manager")):
            yield control_plane


def note(version: str, *changes: Json) -> Json:
    return {NOTES: json.dumps({"version": version, "changes": [[change] for change in changes]})}


def path(plural: str, version: str, name: str = "") -> str:
    return f"{APPS}/{version}/namespaces/default/{plural}" + (f"/{name}" if name else "")


def clone_set(version: str, name: str, **metadata: Any) -> Json:
    head = {"apiVersion": f"apps.kruise.io/{version}", "kind": "CloneSet", "metadata": {"name": name, **metadata}}
    return {**head, "spec": workload_spec(app=name)}


def stored(api: ControlPlane, plural: str, name: str) -> Json:
    status, obj = api.request("GET", path(plural, "v1beta1", name))
    assert status == 200, obj
    return obj


def put(api: ControlPlane, url: str, subresource: str = "", **parts: Json) -> tuple[int, Json]:
    """Read the object, merge these parts into it, and write it."""
    while True:
        status, obj = api.request("GET", url)
        assert status == 200, obj
        for name, value in parts.items():
            obj[name] = {**obj.get(name, {}), **value}
        status, answer = api.request("PUT", url + subresource, obj)
        if status != 409:  # a controller was faster
            return status, answer


def test_a_note_adds_no_hook_or_node_to_a_restart_request(api: ControlPlane) -> None:
    node = {"metadata": {"name": "node-1"}}
    pod: Json = {
        "metadata": {"name": "web"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "nginx:1"}]},
    }
    assert api.request("POST", "/api/v1/nodes", node)[0] == 201
    assert api.request("POST", PODS, pod)[0] == 201
    running = {"name": "main", "image": "nginx:1", "imageID": "x", "restartCount": 0, "ready": True}
    statuses = [{**running, "containerID": "containerd://abc", "state": {"running": {}}}]
    assert put(api, f"{PODS}/web", "/status", status={"phase": "Running", "containerStatuses": statuses})[0] == 200
    hook = {"httpGet": {"host": "169.254.169.254", "path": "/latest/meta-data", "port": 80}}
    node_label = "crr.apps.kruise.io/node-name"
    changes = (
        {"path": ["spec", "containers", {"name": "main"}, "preStop"], "value": hook},
        {"path": ["metadata", "labels", node_label], "shown": "node-1", "value": "node-2"},
    )
    request = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "ContainerRecreateRequest",
        "metadata": {"name": "restart", "annotations": note("v1beta1", *changes)},
        "spec": {"podName": "web", "containers": [{"name": "main"}]},
    }
    status, answer = api.request("POST", path("containerrecreaterequests", "v1alpha1"), request)
    if status == 201:
        found = stored(api, "containerrecreaterequests", "restart")
        assert "preStop" not in found["spec"]["containers"][0]
        assert found["metadata"]["labels"][node_label] == "node-1"
    else:
        assert status in (400, 403), answer


def test_a_note_hides_no_label_from_deletion_protection(api: ControlPlane) -> None:
    hidden = {"path": ["metadata", "labels", PROTECTION], "shown": "Always"}
    made = clone_set("v1beta1", "kept", labels={PROTECTION: "Always"}, annotations=note("v1alpha1", hidden))
    assert api.request("POST", path("clonesets", "v1beta1"), made)[0] == 201
    status, answer = api.request("DELETE", path("clonesets", "v1alpha1", "kept"))
    assert status == 403, answer
    assert PROTECTION in answer["message"]


def test_a_note_cannot_change_a_spec_without_validation_and_generation(api: ControlPlane) -> None:
    made = clone_set("v1beta1", "numbered")
    made |= {"kind": "StatefulSet", "spec": {**made["spec"], "serviceName": "numbered", "reserveOrdinals": [1]}}
    assert api.request("POST", path("statefulsets", "v1beta1"), made)[0] == 201
    before = stored(api, "statefulsets", "numbered")
    for value in (["3-1"], [2]):  # v1beta1 refuses the first; the second would be a change without a new generation
        change = {"path": ["spec", "reserveOrdinals"], "value": value}
        annotations = {"annotations": note("v1beta1", change)}
        status, answer = put(api, path("statefulsets", "v1alpha1", "numbered"), metadata=annotations)
        assert status in (403, 422), answer
        assert f"metadata.annotations[{NOTES}]" in answer["message"] or "reserve ordinal" in answer["message"]
    found = stored(api, "statefulsets", "numbered")
    assert found["spec"] == before["spec"]
    assert found["metadata"]["generation"] == before["metadata"]["generation"]
    # An update in the older version keeps the fields that it cannot express.
    status, answer = put(api, path("statefulsets", "v1alpha1", "numbered"), spec={"replicas": 2})
    assert status == 200, answer
    assert stored(api, "statefulsets", "numbered")["spec"] == {**before["spec"], "replicas": 2}
