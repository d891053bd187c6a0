"""PodProbeMarker and NodePodProbe as kinds: their names and versions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, Version
from app.api.podprobe.types import NodePodProbe, PodProbeMarker

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
