"""Validation of Widgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.kube.fielderrors import FieldError, Path, invalid, not_supported

COLORS = ("blue", "red")
SPEC = Path("spec")


def spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors of a defaulted spec."""
    found = []
    if spec["replicas"] < 0:
        found.append(invalid(SPEC.child("replicas"), spec["replicas"], "must be greater than or equal to 0"))
    if spec["color"] not in COLORS:
        found.append(not_supported(SPEC.child("color"), spec["color"], COLORS))
    return found
