"""Which Widgets cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.kube.fielderrors import FieldError, Path, invalid, not_supported

COLOURS = ("blue", "red")
SPEC = Path("spec")


def spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Every mistake in a defaulted spec."""
    found = []
    if spec["replicas"] < 0:
        found.append(invalid(SPEC.child("replicas"), spec["replicas"], "must be greater than or equal to 0"))
    if spec["colour"] not in COLOURS:
        found.append(not_supported(SPEC.child("colour"), spec["colour"], COLOURS))
    return found
