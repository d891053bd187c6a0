"""NodePodProbes as frozen structs, with only the fields that the controllers use."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from app.features.podprobe.kind import NODE_POD_PROBE
from app.features.podprobe.types import SEPARATOR
from app.kube.objects import ObjectMeta, Struct, decoder

NODE_POD_PROBES: Final = NODE_POD_PROBE.resource()


class _Action(dict[str, Any]):
    """A probe as JSON. Equal probes share one object: a marker may have Pods on thousands of nodes."""

    __slots__ = ("__weakref__",)


_in_use: Final[WeakValueDictionary[bytes, _Action]] = WeakValueDictionary()


class ContainerProbe(Struct, frozen=True):
    """One probe of a container. ``probe`` is kept as JSON for comparison."""

    name: str = ""
    container_name: str = ""
    probe: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        digest = blake2b(repr(self.probe).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        msgspec.structs.force_setattr(self, "probe", _in_use.setdefault(digest, _Action(self.probe)))


class PodProbe(Struct, frozen=True):
    """The probes of one Pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    ip: str = msgspec.field(name="IP", default="")
    probes: tuple[ContainerProbe, ...] = ()


class NodePodProbeSpec(Struct, frozen=True):
    """The probes that the node agent must run."""

    pod_probes: tuple[PodProbe, ...] = ()


class ProbeState(Struct, frozen=True):
    """The result of one probe. Times are kept as strings."""

    name: str = ""
    state: str = ""
    last_probe_time: str = ""
    last_transition_time: str = ""
    message: str = ""


class PodProbeStatus(Struct, frozen=True):
    """The results for one Pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    probe_states: tuple[ProbeState, ...] = ()


class NodePodProbeStatus(Struct, frozen=True):
    """The probe results that the node agent reports."""

    pod_probe_statuses: tuple[PodProbeStatus, ...] = ()


class NodePodProbe(Struct, frozen=True):
    """The probes of one node and their results."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePodProbeSpec = NodePodProbeSpec()
    status: NodePodProbeStatus = NodePodProbeStatus()

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def markers_of(node_pod_probe: NodePodProbe) -> list[str]:
    """Index NodePodProbes by the namespace/name of each PodProbeMarker whose probes they contain. [PPM-40]"""
    return list(
        {
            f"{pod.namespace}/{probe.name.partition(SEPARATOR)[0]}": None
            for pod in node_pod_probe.spec.pod_probes
            for probe in pod.probes
        }
    )


def pods_of(node_pod_probe: NodePodProbe) -> list[str]:
    """Index NodePodProbes by the UIDs of their Pods."""
    return [pod.uid for pod in node_pod_probe.spec.pod_probes]


BY_MARKER: Final = "marker"
BY_POD: Final = "pod"
decode_node_pod_probe: Final = decoder(NodePodProbe)
