"""Defaults of a PodProbeMarker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.kube.jsonvalues import json_copy, objects

HTTP: Final = "HTTP"


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the PodProbeMarker with the default scheme of HTTP probes. [PPM-43]"""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    for probe in objects(spec.get("probes") if isinstance(spec, dict) else None):
        handler = probe.get("probe")
        request = handler.get("httpGet") if isinstance(handler, dict) else None
        if isinstance(request, dict) and request.get("scheme") in (None, ""):
            request["scheme"] = HTTP
    return defaulted
