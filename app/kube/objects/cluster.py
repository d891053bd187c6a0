"""Nodes, namespaces, configuration, leases and events."""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.kube.objects.base import ObjectMeta, Struct, decoder


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
