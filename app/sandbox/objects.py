"""Pods and Nodes as a kubelet and a scheduler read them: more of them than the controllers need, nothing else.

Structs like those of :mod:`app.kube.objects`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from app.kube.objects import (
    ContainerState,
    NodeCondition,
    NodeSpec,
    ObjectMeta,
    PodCondition,
    PodReadinessGate,
    Struct,
    decoder,
)


class KeySelector(Struct, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldSelector(Struct, frozen=True):
    """A field of the Pod itself."""

    field_path: str = ""


class EnvVarSource(Struct, frozen=True):
    """Where an env value comes from."""

    field_ref: FieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Struct, frozen=True):
    """One env entry."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvSource(Struct, frozen=True):
    """All keys of a ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFromSource(Struct, frozen=True):
    """A source of several env entries."""

    prefix: str = ""
    config_map_ref: EnvSource | None = None
    secret_ref: EnvSource | None = None


class ExecAction(Struct, frozen=True):
    """A command run in the container."""

    command: tuple[str, ...] = ()


class Probe(Struct, frozen=True):
    """How often the kubelet asks, and how many answers in a row it wants. Seconds."""

    exec: ExecAction | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class LifecycleHandler(Struct, frozen=True):
    """A hook; what is not a command takes no time."""

    exec: ExecAction | None = None


class Lifecycle(Struct, frozen=True):
    """What runs right after a container's start and before its end."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class ResizePolicy(Struct, frozen=True):
    """Whether a change of one resource restarts the container."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(Struct, frozen=True):
    """A port a container listens on."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class Container(Struct, frozen=True):
    """A container as the kubelet starts it."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    restart_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: dict[str, Any] = msgspec.field(default_factory=dict)
    resize_policy: tuple[ResizePolicy, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None


class NodeSelectorRequirement(Struct, frozen=True):
    """One condition on a node's label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """Conditions that must hold together."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodes(Struct, frozen=True):
    """Nodes that are better than others, by weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """Which nodes a Pod must and should run on."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodes, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Struct, frozen=True):
    """Pods in whose topology a Pod must run, or must not."""

    label_selector: dict[str, Any] | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: dict[str, Any] | None = None


class PodAffinity(Struct, frozen=True):
    """Near which Pods, or away from which."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, frozen=True):
    """Where a Pod wants to run."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True):
    """How evenly Pods are to be spread over the values of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None


class Toleration(Struct, frozen=True):
    """A taint the Pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ClaimSource(Struct, frozen=True):
    """A volume that is a PersistentVolumeClaim's."""

    claim_name: str = ""


class ConfigMapSource(Struct, frozen=True):
    """A volume with the keys of a ConfigMap."""

    name: str = ""
    optional: bool = False


class SecretSource(Struct, frozen=True):
    """A volume with the keys of a Secret."""

    secret_name: str = ""
    optional: bool = False


class Volume(Struct, frozen=True):
    """A volume, as far as a Pod waits for what it is made of."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None


class PodSpec(Struct, frozen=True):
    """What was asked of a Pod."""

    node_name: str = ""
    restart_policy: str = "Always"
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[dict[str, str], ...] = ()
    scheduler_name: str = "default-scheduler"
    service_account_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    overhead: dict[str, Any] = msgspec.field(default_factory=dict)
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()


class ContainerStatus(Struct, frozen=True):
    """What the kubelet reports about a container; written as it stands."""

    name: str = ""
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: dict[str, Any] | None = None
    allocated_resources: dict[str, Any] | None = None


class PodStatus(Struct, frozen=True):
    """What the kubelet reports about a Pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: datetime | None = None
    observed_generation: int = 0
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


decode_pod = decoder(Pod)


class Secret(Struct, frozen=True):
    """A Secret, with its values in base64 as they come."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class NodeStatus(Struct, frozen=True):
    """What a node reports, as far as the scheduler looks."""

    allocatable: dict[str, Any] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(Struct, frozen=True):
    """A node with what it has to give."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


decode_secret = decoder(Secret)
decode_node = decoder(Node)
