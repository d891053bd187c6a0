"""Widget as a kind."""

from __future__ import annotations

from typing import Final

from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version
from tests.toy.api.types import Widget

WIDGET: Final = KindDefinition(
    group="toys.kruise.io",
    kind="Widget",
    plural="widgets",
    access=Access("creates Pods in its namespace", view=True, edit=True),
    short_names=("wd",),
    versions=(Version("v1beta1", Widget, (PrinterColumn("PODS", "integer", ".status.pods", "Pods there are."), AGE)),),
)
