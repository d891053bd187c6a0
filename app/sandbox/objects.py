"""Pods and Nodes with the fields that a kubelet and a scheduler need.

Structs like those of :mod:`app.kube.objects`, with more fields than the controllers use.
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
    """A field of the Pod."""

    field_path: str = ""


class EnvVarSource(Struct, frozen=True):
    """Source of an environment variable's value."""

    field_ref: FieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Struct, frozen=True):
    """One environment variable."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvSource(Struct, frozen=True):
    """All keys of a ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFromSource(Struct, frozen=True):
    """A source of several environment variables."""

    prefix: str = ""
    config_map_ref: EnvSource | None = None
    secret_ref: EnvSource | None = None


class ExecAction(Struct, frozen=True):
    """A command run in the container."""

    command: tuple[str, ...] = ()


class Probe(Struct, frozen=True):
    """Timing and thresholds of a probe, in seconds."""

    exec: ExecAction | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class LifecycleHandler(Struct, frozen=True):
    """A lifecycle hook. Only commands take time; other hooks finish at once."""

    exec: ExecAction | None = None


class Lifecycle(Struct, frozen=True):
    """Hooks that run right after a container starts and before it stops."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class ResizePolicy(Struct, frozen=True):
    """Whether a change of one resource restarts the container."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(Struct, frozen=True):
    """A port that a container listens on."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class Container(Struct, frozen=True):
    """A container to start."""

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
    """A requirement on a node's label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """Requirements that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    """Terms, at least one of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodes(Struct, frozen=True):
    """A weighted node preference."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """Required and preferred nodes for a Pod."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodes, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Struct, frozen=True):
    """Selects Pods whose topology domain a Pod must share (affinity) or avoid (anti-affinity)."""

    label_selector: dict[str, Any] | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: dict[str, Any] | None = None


class PodAffinity(Struct, frozen=True):
    """Required and preferred affinity terms."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, frozen=True):
    """Affinity rules of a Pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True):
    """How evenly Pods are spread over the values of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None


class Toleration(Struct, frozen=True):
    """A tolerated taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ClaimSource(Struct, frozen=True):
    """A volume from a PersistentVolumeClaim."""

    claim_name: str = ""


class ConfigMapSource(Struct, frozen=True):
    """A volume populated from a ConfigMap."""

    name: str = ""
    optional: bool = False


class SecretSource(Struct, frozen=True):
    """A volume populated from a Secret."""

    secret_name: str = ""
    optional: bool = False


class Volume(Struct, frozen=True):
    """A volume. Only the sources that a Pod must wait for are decoded."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None


class PodSpec(Struct, frozen=True):
    """Desired state of a Pod."""

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
    """A container's status as the kubelet reports it."""

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
    """Status of a Pod as the kubelet reports it."""

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
    """A Secret with base64-encoded values."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class NodeStatus(Struct, frozen=True):
    """Node status fields that the scheduler reads."""

    allocatable: dict[str, Any] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(Struct, frozen=True):
    """A node with its allocatable resources."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


decode_secret = decoder(Secret)
decode_node = decoder(Node)
