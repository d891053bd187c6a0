"""Containers and volumes get the defaults of the API server."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from app.api.core.defaults import default_container, default_pull_policy, default_volume
from app.kube.jsonvalues import json_copy

NUMBERS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
HTTP = {"path": "/", "scheme": "HTTP"}


def defaulted(**fields: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", **json_copy(fields)}
    default_container(container)
    return container


@pytest.mark.behaviour("SS-6")
@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("registry:5000/busybox", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("registry:5000/busybox:1.36", "IfNotPresent"),
        (f"busybox@sha256:{'0' * 64}", "IfNotPresent"),
        (f"busybox:latest@sha256:{'0' * 64}", "Always"),
        ("Not An Image", "IfNotPresent"),
        ("docker://busybox", "IfNotPresent"),
        ("", "IfNotPresent"),
        (5, "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_from_the_tag(image: Any, policy: str) -> None:
    assert default_pull_policy(image) == policy


@pytest.mark.behaviour("SS-6")
def test_a_container_gets_termination_defaults_and_keeps_its_own_values() -> None:
    assert defaulted() == {
        "name": "c",
        "image": "busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    own = {
        "imagePullPolicy": "Never",
        "terminationMessagePath": "/x",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    assert defaulted(**own) == {"name": "c", "image": "busybox:1", **own}


@pytest.mark.behaviour("SS-6")
def test_ports_env_and_quantities_get_the_defaults_of_kubernetes() -> None:
    container = defaulted(
        ports=[{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "x"}],
        resources={"limits": {"cpu": "0.5", "memory": 1024}, "requests": {"cpu": "1.0001m", "bad": "x"}},
    )
    assert [port["protocol"] for port in container["ports"]] == ["TCP", "UDP"]
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert container["resources"] == {
        "limits": {"cpu": "500m", "memory": "1024"},
        "requests": {"cpu": "2m", "bad": "x"},
    }


@pytest.mark.behaviour("SS-6")
def test_all_probes_except_the_startup_probe_get_defaults() -> None:
    http = {"httpGet": {"port": 80}}
    container = defaulted(
        livenessProbe=http,
        readinessProbe={"tcpSocket": {"port": 80}, "periodSeconds": 3},
        startupProbe=http,
        lifecycle={"preStop": http, "postStart": {"exec": {"command": ["x"]}}},
    )
    assert container["livenessProbe"] == {"httpGet": {"port": 80, **HTTP}, **NUMBERS}
    assert container["readinessProbe"] == {"tcpSocket": {"port": 80}, **NUMBERS, "periodSeconds": 3}
    assert container["startupProbe"] == http
    assert container["lifecycle"]["preStop"] == {"httpGet": {"port": 80, **HTTP}}
    assert container["lifecycle"]["postStart"] == {"exec": {"command": ["x"]}}
    whole = {"name": "c", "image": "i", "startupProbe": copy.deepcopy(http)}
    default_container(whole, startup_probe=True)
    assert whole["startupProbe"] == {"httpGet": {"port": 80, **HTTP}, **NUMBERS}


@pytest.mark.behaviour("SS-7")
@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": None}, {"secret": None, "emptyDir": {}}),
        ({"newSource": {}}, {"newSource": {}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"hostPath": {"path": "/x", "type": "File"}}, {"hostPath": {"path": "/x", "type": "File"}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}),
        ({"secret": {"secretName": "s", "defaultMode": 0}}, {"secret": {"secretName": "s", "defaultMode": 0}}),
    ],
)
def test_volumes_get_the_defaults_of_kubernetes(given: dict[str, Any], completed: dict[str, Any]) -> None:
    volume = {"name": "v", **copy.deepcopy(given)}
    default_volume(volume)
    assert volume == {"name": "v", **completed}


@pytest.mark.behaviour("SS-7")
@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ({"iscsi": {"iqn": "x"}}, {"iscsi": {"iqn": "x", "iscsiInterface": "default"}}),
        (
            {"azureDisk": {"diskName": "d", "readOnly": True}},
            {"azureDisk": {
                "diskName": "d", "readOnly": True, "cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4"}},
        ),
        ({"image": {"reference": "busybox"}}, {"image": {"reference": "busybox", "pullPolicy": "Always"}}),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}},
        ),
    ],
)  # fmt: skip
def test_defaults_that_only_an_api_server_sets_are_added_on_request(
    given: dict[str, Any], completed: dict[str, Any]
) -> None:
    volume = {"name": "v", **copy.deepcopy(given)}
    default_volume(volume)
    assert volume == {"name": "v", **given}
    default_volume(volume, every=True)
    assert volume == {"name": "v", **completed}


def test_values_of_the_wrong_type_are_left_for_validation() -> None:
    odd = {"ports": "80", "env": [1, {"valueFrom": []}], "resources": {"limits": [], "requests": {"cpu": True}}}
    assert {key: defaulted(**odd, livenessProbe=[], lifecycle=5)[key] for key in odd} == odd
    volume = {"name": "v", "secret": "s", "projected": {"sources": {}}, "image": {"reference": 1}}
    default_volume(volume)
    assert volume["secret"] == "s"
