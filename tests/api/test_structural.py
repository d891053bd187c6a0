"""Structural schemas report errors and unknown fields as an API server does."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import structural
from app.features.sidecarset.kind import SIDECAR_SET

SCHEMA = SIDECAR_SET.hub.schema


def set_of(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet", "metadata": {"name": "s"}, "spec": spec}


def messages(**spec: Any) -> list[str]:
    return [str(error) for error in structural.validate(SCHEMA, set_of(**spec))]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"revisionHistoryLimit": "3"}, 'spec.revisionHistoryLimit: Invalid value: "string": '
         'spec.revisionHistoryLimit in body must be of type integer: "string"'),
        ({"revisionHistoryLimit": True}, 'spec.revisionHistoryLimit: Invalid value: "boolean": '
         'spec.revisionHistoryLimit in body must be of type integer: "boolean"'),
        ({"selector": []}, 'spec.selector: Invalid value: "array": spec.selector in body must be of type object: '
                           '"array"'),
        ({"selector": {"matchLabels": {"a": 1}}}, 'spec.selector.matchLabels.a: Invalid value: "integer": '
         'spec.selector.matchLabels.a in body must be of type string: "integer"'),
        ({"selector": {"matchExpressions": [{"key": "a"}]}}, "spec.selector.matchExpressions[0].operator: Required "
                                                             "value"),
        ({"containers": [None]}, 'spec.containers[0]: Invalid value: "null": '
         'spec.containers[0] in body must be of type object: "null"'),
        ({"injectionStrategy": {"revision": {"policy": "Bad"}}},
         'spec.injectionStrategy.revision.policy: Unsupported value: "Bad": supported values: "Always", "Partial"'),
        ({"updateStrategy": {"partition": {}}}, 'spec.updateStrategy.partition: Invalid value: "object": '
         'spec.updateStrategy.partition in body must be of type integer,string: "object"'),
        ({"revisionHistoryLimit": 2**31}, "spec.revisionHistoryLimit: Invalid value: 2147483648: must be a int32"),
    ],
)  # fmt: skip
def test_schema_violations_have_a_path(spec: dict[str, Any], message: str) -> None:
    assert messages(**spec) == [message]


@pytest.mark.parametrize("spec", [{}, {"selector": None}, {"updateStrategy": {"partition": "20%"}}, {"unknown": 1}])
def test_valid_values_have_no_errors(spec: dict[str, Any]) -> None:
    assert messages(**spec) == []


def test_unknown_fields_are_found_outside_core_containers_and_volumes() -> None:
    given = set_of(
        selectors={},
        containers=[{"name": "a", "imagee": "x", "upgradeStrategy": {"type": "Hot"}}],
        volumes=[{"name": "v", "newSource": {}}],
        updateStrategy={"scatterStrategy": [{"key": "a", "value": "b", "weight": 1}]},
    )
    assert structural.unknown_fields(SCHEMA, {**given, "data": {}}) == [
        "spec.selectors",
        "spec.containers[0].upgradeStrategy.type",
        "spec.updateStrategy.scatterStrategy[0].weight",
        "data",
    ]
