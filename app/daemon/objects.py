"""The agent's view of Kruise objects: frozen structs with only the fields it uses.

The models of :mod:`app.api` are complete but costly, and an agent runs on every node. The structs match the stored
versions, so the agent does not depend on a conversion webhook.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from app.api import names
from app.kube.objects import ObjectMeta, ObjectReference, Struct, decoder
from app.kube.resources import Resource

NODE_IMAGES: Final = Resource(names.APPS_GROUP, names.V1BETA1, "nodeimages", "NodeImage", namespaced=False)
RECREATE_REQUESTS: Final = Resource(
    names.APPS_GROUP, names.V1BETA1, "containerrecreaterequests", "ContainerRecreateRequest", namespaced=True
)
NODE_POD_PROBES: Final = Resource(names.APPS_GROUP, names.V1ALPHA1, "nodepodprobes", "NodePodProbe", namespaced=False)


class SecretReference(Struct, frozen=True):
    """A Secret with credentials."""

    namespace: str = ""
    name: str = ""


class SandboxConfig(Struct, frozen=True):
    """Pod labels and annotations that are passed to the runtime with a pull."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class TagPullPolicy(Struct, frozen=True):
    """Timeout and retries of a pull."""

    timeout_seconds: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


class ImageTag(Struct, frozen=True):
    """A tag to pull."""

    tag: str = ""
    version: int = 0
    image_pull_policy: str = ""
    pull_policy: TagPullPolicy = TagPullPolicy()
    owner_references: tuple[ObjectReference, ...] = ()


class ImageEntry(Struct, frozen=True):
    """The tags of one repository to pull."""

    tags: tuple[ImageTag, ...] = ()
    pull_secrets: tuple[SecretReference, ...] = ()
    sandbox_config: SandboxConfig = SandboxConfig()


class NodeImageSpec(Struct, frozen=True):
    """Images to pull."""

    images: dict[str, ImageEntry] = msgspec.field(default_factory=dict)


class ImageTagStatus(Struct, frozen=True):
    """Progress of one tag. Times are kept as text."""

    tag: str = ""
    phase: str = ""
    progress: int = 0
    start_time: str = ""
    completion_time: str = ""
    version: int = 0
    image_id: str = msgspec.field(name="imageID", default="")
    message: str = ""


class ImageStatus(Struct, frozen=True):
    """Progress of the tags of one repository."""

    tags: tuple[ImageTagStatus, ...] = ()


class NodeImageStatus(Struct, frozen=True):
    """Progress of all images; ``desired`` is None until the first report."""

    desired: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    pulling: int | None = None
    waiting: int | None = None
    image_statuses: dict[str, ImageStatus] = msgspec.field(default_factory=dict)


class NodeImage(Struct, frozen=True):
    """Images this node must pull."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeImageSpec = NodeImageSpec()
    status: NodeImageStatus = NodeImageStatus()


class ExecAction(Struct, frozen=True):
    """Run a command."""

    command: tuple[str, ...] = ()


class HttpHeader(Struct, frozen=True):
    """An HTTP header."""

    name: str = ""
    value: str = ""


class HttpGetAction(Struct, frozen=True):
    """Send an HTTP request."""

    host: str = ""
    path: str = ""
    port: int | str = 0
    scheme: str = ""
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(Struct, frozen=True):
    """Open a TCP connection."""

    host: str = ""
    port: int | str = 0


class SleepAction(Struct, frozen=True):
    """Sleep for a number of seconds."""

    seconds: int = 0


class Handler(Struct, frozen=True):
    """A lifecycle handler; exactly one action is set."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    sleep: SleepAction | None = None


class StatusContext(Struct, frozen=True):
    """State of a requested container when the request was created."""

    container_id: str = msgspec.field(name="containerID", default="")
    restart_count: int = 0


class RecreateContainer(Struct, frozen=True):
    """A container to restart. Its hook is read from the runtime, never from the request."""

    name: str = ""
    status_context: StatusContext = StatusContext()


class RecreateStrategy(Struct, frozen=True):
    """How to restart the containers."""

    failure_policy: str = "Fail"
    ordered_recreate: bool = False
    force_recreate: bool = False
    termination_grace_period_seconds: int | None = None
    unready_grace_period_seconds: int | None = None
    min_started_seconds: int = 0


class RecreateSpec(Struct, frozen=True):
    """Containers to restart and how."""

    pod_name: str = ""
    containers: tuple[RecreateContainer, ...] = ()
    strategy: RecreateStrategy = RecreateStrategy()


class RecreateState(Struct, frozen=True):
    """Progress of one container."""

    name: str = ""
    phase: str = ""
    message: str = ""
    is_killed: bool = False


class ContainerSnapshot(Struct, frozen=True):
    """One container in the Pod's status."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")


class Condition(Struct, frozen=True):
    """A condition of a request."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class RecreateStatus(Struct, frozen=True):
    """Progress of a request."""

    phase: str = ""
    completion_time: str = ""
    container_recreate_states: tuple[RecreateState, ...] = ()
    container_status_snapshot: tuple[ContainerSnapshot, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RecreateLabels(Struct, frozen=True):
    """Labels of a request that the agent reads."""

    pod_uid: str = msgspec.field(name=names.CRR_POD_UID, default="")
    node_name: str = msgspec.field(name=names.CRR_NODE_NAME, default="")


class RecreateMetadata(Struct, frozen=True):
    """Metadata of a request. A Pod may have any number of requests, so the agent must not keep a megabyte of other
    labels, annotations, finalizers or owner references for each."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: RecreateLabels = RecreateLabels()


class RecreateRequest(Struct, frozen=True):
    """Request to restart containers of a Pod."""

    metadata: RecreateMetadata = RecreateMetadata()
    spec: RecreateSpec = RecreateSpec()
    status: RecreateStatus = RecreateStatus()

    @property
    def pod_uid(self) -> str:
        return self.metadata.labels.pod_uid


class Probe(Struct, frozen=True):
    """Action and timing of a probe."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0


class ContainerProbe(Struct, frozen=True):
    """A probe of one container."""

    name: str = ""
    container_name: str = ""
    probe: Probe = Probe()


class PodProbe(Struct, frozen=True):
    """The probes of one Pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    ip: str = msgspec.field(name="IP", default="")
    probes: tuple[ContainerProbe, ...] = ()


class NodePodProbeSpec(Struct, frozen=True):
    """Probes to run."""

    pod_probes: tuple[PodProbe, ...] = ()


class ProbeState(Struct, frozen=True):
    """Result of one probe. Times are kept as text."""

    name: str = ""
    state: str = ""
    last_probe_time: str = ""
    last_transition_time: str = ""
    message: str = ""


class PodProbeStatus(Struct, frozen=True):
    """Results of one Pod's probes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    probe_states: tuple[ProbeState, ...] = ()


class NodePodProbeStatus(Struct, frozen=True):
    """Results of all probes."""

    pod_probe_statuses: tuple[PodProbeStatus, ...] = ()


class NodePodProbe(Struct, frozen=True):
    """Probes this node must run."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePodProbeSpec = NodePodProbeSpec()
    status: NodePodProbeStatus = NodePodProbeStatus()


decode_node_image = decoder(NodeImage)
decode_recreate_request = decoder(RecreateRequest)
decode_node_pod_probe = decoder(NodePodProbe)
