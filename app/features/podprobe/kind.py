"""The definitions of PodProbeMarker and NodePodProbe, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core.defaults import objects
from app.api.kind import Access, KindDefinition, Version
from app.features.podprobe.types import NodePodProbe, PodProbeMarker
from app.kube.jsonvalues import json_copy

POD_PROBE_MARKER: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="PodProbeMarker",
    plural="podprobemarkers",
    access=Access("probes Pods of its namespace, as probes in their spec do", view=True, edit=True),
    versions=(Version(names.V1ALPHA1, PodProbeMarker, ()),),
)

NODE_POD_PROBE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="NodePodProbe",
    plural="nodepodprobes",
    access=Access("runs commands in Pods of any namespace; the controllers write it", view=True),
    namespaced=False,
    versions=(Version(names.V1ALPHA1, NodePodProbe, ()),),
)


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
