"""Reviews: those recorded from a real API server, and any other."""

import base64
import json
from pathlib import Path
from typing import Any

import orjson

from app.kube.admission import GroupVersionKind

FIXTURES = Path(__file__).parent.parent / "fixtures"


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded AdmissionReview or ConversionReview."""
    document: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))
    return document


def review_of(fixture: str = "pod-create", /, **changed: Any) -> bytes:
    """Return a recorded AdmissionReview with fields of its request changed (None removes one)."""
    document = recorded(fixture)
    for key, value in changed.items():
        document["request"][key] = value
        if value is None:
            del document["request"][key]
    return orjson.dumps(document)


def patch_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(answer["response"]["patch"]))
    return operations


def review_about(kind: GroupVersionKind, plural: str, operation: str, obj: Any, **more: Any) -> dict[str, Any]:
    """Return an AdmissionReview of a request for an object; ``more``: fields of the request."""
    group, version = kind.group, kind.version
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": kind.kind},
        "resource": {"group": group, "version": version, "resource": plural},
        "operation": operation,
        "object": obj,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
