"""Structs of the foreign objects that the manager reads: Pods, nodes, workloads, revisions, claims and others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

# What every object has, and how objects are read.
#
# ``gc=False``: the structs hold no cycles, and 10,000 Pods must not make every garbage collection walk half a million
# objects.

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The common form of all structs here."""


class OwnerReference(Struct, frozen=True):
    """One owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The owner's API group, without its version."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Struct, frozen=True):
    """What every object has. Times are aware, in UTC."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generate_name: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object (``controller: true``), if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Metadata(Struct, frozen=True):
    """What is read of an object, or of the answer to a write, where only its metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


class Meta(Protocol):
    """The part of an object's metadata that caches need; ours and foreign objects have it under these names."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class Object(Protocol):
    """Anything with metadata: a struct of this module, or a model of ours."""

    @property
    def metadata(self) -> Meta: ...


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """The function that reads one object of this struct from JSON bytes; raises ``msgspec.DecodeError``."""
    return msgspec.json.Decoder(kind).decode


decode_metadata = decoder(Metadata)


class ResourceRequirements(Struct, frozen=True):
    """What a container may use and what is kept for it: resource → quantity, as the API server writes them."""

    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


NO_RESOURCES: Final = ResourceRequirements()

#: Longer ones, as JSON, are nobody's habit, and would be kept when their Pods are long gone.
_LONGEST_SHARED: Final = 4096
_MOST_RESOURCES: Final = 16


def shared(values: T) -> T:
    """The same values, kept once for all that have the same."""
    return _kept(values) if len(msgspec.json.encode(values)) <= _LONGEST_SHARED else values


@lru_cache(maxsize=4096)
def _kept(value: T) -> T:
    return value


@lru_cache(maxsize=4096)
def _resources_of(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> ResourceRequirements:
    return ResourceRequirements(dict(limits), dict(requests))


def shared_resources(resources: ResourceRequirements) -> ResourceRequirements:
    """The same resources, kept once for all that ask the same."""
    if not resources.limits and not resources.requests:
        return NO_RESOURCES
    if len(resources.limits) + len(resources.requests) > _MOST_RESOURCES:
        return resources
    return _resources_of(tuple(resources.limits.items()), tuple(resources.requests.items()))


class ConfigMapKeySelector(Struct, frozen=True):
    """A key of a ConfigMap in the Pod's namespace."""

    name: str = ""
    key: str = ""


class ObjectFieldSelector(Struct, frozen=True):
    """A field of the Pod itself, such as ``metadata.labels['app']``."""

    field_path: str = ""


class EnvVarSource(Struct, frozen=True):
    """Where the value of an environment variable comes from, if from a ConfigMap or a field of the Pod."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    field_ref: ObjectFieldSelector | None = None


class EnvVar(Struct, frozen=True):
    """An environment variable, without its value."""

    name: str = ""
    value_from: EnvVarSource | None = None


class ContainerResizePolicy(Struct, frozen=True):
    """Whether a container restarts when this resource of it changes in place."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(Struct, frozen=True):
    """A port of a container that has a name."""

    name: str = ""
    container_port: int = 0


class Container(Struct, frozen=True):
    """A container of a Pod's spec: who it is, what it runs and uses. Of its env only what comes from ConfigMaps, labels
    and annotations is kept: without the first it cannot start, by the others it is updated in place."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = NO_RESOURCES
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    #: Those with a name.
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        # Plain values are most of a Pod's env, read by nobody, and would double what a cached Pod costs. The rest is
        # mostly the same in all Pods of a workload, and then kept once.
        if self.env:
            msgspec.structs.force_setattr(self, "env", shared(tuple(entry for entry in self.env if _is_read(entry))))
        if self.resize_policy:
            msgspec.structs.force_setattr(self, "resize_policy", shared(self.resize_policy))
        if self.ports:
            named = shared(tuple(port for port in self.ports if port.name))
            msgspec.structs.force_setattr(self, "ports", named)
        msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


def _is_read(entry: EnvVar) -> bool:
    source = entry.value_from
    if source is None:
        return False
    return source.config_map_key_ref is not None or (
        source.field_ref is not None and source.field_ref.field_path.startswith(_METADATA_MAPS)
    )


_METADATA_MAPS: Final = ("metadata.labels[", "metadata.annotations[")


class PlainEnvVar(Struct, frozen=True):
    """An environment variable with its value."""

    name: str = ""
    value: str = ""


class EphemeralContainer(Struct, frozen=True):
    """A container that was put into a running Pod."""

    name: str = ""
    env: tuple[PlainEnvVar, ...] = ()


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


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """What is asked of a volume."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ResourceRequirements = NO_RESOURCES

    def __post_init__(self) -> None:
        # Mostly the same in all claims of a workload, and then kept once.
        msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


class WorkloadTemplate(Struct, frozen=True):
    """What a workload makes its Pods from, as far as others ask: their labels."""

    metadata: ObjectMeta = ObjectMeta()


class WorkloadOrdinals(Struct, frozen=True):
    """Which numbers the Pods of a StatefulSet have."""

    start: int = 0


class WorkloadSpec(Struct, frozen=True):
    """How many Pods a workload wants; None where it does not say."""

    replicas: int | None = None
    template: WorkloadTemplate = WorkloadTemplate()
    ordinals: WorkloadOrdinals | None = None


class Workload(Struct, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet, as those see it that count its Pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class PersistentVolumeClaimStatus(Struct, frozen=True):
    """How far a claim is."""

    phase: str = ""
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[PodCondition, ...] = ()


class PersistentVolumeClaim(Struct, frozen=True):
    """A claim on a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ControllerRevision(Struct, frozen=True):
    """A stored revision; ``data`` is the raw JSON as the server sent it."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")

    def __post_init__(self) -> None:
        # A decoded Raw is a view that would keep the whole received message alive.
        msgspec.structs.force_setattr(self, "data", self.data.copy())


class JobCondition(Struct, frozen=True):
    """How a Job ended."""

    type: str = ""
    status: str = ""


class JobStatus(Struct, frozen=True):
    """Whether it goes on, and since when."""

    start_time: datetime | None = None
    conditions: tuple[JobCondition, ...] = ()


class JobSpec(Struct, frozen=True):
    """How many Pods a Job runs at once; None where it does not say."""

    parallelism: int | None = None


class Job(Struct, frozen=True):
    """A Job of Kubernetes, as far as whoever made it asks."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


decode_workload = decoder(Workload)

decode_persistent_volume_claim = decoder(PersistentVolumeClaim)

decode_controller_revision = decoder(ControllerRevision)

decode_job = decoder(Job)


class Namespace(Struct, frozen=True):
    """A namespace; selectors read its labels."""

    metadata: ObjectMeta = ObjectMeta()


class NodeCondition(Struct, frozen=True):
    """One condition of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class Taint(Struct, frozen=True):
    """What keeps Pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """How a node may be used."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True):
    """What a node reports."""

    conditions: tuple[NodeCondition, ...] = ()
    #: What Pods can have of it together, by resource.
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class Node(Struct, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMap(Struct, frozen=True):
    """A ConfigMap; ``binary_data`` values are base64 text."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, str] = msgspec.field(default_factory=dict)


class Secret(Struct, frozen=True):
    """A Secret; the values of ``data`` are decoded."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


class LeaseSpec(Struct, frozen=True):
    """Who holds a lease, since when, and how long without renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A lease of coordination.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Struct, frozen=True):
    """Which object an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Struct, frozen=True):
    """Who reports an event."""

    component: str = ""
    host: str = ""


class Event(Struct, frozen=True):
    """An event of core/v1, as ``kubectl describe`` shows it."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""


decode_namespace = decoder(Namespace)

decode_node = decoder(Node)

decode_config_map = decoder(ConfigMap)

decode_secret = decoder(Secret)

decode_lease = decoder(Lease)

decode_event = decoder(Event)
