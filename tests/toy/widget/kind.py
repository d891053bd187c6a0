"""The definition of Widget, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version
from tests.toy.widget.types import Widget

WIDGET: Final = KindDefinition(
    group="toys.kruise.io",
    kind="Widget",
    plural="widgets",
    access=Access("creates Pods in its namespace", view=True, edit=True),
    short_names=("wd",),
    versions=(Version("v1beta1", Widget, (PrinterColumn("PODS", "integer", ".status.pods", "Pods there are."), AGE)),),
)


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of the object with its defaults."""
    return {**obj, "spec": {"replicas": 1, "colour": "red", **(obj.get("spec") or {})}}
