"""A Pod of the wrong shape is refused by the name of the field; nulls are fine."""

from __future__ import annotations

from typing import Any

import pytest

from app.pods.draft import PodRefusedError
from app.pods.shape import check_shape


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"labels": None, "annotations": None, "ownerReferences": None}},
        {"spec": dict.fromkeys(("containers", "initContainers", "volumes", "imagePullSecrets", "readinessGates"))},
        {"spec": {"containers": [{"name": "a", "env": None, "volumeMounts": None, "resources": None}]}},
        {"spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": None}], "resources": {"limits": None}}]}},
    ],
)
def test_what_kubernetes_takes_for_empty_is_fine(pod: dict[str, Any]) -> None:
    check_shape(pod)


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"metadata": []}, "metadata: expected an object, got a list"),
        ({"metadata": {"name": 5}}, "metadata.name: expected a string, got a number"),
        ({"metadata": {"labels": "x"}}, "metadata.labels: expected an object, got a string"),
        ({"metadata": {"labels": {"a": True}}}, "metadata.labels[a]: expected a string, got a boolean"),
        ({"metadata": {"annotations": {"a": None}}}, "metadata.annotations[a]: expected a string, got null"),
        ({"metadata": {"ownerReferences": {}}}, "metadata.ownerReferences: expected a list, got an object"),
        ({"metadata": {"ownerReferences": [1]}}, "metadata.ownerReferences[0]: expected an object, got a number"),
        ({"status": "Running"}, "status: expected an object, got a string"),
        ({"spec": 1.5}, "spec: expected an object, got a number"),
        ({"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        ({"spec": {"containers": [None]}}, "spec.containers[0]: expected an object, got null"),
        ({"spec": {"containers": [{}]}}, "spec.containers[0].name: expected a string, got null"),
        ({"spec": {"initContainers": [{"name": []}]}}, "spec.initContainers[0].name: expected a string, got a list"),
        ({"spec": {"containers": [{"name": "a", "env": "A=1"}]}}, "spec.containers[0].env: expected a list, got"),
        ({"spec": {"containers": [{"name": "a", "env": [1]}]}}, "spec.containers[0].env[0]: expected an object, got"),
        (
            {"spec": {"containers": [{"name": "a", "env": [{"name": {}}]}]}},
            "spec.containers[0].env[0].name: expected a string, got an object",
        ),
        (
            {"spec": {"containers": [{"name": "a", "volumeMounts": [{"mountPath": []}]}]}},
            "spec.containers[0].volumeMounts[0].mountPath: expected a string, got a list",
        ),
        (
            {"spec": {"containers": [{"name": "a", "resources": []}, {"name": "b", "resources": [1]}]}},
            "spec.containers[1]",
        ),
        (
            {"spec": {"containers": [{"name": "a", "resources": {"limits": ["cpu"]}}]}},
            "spec.containers[0].resources.limits: expected an object, got a list",
        ),
        ({"spec": {"volumes": [[]]}}, "spec.volumes[0]: expected an object, got a list"),
        (
            {"spec": {"readinessGates": [{"conditionType": 1}]}},
            "spec.readinessGates[0].conditionType: expected a string",
        ),
    ],
)
def test_the_first_wrong_field_is_named(pod: dict[str, Any], message: str) -> None:
    with pytest.raises(PodRefusedError) as refused:
        check_shape(pod)
    assert str(refused.value).startswith(f"Pod: {message}")
    assert refused.value.code == 400
