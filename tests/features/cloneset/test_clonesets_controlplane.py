"""The same CloneSets on a real API server, with our manager behind its webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.api.core.defaults import default_pod_template
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.jsonvalues import json_copy
from app.kube.patches import diff
from tests.admission.recorded import cases, comparable, judged, names_of, read_alike
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

pytestmark = pytest.mark.controlplane

CASES = cases("cloneset")
NAMESPACE = "diff"
PROBE = {"httpGet": {"port": 80}}
FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
#: A template without optional fields.
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "hostNetwork": True,
        "containers": [
            {
                "name": "main",
                "image": "nginx:1",
                "imagePullPolicy": "Never",
                "ports": [{"containerPort": 80, "hostPort": 80}],
                "env": [{"name": "N", "valueFrom": FIELD}],
                "resources": {"limits": {"cpu": "0.0001", "memory": "1.5Gi"}},
                "livenessProbe": PROBE,
                "startupProbe": {"tcpSocket": {"port": 80}},
                "readinessProbe": {"exec": {"command": ["true"]}},
                "lifecycle": {"preStop": PROBE, "postStart": {"exec": {"command": ["true"]}}},
            }
        ],
        "initContainers": [{"name": "init", "image": "busybox@sha256:" + "0" * 64, "imagePullPolicy": "Always"}],
        "volumes": [
            {"name": "none"},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "host", "hostPath": {"path": "/tmp"}},
            {"name": "down", "downwardAPI": {"items": [{"path": "n", **FIELD}]}},
            {
                "name": "projected",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t"}},
                        {"downwardAPI": {"items": [{"path": "n", **FIELD}]}},
                    ]
                },
            },
            {
                "name": "own",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                    }
                },
            },
        ],
    },
}


def path(version: str, name: str = "") -> str:
    return f"/apis/apps.kruise.io/{version}/namespaces/{NAMESPACE}/clonesets/{name}".rstrip("/")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane() as control_plane, manager(control_plane, tmp_path_factory.mktemp("manager")):
        control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield control_plane


@pytest.mark.behaviour("CS-4", "CS-20", "CS-21", "CS-22", "CS-24", "CS-173")
@pytest.mark.parametrize("case", CASES, ids=names_of(CASES))
def test_a_recorded_cloneset_is_validated_and_stored_alike_on_an_api_server(
    api: ControlPlane, case: dict[str, Any]
) -> None:
    manifest = case["manifest"]
    name, version = manifest["metadata"]["name"], manifest["apiVersion"].rpartition("/")[2]
    code, answer = api.request("POST", path(version), manifest)
    judged("" if code == 201 else answer["message"], case["ok"], case["message"])
    if not case["ok"]:
        return
    read_alike(answer, case["created"])
    for read in ("v1alpha1", "v1beta1"):
        read_alike(api.request("GET", path(read, name))[1], case[read])
    update = case["update"]
    code = 409
    while code == 409:
        # The controller may write the new CloneSet's status in the meantime.
        before = api.request("GET", path(version, name))[1]
        code, answer = api.request("PUT", path(version, name), {**before, "spec": update["manifest"]})
    judged("" if code == 200 else answer["message"], update["ok"], update["message"])
    if code == 200:
        read_alike(answer, update["result"])


@pytest.mark.behaviour("CS-16")
def test_a_template_is_defaulted_as_on_the_api_server(api: ControlPlane) -> None:
    ours = json_copy(TEMPLATE)
    default_pod_template(ours)
    for volume in ours["spec"]["volumes"]:
        if "ephemeral" in volume:  # OpenKruise leaves this one to the API server.
            volume["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] = "Filesystem"
    body = {"metadata": {"generateName": "t-", "namespace": NAMESPACE}, "template": TEMPLATE}
    code, answer = api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/podtemplates?dryRun=All", body)
    assert code == 201, answer
    assert diff(comparable(answer["template"]), comparable(normalized(POD_TEMPLATE, ours))) == []
