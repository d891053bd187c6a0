"""What a BroadcastJob means where it says nothing (BJ-2). Pure; the same in both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.broadcastjob.types import ALWAYS, FAIL_FAST
from app.api.jsonvalue import json_copy

PARALLELISM: Final = 2**31 - 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The BroadcastJob (JSON) with the defaults of its own fields, as a copy. Doing it twice changes nothing."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if isinstance(spec, dict):
        if spec.get("parallelism") is None:
            spec["parallelism"] = PARALLELISM
        for field, value in (("completionPolicy", ALWAYS), ("failurePolicy", FAIL_FAST)):
            if spec.get(field) is None:
                spec[field] = {}
            if isinstance(spec[field], dict) and not spec[field].get("type"):
                spec[field]["type"] = value
    return defaulted
