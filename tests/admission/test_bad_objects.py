"""Malformed objects through the whole service: a clear 4xx that names the field, never a 500, never silence."""

import json
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from app.admission.metrics import AdmissionMetrics
from app.admission.server import create_app
from app.api.conversion import convert
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.admission.requests import recorded
from tests.kit.virtualtime import VirtualClock

SAMPLES = Path(__file__).parent.parent.parent / "policies/samples"
JSON = {"Content-Type": "application/json"}


async def response_to(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the service's response, with the sample SidecarSets."""
    standalone = Standalone(SAMPLES, parse_gates(""), VirtualClock(), Random(1))
    await standalone.reload()
    app = create_app(standalone.registry, convert, AdmissionMetrics())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service") as http:
        answer = await http.post(path, content=json.dumps(document).encode(), headers=JSON)
    assert answer.status_code == 200
    response: dict[str, Any] = answer.json()["response"]
    assert response["uid"] == document["request"]["uid"]
    return response


def changed_pod(**spec: Any) -> dict[str, Any]:
    document = recorded("pod-create")
    document["request"]["object"]["spec"] |= spec
    return document


async def test_null_containers_count_as_none_and_are_left_to_the_api_server() -> None:
    response = await response_to(changed_pod(containers=None), "/mutate-pod")
    assert response["allowed"] or response["status"]["code"] in (400, 422)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": "main"}, "spec.containers"),
        ({"containers": [None]}, "spec.containers[0]"),
        ({"containers": [{"name": 7}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "env": "X=1"}]}, "spec.containers[0].env"),
        ({"volumes": {"name": "x"}}, "spec.volumes"),
        ({"initContainers": 5}, "spec.initContainers"),
    ],
)
async def test_a_malformed_pod_is_refused_with_the_field_name(spec: dict[str, Any], field: str) -> None:
    response = await response_to(changed_pod(**spec), "/mutate-pod")
    assert response["allowed"] is False
    assert 400 <= response["status"]["code"] < 500
    assert field in response["status"]["message"]
