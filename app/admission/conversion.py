"""ConversionReview for CustomResourceDefinitions: pure functions from bytes to bytes. app.api converts the objects.

The API server sends a whole list in one review, and a failed review fails the whole list. An object that cannot be
converted, however malformed, is therefore returned with only its apiVersion changed, and its name is reported. Deeply
nested values are hidden from the conversion and restored afterwards. A review fails only if it is invalid as a whole.
Objects are decoded one by one, so that a list needs little more memory than its JSON. [MGR-50] Source:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import orjson

from app.admission.requests import LARGE_BYTES, MAX_VALUES, too_many_values, without_collections
from app.api.conversion import ConversionError, UnknownKindError
from app.kube.jsonvalues import as_object, hide_depth, items_of

Convert: TypeAlias = Callable[[dict[str, Any], str], dict[str, Any]]

#: Maximum size of an object: the API server's limit for a request.
MAX_OBJECT_BYTES: Final = 3 * 1024 * 1024
#: Minimum size of an object, which has at least a kind, a version and metadata.
MIN_OBJECT_BYTES: Final = 48
#: Maximum length of a review field other than the objects.
_MAX_FIELD_BYTES: Final = 4096
#: Maximum number of unconverted objects to report by name.
NAMED_AT_MOST: Final = 10

_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")


class Converted(NamedTuple):
    """Response to a ConversionReview."""

    #: HTTP status.
    status: int
    parts: list[bytes]
    #: "converted", "failed", or why the request was rejected.
    outcome: str
    #: Number of objects left unconverted, and the reasons for the first few.
    unconverted: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def payload(self) -> bytes:
        """Return the whole response. This is slow for large responses, because it joins their parts."""
        return b"".join(self.parts)


class _NotAReviewError(ValueError):
    """The body is not a ConversionReview with a uid, so there is no review to respond to."""


def convert_review(body: bytes, convert: Convert) -> Converted:
    """Return the response to a ConversionReview."""
    return _answered(body, convert) if len(body) < LARGE_BYTES else without_collections(_answered, body, convert)


def _answered(body: bytes, convert: Convert) -> Converted:
    try:
        return _convert_review(body, convert)
    except (RecursionError, TypeError, orjson.JSONDecodeError) as error:
        # orjson decodes 1,024 levels of nesting but encodes only 254; Python's recursion limit is below 1,024.
        hidden = hide_depth(body)
        if hidden is None:
            if isinstance(error, orjson.JSONDecodeError):
                return _not_a_review(f"request body is not JSON: {_place(error)}")
            if not _is_readable(body):
                return _not_a_review("request body is not JSON: a deeply nested value is not closed")
    try:
        answer = _convert_review(hidden.data if hidden is not None else body, convert, last=True)
    except orjson.JSONDecodeError as error:
        return _not_a_review(f"request body is not JSON: {error.msg}")
    return answer._replace(parts=[hidden.revealed(answer.payload)]) if hidden is not None else answer


def failed_review(body: bytes, message: str) -> tuple[int, bytes]:
    """Return the response after an internal error: a failed review if the body has a uid, else HTTP 500."""
    try:
        review = _review(body)
    except (_NotAReviewError, RecursionError, orjson.JSONDecodeError):
        return 500, orjson.dumps({"message": message, "code": 500})
    return 200, _failure(review, message)


def _convert_review(body: bytes, convert: Convert, *, last: bool = False) -> Converted:
    """Convert a review.

    Raises ``JSONDecodeError`` if the body is not JSON, and ``RecursionError`` or ``TypeError`` if it is nested too
    deeply. ``last`` marks the final attempt: an object that becomes too deep during conversion is returned unconverted.
    """
    try:
        review = _review(body)
    except _NotAReviewError as error:
        return _not_a_review(str(error))
    try:
        objects, unconverted, reasons = _converted(review, convert, last=last)
    except ConversionError as error:
        return Converted(200, [_failure(review, str(error))], "failed")
    return Converted(200, [_answer(review, b",".join(objects))], "converted", unconverted, tuple(reasons))


def _not_a_review(message: str) -> Converted:
    return Converted(400, [orjson.dumps({"message": message, "code": 400})], "not_a_review")


def _place(error: orjson.JSONDecodeError) -> str:
    return f"{error.msg} (line {error.lineno}, column {error.colno})"


class _Review(NamedTuple):
    """A ConversionReview whose objects are not decoded yet."""

    api_version: str
    uid: str
    desired: Any
    #: None if the field is not a list.
    objects: list[msgspec.Raw] | None


_NOTHING: Final = msgspec.Raw(b"null")


class _Document(msgspec.Struct, rename="camel"):
    """The fields read from a review; all others are skipped."""

    kind: msgspec.Raw = _NOTHING
    api_version: msgspec.Raw = _NOTHING
    request: msgspec.Raw = _NOTHING


class _Request(msgspec.Struct):
    uid: msgspec.Raw = _NOTHING
    desired: msgspec.Raw = msgspec.field(default=_NOTHING, name="desiredAPIVersion")
    objects: msgspec.Raw = _NOTHING


_document = msgspec.json.Decoder(_Document).decode
_request = msgspec.json.Decoder(_Request).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _review(body: bytes) -> _Review:
    """Decode a review. Raises ``_NotAReviewError`` or ``JSONDecodeError``."""
    try:
        document = _document(body)
        request = _request(document.request)
    except msgspec.DecodeError:
        if too_many_values(body):
            raise _NotAReviewError("request body contains too many values") from None
        raise _NotAReviewError(_problem(orjson.loads(body))) from None
    api_version, uid = _field(document.api_version), _field(request.uid)
    read = {"kind": _field(document.kind), "apiVersion": api_version, "request": {"uid": uid}}
    if problem := _problem(read):
        raise _NotAReviewError(problem)
    return _Review(str(api_version), uid, _field(request.desired), _items(request.objects))


def _is_readable(body: bytes) -> bool:
    """Return whether the review itself, without its objects, can be decoded."""
    try:
        _review(body)
    except RecursionError:
        return False
    return True


def _field(raw: msgspec.Raw) -> Any:
    return orjson.loads(bytes(raw)) if len(bytes(raw)) <= _MAX_FIELD_BYTES else None


def _items(raw: msgspec.Raw) -> list[msgspec.Raw] | None:
    """Return the objects as raw JSON, or None if the field is not a list. Raises ``_NotAReviewError``.

    A list that may have more than MAX_VALUES items is split before decoding, so that empty items are rejected before
    they use memory.
    """
    text = bytes(raw)
    if not text.startswith(b"["):
        return None
    if text.count(b",") < MAX_VALUES:
        return _list(raw)
    try:
        return [msgspec.Raw(item) for item in items_of(text, MIN_OBJECT_BYTES)]
    except ValueError:
        raise _NotAReviewError("request.objects: contains too many values that are not objects") from None


def _problem(document: Any) -> str:
    """Return why a document is not a ConversionReview, or an empty string."""
    if not isinstance(document, dict) or document.get("kind") != "ConversionReview":
        return "kind: expected a ConversionReview"
    api_version = document.get("apiVersion")
    if api_version not in _VERSIONS:
        return f"apiVersion: expected {_VERSIONS[0]}, got {api_version!r:.100}"
    request = document.get("request")
    if not isinstance(request, dict):
        return "request: expected an object"
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        return "request.uid: is required"
    return ""


def _converted(review: _Review, convert: Convert, *, last: bool) -> tuple[list[bytes], int, list[str]]:
    """Return the objects as JSON, the number of objects that could not be converted, and the reasons."""
    if not isinstance(review.desired, str) or not review.desired:
        raise ConversionError("request.desiredAPIVersion: is required")
    if review.objects is None:
        raise ConversionError("request.objects: expected a list")
    converted: list[bytes] = []
    unconverted = 0
    reasons: list[str] = []
    for index, raw in enumerate(review.objects):
        if (item := _object(raw, index)) is None:
            # The API server stored this object despite its many values, so it must not make other clients' lists
            # fail.
            converted.append(_passed_on(raw, review.desired))
            unconverted += 1
            if len(reasons) < NAMED_AT_MOST:
                reasons.append(f"request.objects[{index}]: contains more than {MAX_VALUES} values")
            continue
        try:
            found = _written(convert(item, review.desired))
        except UnknownKindError:
            raise  # fails the whole review
        except Exception as error:
            if isinstance(error, RecursionError) and not last:
                raise  # nested too deeply: convert_review retries with the deep values hidden
            found = _written({**item, "apiVersion": review.desired})
            unconverted += 1
            if len(reasons) < NAMED_AT_MOST:
                reasons.append(_reason(item, error))
        converted.append(found)
    return converted, unconverted, reasons


def _object(raw: msgspec.Raw, index: int) -> dict[str, Any] | None:
    """Decode an object, or return None if it contains too many values."""
    text = bytes(raw)
    if len(text) > MAX_OBJECT_BYTES:
        raise ConversionError(f"request.objects[{index}]: larger than the API server's limit for an object")
    if too_many_values(text):
        if text.startswith(b"{"):
            return None
        raise ConversionError(f"request.objects[{index}]: expected an object")
    item = orjson.loads(text)
    if not isinstance(item, dict):
        raise ConversionError(f"request.objects[{index}]: expected an object")
    return item


def _passed_on(raw: msgspec.Raw, version: str) -> bytes:
    """Return the object with only its apiVersion changed."""
    return msgspec.json.encode({**_members(raw), "apiVersion": msgspec.Raw(orjson.dumps(version))})


def _written(obj: dict[str, Any]) -> bytes:
    """Encode an object. Raises ``RecursionError`` if it is nested too deeply."""
    try:
        return orjson.dumps(obj)
    except TypeError as error:
        if "Recursion" in str(error):
            raise RecursionError(str(error)) from error
        raise


def _reason(item: dict[str, Any], error: Exception) -> str:
    if isinstance(error, ConversionError):
        return ascii(str(error)[:256])[1:-1]
    fields = as_object(item.get("metadata"))
    name = f"{item.get('kind')} {fields.get('namespace') or ''}/{fields.get('name') or '(no name)'}"
    return ascii(f"{name}: {type(error).__name__}: {error}"[:256])[1:-1]


def _answer(review: _Review, objects: bytes) -> bytes:
    return (
        b'{"kind":"ConversionReview","apiVersion":%b,"response":{"uid":%b,"convertedObjects":[%b],'
        b'"result":{"metadata":{},"status":"Success"}}}'
    ) % (orjson.dumps(review.api_version), orjson.dumps(review.uid), objects)


def _failure(review: _Review, message: str) -> bytes:
    result = {"metadata": {}, "status": "Failure", "message": message.encode("utf-8", "replace").decode()}
    response = {"uid": review.uid, "convertedObjects": None, "result": result}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": review.api_version, "response": response})
