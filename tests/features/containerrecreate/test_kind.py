"""ContainerRecreateRequests: conversion, validation and defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.api.conversion import convert
from app.features.containerrecreate import defaults, validation
from app.features.containerrecreate.kind import parsed_snapshot, snapshot_text
from app.kube.patches import merge_patch
from tests.admission.writing import ALPHA, BETA

NOW = "2026-01-01T00:00:00Z"
SNAPSHOT = [{"name": "main", "ready": True, "restartCount": 1, "containerID": "containerd://abc"}]
SNAPSHOT_TEXT = '[{"name":"main","ready":true,"restartCount":1,"containerID":"containerd://abc"}]'


def same_ways(obj: dict[str, Any], other: str) -> dict[str, Any]:
    """Convert ``obj`` to the other version and check that the round trip changes nothing."""
    shown = convert(obj, other)
    assert convert(shown, obj["apiVersion"]) == obj
    return shown


def request(api_version: str, status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "ContainerRecreateRequest",
        "metadata": {"name": "r", **metadata},
        "spec": {"podName": "p", "containers": [{"name": "main"}]},
        "status": status,
    }


def acquired(snapshot: str, since: str) -> dict[str, Any]:
    """Return a request in v1alpha1, with these annotations."""
    annotations = {names.CRR_SYNC_CONTAINER_STATUSES: snapshot, names.CRR_UNREADY_ACQUIRED: since}
    return request(ALPHA, {"phase": "Recreating"}, annotations=annotations)


@pytest.mark.behaviour("CRR-1")
def test_snapshot_and_grace_become_status_fields_in_v1beta1() -> None:
    condition = {"type": "PreRecreateGrace", "status": "True", "reason": "PreRecreateGrace", "message": ""}
    condition["lastTransitionTime"] = NOW
    new = request(BETA, {"phase": "Recreating", "containerStatusSnapshot": SNAPSHOT, "conditions": [condition]})
    shown = same_ways(new, ALPHA)
    annotations = shown["metadata"]["annotations"]
    assert annotations[names.CRR_SYNC_CONTAINER_STATUSES] == SNAPSHOT_TEXT
    assert annotations[names.CRR_UNREADY_ACQUIRED] == NOW
    assert shown["status"] == {"phase": "Recreating"}
    old = acquired(SNAPSHOT_TEXT, NOW)
    stored = same_ways(old, BETA)
    assert stored["status"] == new["status"]
    assert stored["metadata"]["annotations"] == old["metadata"]["annotations"]


@pytest.mark.behaviour("CRR-1")
@pytest.mark.parametrize("text", ["[", "{}", '[{"name":1}]', '[{"ready":true}]', "[" * 100_000, '[{"name":"a","x":1}]'])
def test_unreadable_annotations_are_dropped_without_data_loss(text: str) -> None:
    assert same_ways(acquired(text, "yesterday"), BETA)["status"] == {"phase": "Recreating"}


@pytest.mark.behaviour("CRR-1")
@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.text(min_size=1), "ready": st.booleans(), "restartCount": st.integers(0, 2**31 - 1)},
            optional={"containerID": st.text()},
        )
    )
)
def test_a_snapshot_can_be_read_back(snapshot: list[dict[str, Any]]) -> None:
    assert parsed_snapshot(snapshot_text(snapshot)) == snapshot


def pod(**status: Any) -> dict[str, Any]:
    container = {"name": "main", "lifecycle": {"preStop": {"httpGet": {"port": "web"}}}, "ports": [{"name": "web"}]}
    running = {"name": "main", "containerID": "containerd://abc", "restartCount": 2}
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "terminationGracePeriodSeconds": 30,
            "containers": [container, {"name": "new"}],
            "initContainers": [{"name": "init"}],
        },
        "status": {"phase": "Running", "containerStatuses": [running, {"name": "new", "containerID": ""}], **status},
    }


@pytest.mark.behaviour("CRR-3")
@pytest.mark.parametrize(("spec", "messages"), [
    ({"podName": "", "containers": []},
     ["podName: Required value: the name of the Pod", "containers: Required value: name at least one container"]),
    ({"containers": [{"name": "a"}, {"name": "a"}]}, ['containers[1].name: Duplicate value: "a"']),
    ({"containers": [{"name": "a", "preStop": {}, "ports": [], "statusContext": {}}]},
     [f"containers[0].{field}: Forbidden: is filled in from the Pod; leave it out"
      for field in ("preStop", "ports", "statusContext")]),
    ({"activeDeadlineSeconds": 2}, ["activeDeadlineSeconds: Invalid value: 2: must be greater than or equal to 3"]),
    ({"strategy": {"failurePolicy": "Try", "unreadyGracePeriodSeconds": -1}},
     ['strategy.failurePolicy: Unsupported value: "Try": supported values: "Fail", "Ignore"',
      "strategy.unreadyGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0"]),
    ({}, []),
])  # fmt: skip
def test_impossible_requests_are_refused(spec: dict[str, Any], messages: list[str]) -> None:
    given = {"podName": "p", "containers": [{"name": "main"}], "strategy": {"failurePolicy": "Fail"}, **spec}
    assert list(map(str, validation.spec_errors(given))) == [f"spec.{message}" for message in messages]


@pytest.mark.behaviour("CRR-3")
@pytest.mark.parametrize(
    ("container", "of", "field"),
    [
        ("main", pod(), ""),
        ("main", pod(phase="Succeeded"), "spec.podName"),
        ("main", pod(phase="Succeeded", conditions=[{"type": "SidecarTerminated", "status": "False"}]), ""),
        ("main", {**pod(), "metadata": {"deletionTimestamp": NOW}}, "spec.podName"),
        ("main", {**pod(), "spec": {}}, "spec.podName"),
        ("other", pod(), "spec.containers[0].name"),
        ("init", pod(), "spec.containers[0].name"),
        ("new", pod(), "spec.containers[0].name"),
    ],
)
def test_only_started_containers_of_a_running_pod_can_be_restarted(
    container: str, of: dict[str, Any], field: str
) -> None:
    errors = validation.pod_errors({"podName": "p", "containers": [{"name": container}]}, of)
    assert [error.field for error in errors] == ([field] if field else [])


@pytest.mark.behaviour("CRR-4", "CRR-5")
def test_requests_are_filled_in_from_the_pod() -> None:
    given = {"metadata": {"labels": {"a": "b"}}, "spec": {"podName": "p", "containers": [{"name": "main"}]}}
    filled = defaults.with_pod(given, pod(), virtual_node=True)
    assert filled["metadata"]["labels"] == {
        "a": "b",
        "crr.apps.kruise.io/active": "true",
        "crr.apps.kruise.io/node-name": "n",
        "crr.apps.kruise.io/pod-uid": "u",
        "type": "virtual-kubelet",
    }
    assert filled["spec"]["strategy"] == {"failurePolicy": "Fail", "terminationGracePeriodSeconds": 30}
    assert filled["spec"]["containers"] == [
        {
            "name": "main",
            "preStop": {"httpGet": {"port": "web"}},
            "ports": [{"name": "web"}],
            "statusContext": {"containerID": "containerd://abc", "restartCount": 2},
        }
    ]


@pytest.mark.behaviour("CRR-2")
@pytest.mark.parametrize(
    ("patch", "fields"),
    [
        ({}, []),
        ({"spec": {"podName": "other"}}, ["spec"]),
        ({"metadata": {"labels": {names.CRR_POD_UID: None}}}, ["metadata.labels[crr.apps.kruise.io/pod-uid]"]),
        ({"metadata": {"labels": {names.CRR_NODE_NAME: "m"}}}, ["metadata.labels[crr.apps.kruise.io/node-name]"]),
        (
            {"metadata": {"annotations": {names.CRR_UNREADY_ACQUIRED: "later"}}},
            ["metadata.annotations[crr.apps.kruise.io/unready-acquired]"],
        ),
    ],
)
def test_changes_to_immutable_fields_of_a_request_are_refused(patch: dict[str, Any], fields: list[str]) -> None:
    labels = {names.CRR_POD_UID: "u", names.CRR_NODE_NAME: "n"}
    metadata = {"labels": labels, "annotations": {names.CRR_UNREADY_ACQUIRED: NOW}}
    former = {"metadata": metadata, "spec": {"podName": "p"}}
    assert [error.field for error in validation.update_errors(merge_patch(former, patch), former)] == fields
