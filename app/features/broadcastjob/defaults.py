"""Defaults of a BroadcastJob, the same in both versions. Pure. [BJ-2]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.features.broadcastjob.types import ALWAYS, FAIL_FAST
from app.kube.jsonvalues import json_copy

PARALLELISM: Final = 2**31 - 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the BroadcastJob (JSON) with its own fields defaulted. Idempotent."""
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
