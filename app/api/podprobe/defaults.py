"""What a PodProbeMarker means where it says nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core_defaults import objects
from app.api.jsonvalue import json_copy

HTTP: Final = "HTTP"


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """PPM-43: the PodProbeMarker with the scheme of its requests, as a copy."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    for probe in objects(spec.get("probes") if isinstance(spec, dict) else None):
        handler = probe.get("probe")
        request = handler.get("httpGet") if isinstance(handler, dict) else None
        if isinstance(request, dict) and request.get("scheme") in (None, ""):
            request["scheme"] = HTTP
    return defaulted
