"""The fields of PodProbeMarker and NodePodProbe: what users write and what kubectl explains."""

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
"""Between the names of a PodProbeMarker and of its probe, in the name of a probe of a NodePodProbe."""


class ProbeMarkerPolicy(ApiModel):
    """What a Pod is marked with when its probe has one result. With the other result the marks are taken away."""

    state: str
    """The result: Succeeded or Failed."""
    labels: dict[str, str] | None = None
    """Labels the Pod gets."""
    annotations: dict[str, str] | None = None
    """Annotations the Pod gets."""


class PodContainerProbe(ApiModel):
    """One probe, and what its result does to the Pod."""

    name: str
    """The probe's name, once in the object."""
    container_name: str
    """The container it probes."""
    probe: Probe
    """What it does, and how often: exec, httpGet or tcpSocket."""
    marker_policy: list[ProbeMarkerPolicy] | None = None
    """What the Pod is marked with."""
    pod_condition_type: str = ""
    """A condition of the Pod that shows the result: True for success."""


class PodProbeMarkerSpec(ApiModel):
    """Which Pods to probe, and how."""

    selector: LabelSelector
    """The Pods, by labels; it cannot be empty, and cannot be changed."""
    probes: list[PodContainerProbe]
    """The probes; at least one."""


class PodProbeMarkerStatus(ApiModel):
    """What is probed."""

    observed_generation: Int64
    """The generation of the object this is about."""
    matched_pods: Int64 = 0
    """How many Pods there are to probe."""


class PodProbeMarker(KubeObject):
    """PodProbeMarker probes containers as often as it says, and marks their Pods with the results."""

    spec: PodProbeMarkerSpec
    """What is wanted."""
    status: PodProbeMarkerStatus | None = None
    """What is observed."""


class ContainerProbe(ApiModel):
    """One probe of a container."""

    name: str
    """PodProbeMarker and probe, joined by #."""
    container_name: str
    """The container it probes."""
    probe: Probe
    """What it does, and how often."""


class PodProbe(ApiModel):
    """The probes of one Pod."""

    name: str
    """The Pod's name."""
    namespace: str
    """The Pod's namespace."""
    uid: str
    """The Pod's uid."""
    ip: str = Field(alias="IP")
    """The Pod's address."""
    probes: list[ContainerProbe] | None = None
    """Its probes."""


class NodePodProbeSpec(ApiModel):
    """What the node shall probe."""

    pod_probes: list[PodProbe] | None = None
    """By Pod."""


class ContainerProbeState(ApiModel):
    """The result of one probe."""

    name: str
    """PodProbeMarker and probe, joined by #."""
    state: str
    """Succeeded, Failed or Unknown."""
    last_probe_time: Time = ""
    """When it last ran."""
    last_transition_time: Time = ""
    """When the result last changed."""
    message: str = ""
    """What the probe said."""


class PodProbeStatus(ApiModel):
    """The results for one Pod."""

    name: str
    """The Pod's name."""
    namespace: str
    """The Pod's namespace."""
    uid: str
    """The Pod's uid."""
    probe_states: list[ContainerProbeState] | None = None
    """The results of its probes."""


class NodePodProbeStatus(ApiModel):
    """What the node found out."""

    pod_probe_statuses: list[PodProbeStatus] | None = None
    """By Pod."""


class NodePodProbe(KubeObject):
    """NodePodProbe is what a node shall probe and what it found out; there is one per node, of the same name."""

    spec: NodePodProbeSpec = Field(default_factory=NodePodProbeSpec)
    """What is wanted."""
    status: NodePodProbeStatus | None = None
    """What is observed."""
