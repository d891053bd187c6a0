"""Our own kinds as the agent reads them: frozen structs that name only what it uses.

The models of :mod:`app.api` say more and cost more: an agent runs on every node. The versions are those that are
stored, so that no conversion webhook stands between an agent and its work.
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
    """What a runtime is told about the Pod an image is for."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class TagPullPolicy(Struct, frozen=True):
    """How long and how often to try."""

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
    """The tags to pull of one repository."""

    tags: tuple[ImageTag, ...] = ()
    pull_secrets: tuple[SecretReference, ...] = ()
    sandbox_config: SandboxConfig = SandboxConfig()


class NodeImageSpec(Struct, frozen=True):
    """What to pull."""

    images: dict[str, ImageEntry] = msgspec.field(default_factory=dict)


class ImageTagStatus(Struct, frozen=True):
    """How far one tag is. Times stay text: they are only handed on."""

    tag: str = ""
    phase: str = ""
    progress: int = 0
    start_time: str = ""
    completion_time: str = ""
    version: int = 0
    image_id: str = msgspec.field(name="imageID", default="")
    message: str = ""


class ImageStatus(Struct, frozen=True):
    """How far the tags of one repository are."""

    tags: tuple[ImageTagStatus, ...] = ()


class NodeImageStatus(Struct, frozen=True):
    """How far all are. ``desired`` is None where nothing was ever reported."""

    desired: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    pulling: int | None = None
    waiting: int | None = None
    image_statuses: dict[str, ImageStatus] = msgspec.field(default_factory=dict)


class NodeImage(Struct, frozen=True):
    """What this node shall pull."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeImageSpec = NodeImageSpec()
    status: NodeImageStatus = NodeImageStatus()


class ExecAction(Struct, frozen=True):
    """A command."""

    command: tuple[str, ...] = ()


class HttpHeader(Struct, frozen=True):
    """A header."""

    name: str = ""
    value: str = ""


class HttpGetAction(Struct, frozen=True):
    """A request."""

    host: str = ""
    path: str = ""
    port: int | str = 0
    scheme: str = ""
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(Struct, frozen=True):
    """A connection."""

    host: str = ""
    port: int | str = 0


class SleepAction(Struct, frozen=True):
    """A wait."""

    seconds: int = 0


class Handler(Struct, frozen=True):
    """One of these."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    sleep: SleepAction | None = None


class ContainerPort(Struct, frozen=True):
    """A port with a name."""

    name: str = ""
    container_port: int = 0


class StatusContext(Struct, frozen=True):
    """The container that a request is about."""

    container_id: str = msgspec.field(name="containerID", default="")
    restart_count: int = 0


class RecreateContainer(Struct, frozen=True):
    """A container to restart. Its hook is read from the runtime, never from the request."""

    name: str = ""
    status_context: StatusContext = StatusContext()


class RecreateStrategy(Struct, frozen=True):
    """How to restart."""

    failure_policy: str = "Fail"
    ordered_recreate: bool = False
    force_recreate: bool = False
    termination_grace_period_seconds: int | None = None
    unready_grace_period_seconds: int | None = None
    min_started_seconds: int = 0


class RecreateSpec(Struct, frozen=True):
    """What to restart."""

    pod_name: str = ""
    containers: tuple[RecreateContainer, ...] = ()
    strategy: RecreateStrategy = RecreateStrategy()


class RecreateState(Struct, frozen=True):
    """How far one container is."""

    name: str = ""
    phase: str = ""
    message: str = ""
    is_killed: bool = False


class ContainerSnapshot(Struct, frozen=True):
    """What the Pod's status says about one container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")


class Condition(Struct, frozen=True):
    """One aspect of a request."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class RecreateStatus(Struct, frozen=True):
    """How far a request is."""

    phase: str = ""
    completion_time: str = ""
    container_recreate_states: tuple[RecreateState, ...] = ()
    container_status_snapshot: tuple[ContainerSnapshot, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RecreateRequest(Struct, frozen=True):
    """Containers of a Pod to restart."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RecreateSpec = RecreateSpec()
    status: RecreateStatus = RecreateStatus()

    @property
    def pod_uid(self) -> str:
        """The Pod's uid."""
        return self.metadata.labels.get(names.CRR_POD_UID, "")


class Probe(Struct, frozen=True):
    """What to do to find out how a container is, and how often."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0


class ContainerProbe(Struct, frozen=True):
    """One probe."""

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
    """What to probe."""

    pod_probes: tuple[PodProbe, ...] = ()


class ProbeState(Struct, frozen=True):
    """The result of one probe. Times stay text: they are only handed on."""

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
    """The results."""

    pod_probe_statuses: tuple[PodProbeStatus, ...] = ()


class NodePodProbe(Struct, frozen=True):
    """What this node shall probe."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePodProbeSpec = NodePodProbeSpec()
    status: NodePodProbeStatus = NodePodProbeStatus()


decode_node_image = decoder(NodeImage)
decode_recreate_request = decoder(RecreateRequest)
decode_node_pod_probe = decoder(NodePodProbe)
