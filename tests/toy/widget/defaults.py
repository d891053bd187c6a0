"""Defaults of a Widget. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with its defaults."""
    return {**obj, "spec": {"replicas": 1, "color": "red", **(obj.get("spec") or {})}}
