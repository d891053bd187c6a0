"""What a Widget is when nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of the object with its defaults."""
    return {**obj, "spec": {"replicas": 1, "colour": "red", **(obj.get("spec") or {})}}
