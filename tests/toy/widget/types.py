"""The fields of Widget."""

from __future__ import annotations

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32


class WidgetSpec(ApiModel):
    """Desired state of the Widget."""

    replicas: Int32 | None = None
    """How many Pods there shall be. Default: 1."""
    colour: str = ""
    """The label colour of the Pods. Default: red."""


class WidgetStatus(ApiModel):
    """Observed state of the Widget."""

    pods: Int32 = 0
    """How many Pods there are."""


class Widget(KubeObject):
    """So many Pods of one colour."""

    spec: WidgetSpec = Field(default_factory=WidgetSpec)
    status: WidgetStatus | None = None
