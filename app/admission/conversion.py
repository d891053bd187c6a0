"""ConversionReview for CustomResourceDefinitions: bytes in, bytes out. Pure; the conversion itself is app.api's.

MGR-50: the API server asks for a whole list in one review, and a failed review is a failed list for everybody. So one
object that cannot be converted, however it is malformed, is passed on with no more than its apiVersion changed, and
named; what is nested too deep is hidden from the conversion and comes back as it was. Only a review that makes no sense
as a whole fails.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from app.api.conversion import ConversionError, UnknownKindError
from app.kube.depth import hide_depth

Convert: TypeAlias = Callable[[dict[str, Any], str], dict[str, Any]]

#: The API server puts a whole page of a list into one review, so the bound is wider than for an AdmissionReview.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
#: How many of the objects that could not be converted are named.
NAMED_AT_MOST: Final = 10

_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")


class Converted(NamedTuple):
    """The answer to a ConversionReview."""

    #: The HTTP status.
    status: int
    payload: bytes
    #: converted, failed or a bad request's reason.
    outcome: str
    #: What was passed on as it was, some of it with its name and why.
    unconverted: int = 0
    reasons: tuple[str, ...] = ()


class _NotAReviewError(ValueError):
    """The body is no ConversionReview with a uid: there is nobody to answer to."""


def convert_review(body: bytes, convert: Convert) -> Converted:
    """The answer to one ConversionReview."""
    try:
        return _convert_review(body, convert)
    except (RecursionError, TypeError, orjson.JSONDecodeError) as error:
        # orjson reads 1,024 levels and writes 254, and Python's functions go less deep than that.
        hidden = hide_depth(body)
        if hidden is None:
            if isinstance(error, orjson.JSONDecodeError):
                return _not_a_review(f"request body is not JSON: {_place(error)}")
            raise
    try:
        answer = _convert_review(hidden.data, convert)
    except orjson.JSONDecodeError as error:
        return _not_a_review(f"request body is not JSON: {error.msg}")
    return answer._replace(payload=hidden.revealed(answer.payload))


def failed_review(body: bytes, message: str) -> tuple[int, bytes]:
    """The answer when the conversion itself broke: a failed review if there is a uid, else HTTP 500."""
    try:
        api_version, request = _request(body)
    except (_NotAReviewError, RecursionError, orjson.JSONDecodeError):
        return 500, orjson.dumps({"message": message, "code": 500})
    return 200, _answer(api_version, request["uid"], None, message)


def _convert_review(body: bytes, convert: Convert) -> Converted:
    """Raises ``JSONDecodeError``, and for what is nested too deep ``RecursionError`` or ``TypeError``."""
    try:
        api_version, request = _request(body)
    except _NotAReviewError as error:
        return _not_a_review(str(error))
    try:
        objects, unconverted, reasons = _converted(request, convert)
    except ConversionError as error:
        return Converted(200, _answer(api_version, request["uid"], None, str(error)), "failed")
    return Converted(200, _answer(api_version, request["uid"], objects), "converted", unconverted, tuple(reasons))


def _not_a_review(message: str) -> Converted:
    return Converted(400, orjson.dumps({"message": message, "code": 400}), "not_a_review")


def _place(error: orjson.JSONDecodeError) -> str:
    return f"{error.msg} (line {error.lineno}, column {error.colno})"


def _request(body: bytes) -> tuple[str, dict[str, Any]]:
    document = orjson.loads(body)
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


def _converted(request: dict[str, Any], convert: Convert) -> tuple[list[dict[str, Any]], int, list[str]]:
    """The objects, how many could not be converted, and what is told of those."""
    desired = request.get("desiredAPIVersion")
    if not isinstance(desired, str) or not desired:
        raise ConversionError("request.desiredAPIVersion: is required")
    objects = request.get("objects")
    if not isinstance(objects, list):
        raise ConversionError("request.objects: expected a list")
    converted: list[dict[str, Any]] = []
    unconverted = 0
    reasons: list[str] = []
    for index, item in enumerate(objects):
        if not isinstance(item, dict):
            raise ConversionError(f"request.objects[{index}]: expected an object")
        try:
            converted.append(convert(item, desired))
        except (UnknownKindError, RecursionError):
            raise  # nobody can convert that; and what is too deep is tried again without its depth
        except Exception as error:  # noqa: BLE001 - one object must not hide all others; counted, and named in the log
            converted.append({**item, "apiVersion": desired})
            unconverted += 1
            if len(reasons) < NAMED_AT_MOST:
                reasons.append(_reason(item, error))
    return converted, unconverted, reasons


def _reason(item: dict[str, Any], error: Exception) -> str:
    if isinstance(error, ConversionError):
        return ascii(str(error)[:256])[1:-1]
    metadata = item.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    name = f"{item.get('kind')} {fields.get('namespace') or ''}/{fields.get('name') or '(no name)'}"
    return ascii(f"{name}: {type(error).__name__}: {error}"[:256])[1:-1]


def _answer(api_version: str, uid: str, objects: list[dict[str, Any]] | None, failure: str = "") -> bytes:
    result: dict[str, Any] = {"metadata": {}, "status": "Failure" if failure else "Success"}
    if failure:
        result["message"] = failure.encode("utf-8", "replace").decode()
    response = {"uid": uid, "convertedObjects": objects, "result": result}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": api_version, "response": response})
