"""Kind definitions of PodProbeMarker and NodePodProbe."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, Version
from app.features.podprobe.types import NodePodProbe, PodProbeMarker

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
