"""Hostile objects on a real API server: the manager keeps running and answers all other requests."""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.cluster.controlplane import ControlPlane
from tests.kit.objects import workload_spec
from tests.kube.hostile import chain
from tests.scenarios.world import eventually, manager

pytestmark = pytest.mark.controlplane

NAMESPACE = "shop"
SERVICE_ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Far deeper than Python recurses. The API server's cost grows with the square of the depth.
LEVELS = 3_000
SET: dict[str, Any] = {
    "apiVersion": "apps.kruise.io/v1beta1",
    "kind": "SidecarSet",
    "metadata": {"name": "shipper"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "containers": [{"name": "shipper", "image": "shipper:1"}],
    },
}


def send(api: ControlPlane, method: str, path: str, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
    """Send a request as the administrator, with a body that the json module cannot encode."""
    headers = {"Content-Type": kind, "Authorization": f"Bearer {api.token}"}
    request = urllib.request.Request(api.server + path, body, headers, method=method)
    tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(api.ca_file)))
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), tls).open(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def managed_fields(version: str, levels: int = LEVELS) -> bytes:
    """Return deeply nested managedFields, which any user with update permission can write."""
    entry = {"manager": "tenant", "operation": "Update", "apiVersion": version, "time": "2026-01-01T00:00:00Z"}
    return orjson.dumps([{**entry, "fieldsType": "FieldsV1", "fieldsV1": "HERE"}]).replace(
        b'"HERE"', chain(levels).replace(b"1}", b"{}}", 1)
    )


def patch_managed_fields(api: ControlPlane, path: str, version: str, levels: int = LEVELS) -> None:
    body = b'{"metadata":{"managedFields":' + managed_fields(version, levels) + b"}}"
    status, answer = send(api, "PATCH", path, body, "application/merge-patch+json")
    assert status == 200, answer[:500]
    # Otherwise the test proves nothing.
    assert chain(levels // 2)[: levels // 2] in send(api, "GET", path, b"")[1]


@pytest.fixture(scope="module")
def api() -> Iterator[ControlPlane]:
    with ControlPlane() as control_plane:
        yield control_plane


@pytest.fixture(scope="module")
def addresses(api: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A manager starts while its lists contain such objects."""
    namespace = {"metadata": {"name": NAMESPACE, "labels": {"team": "a"}}}
    assert api.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    patch_managed_fields(api, f"/api/v1/namespaces/{NAMESPACE}", "v1")
    eventually(lambda: api.request("GET", f"{SERVICE_ACCOUNTS}/default")[0] == 200, "Pods can be created", 30)
    create_pod(api, "early")
    patch_managed_fields(api, f"{PODS}/early", "v1")
    with manager(api, tmp_path_factory.mktemp("manager")) as found:
        assert api.request("POST", "/apis/apps.kruise.io/v1beta1/sidecarsets", SET)[0] == 201
        yield found


def restarts(addresses: dict[str, str]) -> float:
    """Return how often a process of the replica was restarted."""
    with urllib.request.urlopen(addresses["metrics"], timeout=120) as answer:
        found = re.findall(r"^kruise_process_restarts_total\{.*\} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert len(found) >= 2
    return sum(map(float, found))


def create_pod(api: ControlPlane, name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "nginx:1"}]}
    body = {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
    status, answer = api.request("POST", PODS, body)
    assert status == 201, answer
    return dict(answer)


def matched(api: ControlPlane) -> int:
    status = api.request("GET", "/apis/apps.kruise.io/v1beta1/sidecarsets/shipper")[1].get("status", {})
    return int(status.get("matchedPods", 0))


def test_deep_managed_fields_stop_no_reflector(api: ControlPlane, addresses: dict[str, str]) -> None:
    create_pod(api, "deep")
    eventually(lambda: matched(api) == 1, "the Pod with the sidecar is counted", 60)
    patch_managed_fields(api, f"{PODS}/deep", "v1")
    patch_managed_fields(api, f"/api/v1/namespaces/{NAMESPACE}", "v1", LEVELS // 2)
    for number in range(3):
        containers = create_pod(api, f"web-{number}")["spec"]["containers"]
        assert [container["name"] for container in containers] == ["shipper", "main"]
    eventually(lambda: matched(api) == 4, "the controller counts all Pods, the deep one too", 60)
    # The namespace's labels are still current.
    labels = {"metadata": {"labels": {"team": "b"}}}
    path = f"/api/v1/namespaces/{NAMESPACE}"
    assert send(api, "PATCH", path, json.dumps(labels).encode(), "application/merge-patch+json")[0] == 200
    eventually(lambda: matched(api) == 0, "the namespace is no longer selected", 60)
    labels["metadata"]["labels"]["team"] = "a"
    assert send(api, "PATCH", path, json.dumps(labels).encode(), "application/merge-patch+json")[0] == 200
    eventually(lambda: matched(api) == 4, "and then it is", 60)
    assert restarts(addresses) == 0
    with urllib.request.urlopen(f"{addresses['health']}/readyz", timeout=120) as answer:
        assert answer.status == 200


@pytest.mark.behaviour("MGR-50")
def test_one_deep_object_does_not_break_a_list_in_the_other_version(
    api: ControlPlane, addresses: dict[str, str]
) -> None:
    path = f"/apis/apps.kruise.io/v1beta1/namespaces/{NAMESPACE}/clonesets"
    for name in ("a", "deep", "z"):
        spec = workload_spec(app="clone", set=name)
        body = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "metadata": {"name": name}, "spec": spec}
        status, answer = api.request("POST", path, body)
        assert status == 201, answer
    patch_managed_fields(api, f"{path}/deep", "apps.kruise.io/v1beta1")
    listed = api.kubectl("get", "clonesets.v1alpha1.apps.kruise.io", "-A", "-o", "name").stdout.split()
    assert [name.rpartition("/")[2] for name in listed] == ["a", "deep", "z"]
    # The controller sees changes of the deep object.
    scaled = send(api, "PATCH", f"{path}/deep", b'{"spec":{"replicas":3}}', "application/merge-patch+json")
    assert scaled[0] == 200

    def pods() -> int:
        return len(api.kubectl("get", "pods", "-n", NAMESPACE, "-l", "set=deep", "-o", "name").stdout.split())

    eventually(lambda: pods() == 3, "the deep CloneSet is scaled", 60)
    assert restarts(addresses) == 0
