"""The shape of a Pod: the first invalid field is named; null is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.wire import USER_AGENT
from app.pods.admission import UNTRACKED, check_shape
from app.pods.admission_draft import PodRefusedError
from tests.features.admitting import World, pod


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a", **fields}]}}


@pytest.mark.parametrize("pod", [
    {},
    {"metadata": None, "spec": None, "status": None},
    {"metadata": {"labels": None, "annotations": None, "ownerReferences": None, "generation": 5}},
    {"spec": dict.fromkeys(("containers", "initContainers", "volumes", "imagePullSecrets", "readinessGates"))},
    container(env=None, volumeMounts=None, resources=None),
    container(env=[{"name": "A", "value": None}], resources={"limits": None, "claims": [{"name": "c"}]}),
])  # fmt: skip
def test_values_kubernetes_treats_as_empty_are_accepted(pod: dict[str, Any]) -> None:
    check_shape(pod)


@pytest.mark.parametrize(("pod", "message"), [
    ({"metadata": []}, "metadata: expected object | null, got array"),
    ({"metadata": {"name": 5}}, "metadata.name: expected str | null, got int"),
    ({"metadata": {"labels": "x"}}, "metadata.labels: expected object | null, got str"),
    ({"metadata": {"labels": {"a": True}}}, "metadata.labels[a]: expected str, got bool"),
    ({"metadata": {"annotations": {"a": None}}}, "metadata.annotations[a]: expected str, got null"),
    ({"metadata": {"ownerReferences": {}}}, "metadata.ownerReferences: expected array | null, got object"),
    ({"metadata": {"ownerReferences": [1]}}, "metadata.ownerReferences[0]: expected object, got int"),
    ({"metadata": {"managedFields": {}}}, "metadata.managedFields: expected array | null, got object"),
    ({"metadata": {"managedFields": [7]}}, "metadata.managedFields[0]: expected object, got int"),
    ({"metadata": {"managedFields": [{"manager": []}]}}, "metadata.managedFields[0].manager: expected str | null"),
    ({"spec": {"containers": [{"name": "a"}] * 10_001}}, "spec.containers: expected array of length <= 10000"),
    ({"spec": {"initContainers": [{"name": "a"}] * 10_001}}, "spec.initContainers: expected array of length <="),
    ({"status": "Running"}, "status: expected object | null, got str"),
    ({"spec": 1.5}, "spec: expected object | null, got float"),
    ({"spec": {"containers": {}}}, "spec.containers: expected array | null, got object"),
    ({"spec": {"containers": [None]}}, "spec.containers[0]: expected object, got null"),
    ({"spec": {"containers": [{}]}}, "spec.containers[0]: object missing required field name"),
    ({"spec": {"initContainers": [{"name": []}]}}, "spec.initContainers[0].name: expected str, got array"),
    (container(env="A=1"), "spec.containers[0].env: expected array | null, got str"),
    (container(env=[1]), "spec.containers[0].env[0]: expected object, got int"),
    (container(env=[{"name": {}}]), "spec.containers[0].env[0].name: expected str | null, got object"),
    (container(volumeMounts=[{"mountPath": []}]), "spec.containers[0].volumeMounts[0].mountPath: expected str"),
    (container(volumeDevices=[{"devicePath": 1}]), "spec.containers[0].volumeDevices[0].devicePath: expected str"),
    (container(resources=[1]), "spec.containers[0].resources: expected object | null, got array"),
    (container(resources={"limits": ["cpu"]}), "spec.containers[0].resources.limits: expected object | null, got"),
    ({"spec": {"volumes": [[]]}}, "spec.volumes[0]: expected object, got array"),
    ({"spec": {"readinessGates": [{"conditionType": 1}]}}, "spec.readinessGates[0].conditionType: expected str"),
])  # fmt: skip
def test_the_first_invalid_field_is_named(pod: dict[str, Any], message: str) -> None:
    with pytest.raises(PodRefusedError) as refused:
        check_shape(pod)
    assert str(refused.value).startswith(f"Pod: {message}")
    assert refused.value.code == 400


# ---- managed fields


def entry(manager: str, **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", **more}


@pytest.mark.behaviour("D-25")
def test_without_field_tracking_a_pod_has_no_managed_fields() -> None:
    answer = World().create(pod(metadata={"managedFields": [entry(UNTRACKED)]}))
    assert answer.operations == [{"op": "remove", "path": "/metadata/managedFields"}]
    assert answer.rules == ["CloneSetPodManagedFields"]


@pytest.mark.parametrize(
    "entries",
    [None, [], [entry(USER_AGENT)], [entry("kubectl-create")], [entry(UNTRACKED), entry("another-webhook")], [{}]],
)
def test_other_pods_keep_them(entries: list[dict[str, Any]] | None) -> None:
    assert World().create(pod(metadata={} if entries is None else {"managedFields": entries})).operations == []
