"""Probes whose results mark Pods: PodProbeMarker and NodePodProbe. Fields, defaults, validation."""

from app.api.podprobe.definition import NODE_POD_PROBE, POD_PROBE_MARKER
from app.api.podprobe.types import (
    ContainerProbe,
    ContainerProbeState,
    NodePodProbe,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodContainerProbe,
    PodProbe,
    PodProbeMarker,
    PodProbeMarkerSpec,
    PodProbeMarkerStatus,
    PodProbeStatus,
    ProbeMarkerPolicy,
)

__all__ = [
    "NODE_POD_PROBE",
    "POD_PROBE_MARKER",
    "ContainerProbe",
    "ContainerProbeState",
    "NodePodProbe",
    "NodePodProbeSpec",
    "NodePodProbeStatus",
    "PodContainerProbe",
    "PodProbe",
    "PodProbeMarker",
    "PodProbeMarkerSpec",
    "PodProbeMarkerStatus",
    "PodProbeStatus",
    "ProbeMarkerPolicy",
]
