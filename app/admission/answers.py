"""Answers to reviews: a Decision or a Refusal in, the bytes of an AdmissionReview out. Pure.

Every Pod of a cluster waits for them: what is the same in all answers is written as bytes.
"""

from __future__ import annotations

from binascii import b2a_base64
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api.jsonvalue import MAX_DEPTH, nested_deeper
from app.kube.admission import Allowed, Decision, Denied, Patched
from app.kube.gotext import shortened

V1: Final = "admission.k8s.io/v1"

V1BETA1: Final = "admission.k8s.io/v1beta1"

#: How much of a refusal or a warning is sent, in characters, and how many warnings.
MAX_MESSAGE_LENGTH: Final = 16 * 1024
MAX_WARNINGS: Final = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that cannot be put before a handler. ``reason`` is a metric label; ``uid`` is empty if unreadable."""

    reason: str
    message: str
    code: int = 400
    uid: str = ""
    api_version: str = V1


def answer(uid: str, decision: Decision) -> bytes:
    """The AdmissionReview that carries a decision back to the API server."""
    if type(decision) is Patched:
        try:
            operations = orjson.dumps([operation.as_json() for operation in decision.operations])
        except TypeError:
            return _refused(uid, V1, _unanswerable(decision), 400)
        patch = b2a_base64(operations, newline=False)
        return b"".join(
            (
                b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":',
                _json_text(uid),
                b',"allowed":true,"status":{"metadata":{},"code":200},"patchType":"JSONPatch","patch":"',
                patch,
                b'"',
                _warnings(decision.warnings),
                b"}}",
            )
        )
    if type(decision) is Denied:
        return _refused(uid, V1, decision.message, decision.code, decision.reason)
    if type(decision) is Allowed:
        # MGR-45: allowing answers carry code 200.
        return b"".join(
            (
                b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":',
                _json_text(uid),
                b',"allowed":true,"status":{"metadata":{},"code":200}',
                _warnings(decision.warnings),
                b"}}",
            )
        )
    raise TypeError(f"a handler returned {type(decision).__name__}, not a decision")


def _unanswerable(decision: Patched) -> str:
    """What the caller is told of a patch that cannot be written: what is copied from the object is nested too deep.

    Raises TypeError for a value that is no JSON, which is a mistake of ours.
    """
    for operation in decision.operations:
        if field := nested_deeper(operation.value):
            at = ".".join(operation.path.strip("/").split("/"))
            return f"request.object: {at}.{field}: nested deeper than {MAX_DEPTH} levels"
    raise TypeError("a value in the patch is no JSON")


def refusal_answer(refusal: Refusal) -> tuple[int, bytes]:
    """HTTP status and body for a refusal.

    With a uid the API server can show the message, if the status is 200; without one the HTTP status must tell.
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


def _json_text(text: str) -> bytes:
    return orjson.dumps(text)


def printable(text: str) -> str:
    """The text with what UTF-8 cannot say replaced, and an end: messages may quote what was sent."""
    return shortened(text, MAX_MESSAGE_LENGTH).encode("utf-8", "replace").decode("utf-8")
