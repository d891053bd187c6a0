"""The structural check reports the errors of an API server: same messages, paths and order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api.core.env import field_ref_errors
from app.api.core.pods import pod_errors, unknown_fields
from app.api.gocore import CONTAINER
from app.kube.fielderrors import Path
from tests.api.record_template_answers import ANSWERS
from tests.api.template_cases import CASES, container

RECORDED: dict[str, list[str]] = json.loads(ANSWERS.read_text("utf-8"))


def complaints(case: dict[str, Any]) -> list[str]:
    lists = (case.get(field, []) for field in ("containers", "initContainers", "volumes"))
    return list(dict.fromkeys(map(str, pod_errors(*lists, Path("spec")))))


@pytest.mark.behaviour("SS-21")
@pytest.mark.parametrize("name", CASES)
def test_errors_match_those_of_an_api_server(name: str) -> None:
    assert complaints(CASES[name]) == RECORDED[name]


def test_cases_and_recorded_answers_match() -> None:
    assert CASES.keys() == RECORDED.keys()
    assert sum(not answer for answer in RECORDED.values()) > 15


def test_images_with_spaces_are_refused_unlike_in_templates() -> None:
    found = complaints({"containers": [container(image=" i")]})
    assert found == ['spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace']


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"containers": [container(ports="80")]}, "spec.containers[0].ports: Invalid value: \"\": expected array, "
                                                  "found string"),
        ({"containers": [container(env=[1])]}, "spec.containers[0].env[0]: Invalid value: \"\": expected object, "
                                               "found number"),
        ({"containers": [container(resources={"limits": {"cpu": "x"}})]}, None),
        ({"containers": [container()], "volumes": [{"name": 5}]}, "spec.volumes[0].name: Invalid value: \"\": "
                                                                  "expected string"),
        ({"containers": [container()], "volumes": [{"name": "v", "secret": "s"}]},
         "spec.volumes[0].secret: Invalid value: \"\": expected object, found string"),
        ({"containers": [container()], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "much"}}]}, None),
    ],
)  # fmt: skip
def test_mistyped_values_are_reported_without_a_crash(case: dict[str, Any], message: str | None) -> None:
    found = complaints(case)
    assert len(found) == 1
    assert message is None or found == [message]


def test_either_list_of_containers_may_be_empty() -> None:
    assert complaints({"initContainers": [container()]}) == []
    assert complaints({}) == []


def test_input_is_not_modified() -> None:
    case = json.loads(json.dumps(CASES["startup defaulted"]))
    complaints(case)
    assert case == CASES["startup defaulted"]


@pytest.mark.behaviour("SS-22")
def test_field_references_without_plain_fields_allow_only_labels_and_annotations() -> None:
    def errors(path: str, version: str = "v1") -> list[str]:
        reference = {"apiVersion": version, "fieldPath": path}
        return [str(error) for error in field_ref_errors(reference, (), Path("fieldRef"))]

    assert errors("metadata.labels['app']") == []
    assert errors("metadata.annotations['a.b/C']") == []
    assert errors("metadata.name") == ['fieldRef.fieldPath: Unsupported value: "metadata.name"']
    assert errors("", "v1") == ["fieldRef.fieldPath: Required value"]
    assert errors("metadata.name", "") == ["fieldRef.apiVersion: Required value"]
    assert "error converting fieldPath: field label not supported: spec.x" in errors("spec.x")[0]


def test_unknown_fields_are_found_at_any_depth() -> None:
    given = container(
        imagee="x", env=[{"name": "A", "valu": "x"}], tty=False, ports=[], livenessProbe={"exek": {}, "x": 1}
    )
    assert unknown_fields(CONTAINER, given, "c") == ["c.imagee", "c.env[0].valu", "c.livenessProbe.x"]
    assert unknown_fields(CONTAINER, {"name": 5}, "c") == []
