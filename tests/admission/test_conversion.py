"""ConversionReview: what the API server sends for CRDs, and what it gets."""

import json
from typing import Any

import httpx
import orjson
import pytest

from app.admission.conversion import convert_review
from app.admission.metrics import AdmissionMetrics
from app.admission.registry import build_registry
from app.admission.server import create_app
from app.api.conversion import ConversionError, convert
from tests.admission.requests import recorded


def answer(document: Any) -> dict[str, Any]:
    status, payload, _ = convert_review(orjson.dumps(document), convert)
    assert status == 200
    answered: dict[str, Any] = json.loads(payload)
    return answered


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_a_recorded_review_comes_back_in_the_version_asked_for(version: str) -> None:
    review = recorded(f"conversion-to-{version}")
    answered = answer(review)
    response = answered["response"]
    assert (answered["kind"], answered["apiVersion"]) == ("ConversionReview", review["apiVersion"])
    assert response["uid"] == review["request"]["uid"]
    assert response["result"] == {"metadata": {}, "status": "Success"}
    assert len(response["convertedObjects"]) == len(review["request"]["objects"])
    for before, after in zip(review["request"]["objects"], response["convertedObjects"], strict=True):
        assert after["apiVersion"] == f"apps.kruise.io/{version}"
        # Of the metadata only labels and annotations may differ.
        for name in ("name", "uid", "generation", "creationTimestamp", "managedFields"):
            assert after["metadata"][name] == before["metadata"][name]


@pytest.mark.behaviour("MGR-50")
def test_one_object_that_cannot_be_converted_fails_the_review() -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"]["objects"].append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})
    response = answer(review)["response"]
    assert response["convertedObjects"] is None
    assert response["result"]["status"] == "Failure"
    assert "Deployment" in response["result"]["message"]


@pytest.mark.behaviour("MGR-45", "MGR-50")
def test_one_version_is_not_converted_to_itself() -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"]["desiredAPIVersion"] = "apps.kruise.io/v1beta1"
    message = answer(review)["response"]["result"]["message"]
    assert message == "conversion is not allowed between same type *v1beta1.SidecarSet"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"desiredAPIVersion": None}, "request.desiredAPIVersion: is required"),
        ({"objects": None}, "request.objects: expected a list"),
        ({"objects": ["x"]}, "request.objects[0]: expected an object"),
        ({"objects": [{}]}, "apiVersion and kind: are required and must be strings"),
    ],
)
def test_a_wrong_request_fails_under_its_uid(changed: dict, message: str) -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"] |= changed
    result = answer(review)["response"]["result"]
    assert (result["status"], result["message"]) == ("Failure", message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "request body is not JSON"),
        (b"[]", "kind: expected a ConversionReview"),
        (b'{"kind":"ConversionReview","apiVersion":"v7"}', "apiVersion: expected apiextensions.k8s.io/v1, got 'v7'"),
        (b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}', "request: expected an object"),
        (
            b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{}}',
            "request.uid: is required",
        ),
    ],
)
def test_what_is_no_conversion_review_gets_a_400(body: bytes, message: str) -> None:
    status, payload, outcome = convert_review(body, convert)
    assert (status, outcome) == (400, "not_a_review")
    assert json.loads(payload)["message"].startswith(message)


async def test_the_service_converts_and_survives_mistakes_of_ours() -> None:
    def broken(_obj: Any, _version: str) -> dict[str, Any]:
        raise RuntimeError("oops")

    review = orjson.dumps(recorded("conversion-to-v1beta1"))
    for function, expected in ((convert, "Success"), (broken, "Failure"), (_refusing, "Failure")):
        app = create_app(build_registry([], lambda _: True), function, AdmissionMetrics())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service") as http:
            got = await http.post("/convert", content=review, headers={"Content-Type": "application/json"})
        assert got.json()["response"]["result"]["status"] == expected


def _refusing(_obj: Any, _version: str) -> dict[str, Any]:
    raise ConversionError("no")
