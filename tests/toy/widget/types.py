"""The fields of Widget."""

from __future__ import annotations

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32


class WidgetSpec(ApiModel):
    """Desired state of the Widget."""

    replicas: Int32 | None = None
    """Number of Pods. Defaults to 1."""
    color: str = ""
    """Value of the color label of the Pods. Defaults to red."""


class WidgetStatus(ApiModel):
    """Observed state of the Widget."""

    pods: Int32 = 0
    """Number of Pods that exist."""


class Widget(KubeObject):
    """Widget runs Pods with a color label."""

    spec: WidgetSpec = Field(default_factory=WidgetSpec)
    status: WidgetStatus | None = None
