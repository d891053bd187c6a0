"""Checking a Pod template with the API server: the request, and the errors made from the answer."""

from __future__ import annotations

import orjson
import pytest

from app.kube.errors import Forbidden
from app.pods.template_check import template_errors
from tests.kube.fakes import client_for, json_response, status_body, virtual

TEMPLATE = {"spec": {"containers": [{"name": "a"}]}}
CAUSES = [
    {"reason": "FieldValueRequired", "message": "Required value", "field": "template.spec.containers[0].image"},
    {"reason": "FieldValueInvalid", "message": 'Invalid value: "x": must be y', "field": "template.metadata.labels"},
]


@pytest.mark.behaviour("SS-21")
@virtual
async def test_a_valid_template_has_no_errors_and_creates_nothing() -> None:
    client, connections = client_for(json_response(201, {}))
    assert await template_errors(client, "kruise-system", TEMPLATE, "spec.template") == []
    (request,) = connections.requests
    assert request.method == "POST"
    assert request.target == "/api/v1/namespaces/kruise-system/podtemplates?dryRun=All"
    body = orjson.loads(request.body or b"")
    assert body["kind"] == "PodTemplate"
    assert body["template"] == TEMPLATE
    assert "name" not in body["metadata"]


@pytest.mark.parametrize(
    ("path", "errors"),
    [
        ("spec.template", [
            "spec.template.spec.containers[0].image: Required value",
            'spec.template.metadata.labels: Invalid value: "x": must be y',
        ]),
        ("", ["spec.containers[0].image: Required value", 'metadata.labels: Invalid value: "x": must be y']),
    ],
)  # fmt: skip
@virtual
async def test_errors_use_the_paths_of_the_object(path: str, errors: list[str]) -> None:
    invalid = status_body(422, "Invalid", "PodTemplate is invalid", details={"causes": CAUSES})
    client, _ = client_for(json_response(422, invalid))
    assert await template_errors(client, "kruise-system", TEMPLATE, path) == errors


@virtual
async def test_a_mistyped_template_is_refused_with_the_api_server_message() -> None:
    client, _ = client_for(json_response(400, status_body(400, "BadRequest", "json: cannot unmarshal")))
    assert await template_errors(client, "kruise-system", TEMPLATE, "") == ["spec: json: cannot unmarshal"]


@virtual
async def test_other_refusals_are_not_template_errors() -> None:
    client, _ = client_for(json_response(403, status_body(403, "Forbidden", "not allowed")))
    with pytest.raises(Forbidden):
        await template_errors(client, "kruise-system", TEMPLATE, "")
