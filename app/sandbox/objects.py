"""Pods as a kubelet and a scheduler read them: more of them than the controllers need, nothing else.

Structs like those of :mod:`app.kube.objects`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from app.kube.objects import (
    ContainerState,
    ObjectMeta,
    PodCondition,
    PodReadinessGate,
    Struct,
    decoder,
)


class ConfigMapKeySelector(Struct, frozen=True):
    """One key of a ConfigMap."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvVarSource(Struct, frozen=True):
    """Where an env value comes from, as far as a container waits for it."""

    config_map_key_ref: ConfigMapKeySelector | None = None


class EnvVar(Struct, frozen=True):
    """One env entry."""

    name: str = ""
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(Struct, frozen=True):
    """All keys of a ConfigMap."""

    name: str = ""
    optional: bool = False


class EnvFromSource(Struct, frozen=True):
    """A source of several env entries."""

    config_map_ref: ConfigMapEnvSource | None = None


class Container(Struct, frozen=True):
    """A container as the kubelet starts it."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    resources: dict[str, Any] = msgspec.field(default_factory=dict)


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


class NodeAffinity(Struct, frozen=True):
    """Which nodes a Pod must run on."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, frozen=True):
    """The part of affinity that is about nodes."""

    node_affinity: NodeAffinity | None = None


class Toleration(Struct, frozen=True):
    """A taint the Pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PodSpec(Struct, frozen=True):
    """What was asked of a Pod."""

    node_name: str = ""
    restart_policy: str = "Always"
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[dict[str, str], ...] = ()


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


class PodStatus(Struct, frozen=True):
    """What the kubelet reports about a Pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: datetime | None = None
    observed_generation: int = 0
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


decode_pod = decoder(Pod)
