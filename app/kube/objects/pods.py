"""Pods: what was asked of them, and what is reported."""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.kube.objects.base import ObjectMeta, Struct, decoder
from app.kube.objects.containers import Container, EphemeralContainer
from app.kube.objects.resources import ResourceRequirements, shared_resources


class PodReadinessGate(Struct, frozen=True):
    """A condition that must be true before the Pod counts as ready."""

    condition_type: str = ""


class NodeFieldRequirement(Struct, frozen=True):
    """A requirement on a field of a node, such as its name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """One way in which a node may be right; of its requirements only those on fields are kept."""

    match_fields: tuple[NodeFieldRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Struct, frozen=True):
    """Which nodes a Pod must have."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Struct, frozen=True):
    """Where a Pod wants to be; of it only what must be of the node."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, frozen=True):
    """What was asked of a Pod."""

    node_name: str = ""
    #: Of a Pod that has no node yet; afterwards nobody reads it.
    affinity: Affinity | None = None
    restart_policy: str = ""
    service_account_name: str = ""
    termination_grace_period_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    readiness_gates: tuple[PodReadinessGate, ...] = ()

    def __post_init__(self) -> None:
        if self.node_name and self.affinity is not None:
            msgspec.structs.force_setattr(self, "affinity", None)

    @property
    def target_node(self) -> str:
        """The node the Pod is on, or the one it was made for by a required node affinity; '' if there is none."""
        affinity = self.affinity.node_affinity if self.affinity is not None else None
        if self.node_name or affinity is None or affinity.required is None:
            return self.node_name
        for term in affinity.required.node_selector_terms:
            for one in term.match_fields:
                if one.key == "metadata.name" and one.operator == "In" and len(one.values) == 1:
                    return one.values[0]
        return ""


class PodCondition(Struct, frozen=True):
    """One condition of a Pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class ContainerStateRunning(Struct, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class ContainerStateWaiting(Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Struct, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Struct, frozen=True):
    """Exactly one of the three; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct, frozen=True):
    """What the kubelet reports about one container."""

    name: str = ""
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    #: What the container really has; None where the kubelet does not report it.
    resources: ResourceRequirements | None = None

    def __post_init__(self) -> None:
        if self.resources is not None:
            msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


class PodStatus(Struct, frozen=True):
    """What the kubelet, and readiness gates' owners, report about a Pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    #: The generation of the spec the kubelet last looked at; 0 where it does not say.
    observed_generation: int = 0
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, type_: str) -> PodCondition | None:
        """The condition of that type, if it was ever set."""
        for condition in self.status.conditions:
            if condition.type == type_:
                return condition
        return None


decode_pod = decoder(Pod)
