"""Decode AdmissionReviews and encode responses: bytes in, bytes out. Pure."""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from app.admission.requests import LARGE_BYTES, MAX_BODY_BYTES, MAX_VALUES, too_many_values, without_collections
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Patched,
    Review,
)
from app.kube.fielderrors import shortened
from app.kube.images import remembered
from app.kube.jsonvalues import MAX_DEPTH, as_object, nested_deeper, shallow_json
from app.kube.text import quoted

# Encode a Decision or a Refusal as an AdmissionReview. The constant parts are prepared as bytes, because every Pod
# creation waits for a response.

V1: Final = "admission.k8s.io/v1"

V1BETA1: Final = "admission.k8s.io/v1beta1"

#: Maximum length of a message or warning in characters, and maximum number of warnings.
MAX_MESSAGE_LENGTH: Final = 16 * 1024
MAX_WARNINGS: Final = 100
#: Maximum size of a patch before encoding. No object that an API server accepts needs a larger patch, even if parts are
#: replaced several times.
MAX_PATCH_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that cannot be handled. ``reason`` is a metric label; ``uid`` is empty if unreadable."""

    reason: str
    message: str
    code: int = 400
    uid: str = ""
    api_version: str = V1


def answer(uid: str, decision: Decision) -> bytes:
    """Return the AdmissionReview that carries a decision."""
    patch: tuple[bytes, ...] = ()
    if type(decision) is Patched:
        try:
            operations = orjson.dumps([operation.as_json() for operation in decision.operations])
        except TypeError:
            return _refused(uid, V1, _unanswerable(decision), 400)
        if len(operations) > MAX_PATCH_BYTES:
            return _refused(uid, V1, f"request.object: its changes have more than {MAX_PATCH_BYTES} bytes", 413)
        patch = (b',"patchType":"JSONPatch","patch":"', b2a_base64(operations, newline=False), b'"')
    elif type(decision) is Denied:
        return _refused(uid, V1, decision.message, decision.code, decision.reason)
    elif type(decision) is not Allowed:
        raise TypeError(f"a handler returned {type(decision).__name__}, not a decision")
    return b"".join(
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":',
            orjson.dumps(uid),
            # A response that allows a request has code 200. [MGR-45]
            b',"allowed":true,"status":{"metadata":{},"code":200}',
            *patch,
            _warnings(decision.warnings),
            b"}}",
        )
    )


def _unanswerable(decision: Patched) -> str:
    """Return the message for a patch that cannot be encoded because a value from the object is nested too deeply.

    Raises TypeError if a value is not JSON, which is a bug in a handler.
    """
    for operation in decision.operations:
        if field := nested_deeper(operation.value):
            at = ".".join(operation.path.strip("/").split("/"))
            return f"request.object: {at}.{field}: nested deeper than {MAX_DEPTH} levels"
    raise TypeError("a value in the patch is not JSON")


def refusal_answer(refusal: Refusal) -> tuple[int, bytes]:
    """Return the HTTP status and body for a refusal.

    With a uid the status is 200, so that the API server shows the message; without one the HTTP status carries the
    error.
    """
    if refusal.uid:
        return 200, _refused(refusal.uid, refusal.api_version, refusal.message, refusal.code)
    response = {
        "uid": "",
        "allowed": False,
        "status": {"metadata": {}, "message": printable(refusal.message), "code": refusal.code},
    }
    return refusal.code, orjson.dumps({"response": response})


def _refused(uid: str, api_version: str, message: str, code: int, reason: str = "") -> bytes:
    status: dict[str, Any] = {"metadata": {}, "message": printable(message)}
    if reason:
        status["reason"] = reason
    status["code"] = code
    return orjson.dumps(
        {
            "kind": "AdmissionReview",
            "apiVersion": api_version,
            "response": {"uid": printable(uid), "allowed": False, "status": status},
        }
    )


def _warnings(warnings: tuple[str, ...]) -> bytes:
    if not warnings:
        return b""
    return b',"warnings":' + orjson.dumps([printable(text) for text in warnings[:MAX_WARNINGS]])


def printable(text: str) -> str:
    """Return the text with invalid UTF-8 replaced, truncated to a maximum length. Messages may quote the request."""
    return shortened(text, MAX_MESSAGE_LENGTH).encode("utf-8", "replace").decode("utf-8")


# Decode and check the AdmissionReview envelope. Every malformed field is reported here by name, so handlers see
# only well-formed reviews. This is the service's hottest code, so it uses no models, copies nothing and walks the dict
# once.
# Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/

#: Number of bytes at the start of an unreadable body to search for the uid, which the API server writes first.
_HEAD_BYTES: Final = 64 * 1024
#: orjson's error for a document that is nested too deeply.
_TOO_DEEP: Final = "depth limit"
_UID_IN_HEAD: Final = re.compile(rb'"request"\s*:\s*\{[^{}]{0,4096}?"uid"\s*:\s*"([^"\\\x00-\x1f]{1,128})"')
_OPERATIONS: Final = {operation.value: operation for operation in Operation}
#: Code points that surrogateescape uses for invalid UTF-8.
_HALF: Final = re.compile("[\ud800-\udfff]")
#: Path of a value in a document: the path of its parent, and its key or index.
_Place: TypeAlias = "tuple[_Place | None, str | int]"
_NAMES: Final = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


class _WrongFieldError(ValueError):
    """A field of the request has the wrong type or value."""


def read_review(body: bytes) -> Review | Refusal:
    """Return the review in a request body, or a refusal that names the invalid field."""
    if too_many_values(body):
        message = f"request body contains more than {MAX_VALUES} values"
        return Refusal("too_many_values", message, code=413, uid=_uid_in_head(body))
    try:
        document = orjson.loads(body) if len(body) < LARGE_BYTES else without_collections(orjson.loads, body)
    except orjson.JSONDecodeError as error:
        document = _without_deep_managed_fields(body) if _TOO_DEEP in error.msg else None
        if document is None:
            return _undecodable(body, error)
    if type(document) is not dict:
        return Refusal("not_a_review", f"expected an AdmissionReview object, got {_name(document)}")
    request = document.get("request")
    uid = request.get("uid") if type(request) is dict else None
    known_uid = uid if type(uid) is str else ""
    if document.get("kind") != "AdmissionReview":
        return Refusal(
            "not_a_review", f"kind: expected AdmissionReview, got {_quoted(document.get('kind'))}", uid=known_uid
        )
    version = document.get("apiVersion")
    if version != V1:
        return _unknown_version(version, known_uid)
    if type(request) is not dict:
        return Refusal("not_a_review", f"request: expected an object, got {_name(request)}")
    if not known_uid:
        if uid is None or uid == "":
            return Refusal("missing_uid", "request.uid: is required")
        return Refusal("wrong_field", f"request.uid: expected a string, got {_name(uid)}")
    try:
        return _review(known_uid, request)
    except _WrongFieldError as error:
        return Refusal("wrong_field", str(error), uid=known_uid)


def _without_deep_managed_fields(body: bytes) -> Any:
    """Decode a body without its deeply nested managed fields, which are not used. Returns None if it still
    cannot be decoded.

    Another field manager may have written them, and must not be able to prevent updates or deletion.
    """
    shallow = shallow_json(body, only_managed=True)
    if shallow.lossy or shallow.data is body:
        return None
    try:
        return orjson.loads(shallow.data)
    except orjson.JSONDecodeError:
        return None


def _unknown_version(version: object, uid: str) -> Refusal:
    # Only v1 is supported. A refusal of v1beta1 echoes that version; otherwise, the API server would hide the message.
    # [MGR-45]
    message = f"apiVersion: expected {V1}, got {_quoted(version)}"
    if version == V1BETA1:
        message += "; register this webhook with admissionReviewVersions: [v1]"
    return Refusal("unsupported_version", message, uid=uid, api_version=V1BETA1 if version == V1BETA1 else V1)


def _review(uid: str, request: dict[str, Any]) -> Review:
    get = request.get
    operation = get("operation")
    if type(operation) is not str or operation not in _OPERATIONS:
        raise _WrongFieldError(f"request.operation: expected one of {', '.join(_OPERATIONS)}, got {_quoted(operation)}")
    kind = get("kind")
    resource = get("resource")
    if type(kind) is not dict or type(resource) is not dict:
        field, value = ("kind", kind) if type(kind) is not dict else ("resource", resource)
        raise _WrongFieldError(f"request.{field}: expected an object, got {_name(value)}")
    username, groups = _user(get("userInfo"))
    options = get("options")
    if options is not None and type(options) is not dict:
        raise _WrongFieldError(f"request.options: expected an object, got {_name(options)}")
    dry_run = get("dryRun", False)
    if type(dry_run) is not bool and dry_run is not None:
        raise _WrongFieldError(f"request.dryRun: expected a boolean, got {_name(dry_run)}")
    return Review(
        uid,
        _OPERATIONS[operation],
        _kind(_text(kind, "group", "kind."), _text(kind, "version", "kind."), _text(kind, "kind", "kind.")),
        _resource(
            _text(resource, "group", "resource."),
            _text(resource, "version", "resource."),
            _text(resource, "resource", "resource."),
        ),
        _text(request, "name"),
        _text(request, "namespace"),
        _text(request, "subResource"),
        bool(dry_run),
        username,
        groups,
        _read_object(get("object"), "object", kind),
        _read_object(get("oldObject"), "oldObject", kind),
        options or {},  # older API servers do not send them [MGR-45]
        get("userInfo") or {},
    )


# A cluster has few kinds, so the frozen values are cached.
_kind = remembered(1024)(GroupVersionKind)
_resource = remembered(1024)(GroupVersionResource)


def _text(holder: dict[str, Any], field: str, prefix: str = "") -> str:
    value = holder.get(field)
    if type(value) is str:
        return value
    if value is None:
        return ""
    raise _WrongFieldError(f"request.{prefix}{field}: expected a string, got {_name(value)}")


def _read_object(value: Any, field: str, kind: dict[str, Any]) -> dict[str, Any] | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise _WrongFieldError(f"request.{field}: expected an object, got {_name(value)}")
    if kind.get("kind") != "Pod":
        # Managed fields are needed only for Pods. Anyone who may patch the object can nest them arbitrarily deep, and
        # the defaulting functions recurse.
        as_object(value.get("metadata")).pop("managedFields", None)
    return value


def _user(user: Any) -> tuple[str, tuple[str, ...]]:
    if user is None:
        return "", ()
    if type(user) is not dict:
        raise _WrongFieldError(f"request.userInfo: expected an object, got {_name(user)}")
    groups = user.get("groups")
    if groups is None:
        groups = []
    if type(groups) is not list:
        raise _WrongFieldError(f"request.userInfo.groups: expected a list, got {_name(groups)}")
    for index, group in enumerate(groups):
        if type(group) is not str:
            raise _WrongFieldError(f"request.userInfo.groups[{index}]: expected a string, got {_name(group)}")
    return _text(user, "username", "userInfo."), tuple(groups)


# ---- bodies that cannot be decoded


def too_large(head: bytes, limit: int = MAX_BODY_BYTES) -> Refusal:
    """Return the refusal for a body over the limit; ``head`` is the beginning of the body."""
    message = f"request body is larger than {limit // (1024 * 1024)} MiB"
    return Refusal("too_large", message, code=413, uid=_uid_in_head(head))


def wrong_content_type(content_type: str, body: bytes) -> Refusal:
    """Return the refusal for a body whose content type is not JSON."""
    message = f"Content-Type: expected application/json, got {_quoted(content_type or None)}"
    return Refusal("wrong_content_type", message, uid=_uid_in_head(body))


def _undecodable(body: bytes, error: orjson.JSONDecodeError) -> Refusal:
    if not body.strip():
        return Refusal("not_json", "request body is empty: expected an AdmissionReview")
    text = body.decode("utf-8", "surrogateescape")
    document = _lenient(text)
    uid = _uid_of(document) or _uid_in_head(body)
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as bad:
        field = _first_undecodable(document)
        where = f"{field}: " if field else "request body: "
        return Refusal("not_utf8", f"{where}byte 0x{body[bad.start]:02x} at offset {bad.start} is not UTF-8", uid=uid)
    message = f"request body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    return Refusal("not_json", message, uid=uid)


def _lenient(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _uid_of(document: Any) -> str:
    uid = as_object(as_object(document).get("request")).get("uid")
    return printable(uid) if isinstance(uid, str) else ""


def _uid_in_head(body: bytes) -> str:
    found = _UID_IN_HEAD.search(body[:_HEAD_BYTES])
    return found.group(1).decode("utf-8", "replace") if found else ""


def _first_undecodable(document: Any) -> str:
    """Return the path of the first string with invalid UTF-8 (kept by surrogateescape), or an empty string.

    The path is built from keys only at the end; otherwise a long key would be copied for every item of its list.
    """
    root: _Place = (None, "")
    pending: list[Iterator[tuple[_Place, Any]]] = [iter([(root, document)])]
    while pending:
        place, value = next(pending[-1], (None, None))
        if place is None:
            pending.pop()
        elif isinstance(value, str):
            if _HALF.search(value):
                return _path(place)
        elif isinstance(value, dict):
            if any(map(_HALF.search, value)):
                return _path(place) or "request body"
            pending.append(_items(place, value.items()))
        elif isinstance(value, list):
            pending.append(_items(place, enumerate(value)))
    return ""


def _items(place: _Place, items: Iterable[tuple[str | int, Any]]) -> Iterator[tuple[_Place, Any]]:
    return (((place, key), value) for key, value in items)


def _path(place: _Place) -> str:
    keys: list[str] = []
    above, key = place
    while above is not None:
        keys.append(f"[{key}]" if isinstance(key, int) else f".{quoted(key)}")
        above, key = above
    return "".join(reversed(keys)).removeprefix(".")


def _name(value: object) -> str:
    return _NAMES.get(type(value), "a number")


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return "nothing" if value is None else _name(value)
    return json.dumps(value if len(value) <= 100 else value[:100] + "…", ensure_ascii=False)
