"""The definition of Widget."""

from __future__ import annotations

from typing import Final

from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version
from app.api.schema import go_struct
from tests.toy.widget.types import Widget, WidgetSpec

WIDGET: Final = KindDefinition(
    group="toys.kruise.io",
    kind="Widget",
    plural="widgets",
    access=Access("creates Pods in its namespace", view=True, edit=True),
    short_names=("wd",),
    versions=(Version("v1beta1", Widget, (PrinterColumn("PODS", "integer", ".status.pods", "Number of Pods."), AGE)),),
)
#: The Go types of the spec, by version.
SPECS: Final = {"v1beta1": go_struct(WidgetSpec, {})}
