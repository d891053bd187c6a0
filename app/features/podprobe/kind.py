"""Kind definitions of PodProbeMarker and NodePodProbe, and the defaults of a PodProbeMarker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.kind import Access, KindDefinition, Version
from app.features.podprobe.types import NodePodProbe, PodProbeMarker
from app.kube.jsonvalues import json_copy, objects

POD_PROBE_MARKER: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="PodProbeMarker",
    plural="podprobemarkers",
    access=Access("runs probes in Pods in its namespace, like the probes of a Pod spec", view=True, edit=True),
    versions=(Version(names.V1ALPHA1, PodProbeMarker, ()),),
)

NODE_POD_PROBE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="NodePodProbe",
    plural="nodepodprobes",
    access=Access("runs commands in Pods of any namespace; written by the controllers", view=True),
    namespaced=False,
    versions=(Version(names.V1ALPHA1, NodePodProbe, ()),),
)

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
