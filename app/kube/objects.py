"""Structs of the foreign objects that the manager reads: Pods, nodes, workloads, revisions, claims and others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base class of all structs in this module.

    ``gc=False``: the structs contain no cycles, and the garbage collector must not traverse half a million objects for
    10,000 Pods on every run.
    """


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
        """Return the owner's API group, without its version."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Struct, frozen=True):
    """Metadata of an object. Times are timezone-aware, in UTC."""

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
        """Return the owner that manages this object (``controller: true``), if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Metadata(Struct, frozen=True):
    """An object, or the response to a write, of which only the metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


class Meta(Protocol):
    """The part of an object's metadata that caches need. Our kinds and foreign objects share these field names."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class Object(Protocol):
    """Anything with metadata: a struct of this module, or a model of our own kinds."""

    @property
    def metadata(self) -> Meta: ...


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes one object of this struct from JSON bytes and raises ``msgspec.DecodeError``."""
    return msgspec.json.Decoder(kind).decode


decode_metadata = decoder(Metadata)


class ResourceRequirements(Struct, frozen=True):
    """Requests and limits of a container: resource → quantity, as the API server writes them."""

    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


NO_RESOURCES: Final = ResourceRequirements()

#: Maximum JSON length of cached values. Longer ones are rare, and would stay cached long after their Pods are gone.
_LONGEST_SHARED: Final = 4096
_MOST_RESOURCES: Final = 16


def shared(values: T) -> T:
    """Return the cached instance that equals ``values``."""
    return _kept(values) if is_short(values) else values


def is_short(values: object) -> bool:
    """Return whether the JSON of values from users is short enough to cache."""
    return len(msgspec.json.encode(values)) <= _LONGEST_SHARED


@lru_cache(maxsize=4096)
def _kept(value: T) -> T:
    return value


@lru_cache(maxsize=4096)
def _resources_of(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> ResourceRequirements:
    return ResourceRequirements(dict(limits), dict(requests))


def shared_resources(resources: ResourceRequirements) -> ResourceRequirements:
    """Return the cached instance that equals ``resources``."""
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
    """The source of an environment variable, if it is a ConfigMap or a field of the Pod."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    field_ref: ObjectFieldSelector | None = None


class EnvVar(Struct, frozen=True):
    """An environment variable, without its value."""

    name: str = ""
    value_from: EnvVarSource | None = None


class ContainerResizePolicy(Struct, frozen=True):
    """Whether changing this resource in place restarts the container."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(Struct, frozen=True):
    """A named port of a container."""

    name: str = ""
    container_port: int = 0


class Container(Struct, frozen=True):
    """A container in a Pod's spec.

    Only env variables set from ConfigMaps, labels or annotations are kept: a container cannot start without the
    ConfigMap, and can be updated in place through the labels and annotations.
    """

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = NO_RESOURCES
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    #: Named ports only.
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        # Plain values are most of a Pod's env, are never read, and would double the size of a cached Pod. The rest is
        # usually equal in all Pods of a workload, so it is shared.
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
    """A container that was added to a running Pod."""

    name: str = ""
    env: tuple[PlainEnvVar, ...] = ()


class PodReadinessGate(Struct, frozen=True):
    """A condition that must be true before the Pod is ready."""

    condition_type: str = ""


class NodeFieldRequirement(Struct, frozen=True):
    """A requirement on a node field, such as the name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """One term of a node selector. Only the field requirements are kept."""

    match_fields: tuple[NodeFieldRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    """A node selector, of which at least one term must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Struct, frozen=True):
    """Required node affinity of a Pod."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Struct, frozen=True):
    """Scheduling constraints of a Pod; only required node affinity is kept."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, frozen=True):
    """Specification of a Pod."""

    node_name: str = ""
    #: Kept only while the Pod has no node.
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
        """Return the node the Pod is on, or the one that its required node affinity names; '' if there is none."""
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
    """Start time of a running container."""

    started_at: datetime | None = None


class ContainerStateWaiting(Struct, frozen=True):
    """The reason why a container is not running yet."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Struct, frozen=True):
    """The result of a terminated container."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Struct, frozen=True):
    """State of a container. At most one field is set; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct, frozen=True):
    """Status of one container, as reported by the kubelet."""

    name: str = ""
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    #: The resources that the container actually has; None if the kubelet does not report them.
    resources: ResourceRequirements | None = None

    def __post_init__(self) -> None:
        if self.resources is not None:
            msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


class PodStatus(Struct, frozen=True):
    """Status of a Pod, as reported by the kubelet and by the owners of readiness gates."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    #: The generation of the spec that the kubelet last observed; 0 if not reported.
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
        for condition in self.status.conditions:
            if condition.type == type_:
                return condition
        return None


decode_pod = decoder(Pod)


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """Specification of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ResourceRequirements = NO_RESOURCES

    def __post_init__(self) -> None:
        # Usually equal in all claims of a workload, so they are shared.
        msgspec.structs.force_setattr(self, "resources", shared_resources(self.resources))


class WorkloadTemplate(Struct, frozen=True):
    """Pod template of a workload; only the labels are kept."""

    metadata: ObjectMeta = ObjectMeta()


class WorkloadOrdinals(Struct, frozen=True):
    """Ordinals of a StatefulSet's Pods."""

    start: int = 0


class WorkloadSpec(Struct, frozen=True):
    """Specification of a workload. ``replicas`` is None if not set."""

    replicas: int | None = None
    template: WorkloadTemplate = WorkloadTemplate()
    ordinals: WorkloadOrdinals | None = None


class Workload(Struct, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet, with the fields needed to count its Pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class PersistentVolumeClaimStatus(Struct, frozen=True):
    """Status of a PersistentVolumeClaim."""

    phase: str = ""
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[PodCondition, ...] = ()


class PersistentVolumeClaim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ControllerRevision(Struct, frozen=True):
    """A stored revision; ``data`` is the raw JSON as the server sent it."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")

    def __post_init__(self) -> None:
        # A decoded Raw is a view that would keep the whole response in memory.
        msgspec.structs.force_setattr(self, "data", self.data.copy())


class JobCondition(Struct, frozen=True):
    """One condition of a Job."""

    type: str = ""
    status: str = ""


class JobStatus(Struct, frozen=True):
    """Status of a Job: its start time and conditions."""

    start_time: datetime | None = None
    conditions: tuple[JobCondition, ...] = ()


class JobSpec(Struct, frozen=True):
    """Specification of a Job. ``parallelism`` is None if not set."""

    parallelism: int | None = None


class Job(Struct, frozen=True):
    """A batch/v1 Job, with the fields that the controllers creating Jobs need."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


decode_workload = decoder(Workload)
decode_persistent_volume_claim = decoder(PersistentVolumeClaim)
decode_controller_revision = decoder(ControllerRevision)
decode_job = decoder(Job)


class Namespace(Struct, frozen=True):
    """A namespace. Selectors match its labels."""

    metadata: ObjectMeta = ObjectMeta()


class NodeCondition(Struct, frozen=True):
    """One condition of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """Specification of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True):
    """Status of a node."""

    conditions: tuple[NodeCondition, ...] = ()
    #: Resources available to Pods.
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class Node(Struct, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMap(Struct, frozen=True):
    """A ConfigMap, without its ``binaryData``."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


#: Types of pull Secrets, and the key of each one's content.
PULL_SECRET_KEYS: Final = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}


class Secret(Struct, frozen=True):
    """A Secret; the values of ``data`` are decoded."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


class LeaseSpec(Struct, frozen=True):
    """Holder, times and duration of a lease."""

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
    """Reference to any object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


decode_namespace = decoder(Namespace)
decode_node = decoder(Node)
decode_config_map = decoder(ConfigMap)
decode_secret = decoder(Secret)
decode_lease = decoder(Lease)
