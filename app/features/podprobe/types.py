"""API types of PodProbeMarker and NodePodProbe."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.api.fields import Probe
from app.api.model import ApiModel, KubeObject
from app.api.schema import Int64, LabelSelector, Time

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
MARKED_STATES: Final = (SUCCEEDED, FAILED)
SEPARATOR: Final = "#"
"""Separates the marker name from the probe name in a NodePodProbe."""


class ProbeMarkerPolicy(ApiModel):
    """ProbeMarkerPolicy defines the labels and annotations that are set for one probe result and removed for the
    other."""

    state: str
    """Probe result this policy applies to: Succeeded or Failed."""
    labels: dict[str, str] | None = None
    """Labels to set on the Pod."""
    annotations: dict[str, str] | None = None
    """Annotations to set on the Pod."""


class PodContainerProbe(ApiModel):
    """PodContainerProbe defines one probe and the effect of its result on the Pod."""

    name: str
    """Name of the probe. It must be unique in the object."""
    container_name: str
    """Name of the container to probe."""
    probe: Probe
    """Action and its timing. exec, httpGet and tcpSocket are supported."""
    marker_policy: list[ProbeMarkerPolicy] | None = None
    """Labels and annotations to set on the Pod for each result."""
    pod_condition_type: str = ""
    """Type of the Pod condition that reports the result. Its status is True if the probe succeeded."""


class PodProbeMarkerSpec(ApiModel):
    """PodProbeMarkerSpec defines the Pods to probe and the probes."""

    selector: LabelSelector
    """Label query over the Pods to probe. It must not be empty and is immutable."""
    probes: list[PodContainerProbe]
    """Probes to run. At least one is required."""


class PodProbeMarkerStatus(ApiModel):
    """PodProbeMarkerStatus is the observed state of a PodProbeMarker."""

    observed_generation: Int64
    """Generation this status refers to."""
    matched_pods: Int64 = 0
    """Number of Pods that the selector matches."""


class PodProbeMarker(KubeObject):
    """PodProbeMarker runs probes in containers and marks their Pods with the results."""

    spec: PodProbeMarkerSpec
    """Desired state of the PodProbeMarker."""
    status: PodProbeMarkerStatus | None = None
    """Observed state of the PodProbeMarker."""


class ContainerProbe(ApiModel):
    """ContainerProbe is one probe of a container."""

    name: str
    """Names of the PodProbeMarker and of the probe, joined by #."""
    container_name: str
    """Name of the container to probe."""
    probe: Probe
    """Action and its timing."""


class PodProbe(ApiModel):
    """PodProbe lists the probes of one Pod."""

    name: str
    """Name of the Pod."""
    namespace: str
    """Namespace of the Pod."""
    uid: str
    """UID of the Pod."""
    ip: str = Field(alias="IP")
    """IP address of the Pod."""
    probes: list[ContainerProbe] | None = None
    """Probes of the Pod."""


class NodePodProbeSpec(ApiModel):
    """NodePodProbeSpec lists the Pods to probe on the node."""

    pod_probes: list[PodProbe] | None = None
    """Probes of each Pod."""


class ContainerProbeState(ApiModel):
    """ContainerProbeState is the latest result of one probe."""

    name: str
    """Names of the PodProbeMarker and of the probe, joined by #."""
    state: str
    """Result: Succeeded, Failed or Unknown."""
    last_probe_time: Time = ""
    """Time the probe last ran."""
    last_transition_time: Time = ""
    """Time the result last changed."""
    message: str = ""
    """Output of the probe."""


class PodProbeStatus(ApiModel):
    """PodProbeStatus lists the probe results of one Pod."""

    name: str
    """Name of the Pod."""
    namespace: str
    """Namespace of the Pod."""
    uid: str
    """UID of the Pod."""
    probe_states: list[ContainerProbeState] | None = None
    """Results of the Pod's probes."""


class NodePodProbeStatus(ApiModel):
    """NodePodProbeStatus lists the results reported by the node agent."""

    pod_probe_statuses: list[PodProbeStatus] | None = None
    """Results of each Pod."""


class NodePodProbe(KubeObject):
    """NodePodProbe lists the probes that a node agent runs and their results. There is one per node, with the node's
    name."""

    spec: NodePodProbeSpec = Field(default_factory=NodePodProbeSpec)
    """Desired state of the NodePodProbe."""
    status: NodePodProbeStatus | None = None
    """Observed state of the NodePodProbe."""
