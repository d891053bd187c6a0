"""Recorded reviews of a real API server."""

import base64
import json
from pathlib import Path
from typing import Any

import orjson

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
