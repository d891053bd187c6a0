"""ConversionReview for CustomResourceDefinitions: bytes in, bytes out. Pure; the conversion itself is app.api's.

MGR-50: one object that cannot be converted fails the whole review, with its name in the message.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

from app.api.conversion import ConversionError

Convert: TypeAlias = Callable[[dict[str, Any], str], dict[str, Any]]

#: The API server puts a whole page of a list into one review, so the bound is wider than for an AdmissionReview.
MAX_BODY_BYTES: Final = 128 * 1024 * 1024

_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")


class _NotAReviewError(ValueError):
    """The body is no ConversionReview with a uid: there is nobody to answer to."""


def convert_review(body: bytes, convert: Convert) -> tuple[int, bytes, str]:
    """HTTP status, answer and outcome (converted, failed or a bad request's reason) for one ConversionReview."""
    try:
        api_version, request = _request(body)
    except _NotAReviewError as error:
        return 400, orjson.dumps({"message": str(error), "code": 400}), "not_a_review"
    try:
        converted = _converted(request, convert)
    except ConversionError as error:
        return 200, _answer(api_version, request["uid"], None, str(error)), "failed"
    return 200, _answer(api_version, request["uid"], converted), "converted"


def failed_review(body: bytes, message: str) -> tuple[int, bytes]:
    """The answer when the conversion itself broke: a failed review if there is a uid, else HTTP 500."""
    try:
        api_version, request = _request(body)
    except _NotAReviewError:
        return 500, orjson.dumps({"message": message, "code": 500})
    return 200, _answer(api_version, request["uid"], None, message)


def _request(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _NotAReviewError(
            f"request body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    if not isinstance(document, dict) or document.get("kind") != "ConversionReview":
        raise _NotAReviewError("kind: expected a ConversionReview")
    api_version = document.get("apiVersion")
    if api_version not in _VERSIONS:
        raise _NotAReviewError(f"apiVersion: expected {_VERSIONS[0]}, got {api_version!r:.100}")
    request = document.get("request")
    if not isinstance(request, dict):
        raise _NotAReviewError("request: expected an object")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise _NotAReviewError("request.uid: is required: an answer must carry it")
    return str(api_version), request


def _converted(request: dict[str, Any], convert: Convert) -> list[dict[str, Any]]:
    desired = request.get("desiredAPIVersion")
    if not isinstance(desired, str) or not desired:
        raise ConversionError("request.desiredAPIVersion: is required")
    objects = request.get("objects")
    if not isinstance(objects, list):
        raise ConversionError("request.objects: expected a list")
    converted = []
    for index, item in enumerate(objects):
        if not isinstance(item, dict):
            raise ConversionError(f"request.objects[{index}]: expected an object")
        converted.append(convert(item, desired))
    return converted


def _answer(api_version: str, uid: str, objects: list[dict[str, Any]] | None, failure: str = "") -> bytes:
    result: dict[str, Any] = {"metadata": {}, "status": "Failure" if failure else "Success"}
    if failure:
        result["message"] = failure.encode("utf-8", "replace").decode()
    response = {"uid": uid, "convertedObjects": objects, "result": result}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": api_version, "response": response})
