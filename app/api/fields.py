"""Groups of fields that several kinds share: handlers, scheduling, lifecycle, in-place updates, update order."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.model import LIST_TYPE, MAP_TYPE, ApiModel, Schema
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, schema_default
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector

_ATOMIC = Keywords({LIST_TYPE: "atomic"})


class ExecAction(ApiModel):
    """A command that runs inside the container."""

    command: Annotated[list[str] | None, _ATOMIC] = None
    """The command and its arguments, started as they stand, without a shell. Exit code 0 is success."""


class HttpHeader(ApiModel):
    """One header of a request."""

    name: str
    """The header's name."""
    value: str
    """The header's value."""


class HttpGetAction(ApiModel):
    """A GET request. Every answer from 200 up to 399 is success."""

    host: str = ""
    """The host to connect to; the Pod's own address by default."""
    http_headers: Annotated[list[HttpHeader] | None, _ATOMIC] = None
    """Headers of the request. Names may repeat."""
    path: str = ""
    """The path to ask for."""
    port: IntOrString
    """The port to connect to: its number, or its name among the container's ports."""
    scheme: str = ""
    """HTTP (the default) or HTTPS; the certificate is not verified."""


class TcpSocketAction(ApiModel):
    """A connection that is opened and closed. That it can be opened is success."""

    host: str = ""
    """The host to connect to; the Pod's own address by default."""
    port: IntOrString
    """The port to connect to: its number, or its name among the container's ports."""


class GrpcAction(ApiModel):
    """A gRPC health check."""

    port: Int32
    """The port of the gRPC service."""
    service: Annotated[str, schema_default("")] = ""
    """The service to ask about."""


class SleepAction(ApiModel):
    """A wait."""

    seconds: Int64
    """How long to wait, in seconds."""


class ContainerPort(ApiModel):
    """One port of a container."""

    container_port: Int32
    """The number of the port."""
    host_ip: str = Field(default="", alias="hostIP")
    """The address on the node it is bound to."""
    host_port: Int32 = 0
    """The port on the node it is bound to."""
    name: str = ""
    """The name by which it can be referred to."""
    protocol: Annotated[str, schema_default("TCP")] = ""
    """TCP, UDP or SCTP."""


class _Handlers(ApiModel):
    """What probes and hooks have in common."""

    exec: ExecAction | None = None
    """Runs a command inside the container."""
    http_get: HttpGetAction | None = None
    """Sends a GET request."""
    tcp_socket: TcpSocketAction | None = None
    """Opens a connection."""


class LifecycleHandler(_Handlers):
    """What is done before a container is stopped."""

    sleep: SleepAction | None = None
    """Waits."""


class Probe(_Handlers):
    """What is done to find out how a container is, and how often."""

    grpc: GrpcAction | None = None
    """Not supported: use one of the others."""
    initial_delay_seconds: Int32 = 0
    """How long after the container's start the first probe runs, in seconds; 1 at least."""
    timeout_seconds: Int32 = 0
    """After how many seconds a probe has failed; 1 by default."""
    period_seconds: Int32 = 0
    """How often the probe runs, in seconds; 1 by default."""
    success_threshold: Int32 = 0
    """How many successes in a row change the result; 1 by default."""
    failure_threshold: Int32 = 0
    """How many failures in a row change the result; 1 by default."""
    termination_grace_period_seconds: Int64 | None = None
    """Not used: a failed probe of this kind stops no container."""


class NodeSelectorRequirement(ApiModel):
    """A key, an operator, and values that relate them."""

    key: str
    """The label key, or field, the requirement applies to."""
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: Annotated[list[str] | None, _ATOMIC] = None
    """With In and NotIn at least one value, with Exists and DoesNotExist none, with Gt and Lt one integer."""


class NodeSelectorTerm(ApiModel):
    """Requirements on a node, all of which must hold."""

    schema_keywords: ClassVar[Schema] = {MAP_TYPE: "atomic"}

    match_expressions: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's labels."""
    match_fields: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's fields."""


class PreferredSchedulingTerm(ApiModel):
    """Nodes that are preferred, and how much."""

    weight: Int32
    """How much, from 1 to 100."""
    preference: NodeSelectorTerm
    """Which nodes."""


class Toleration(ApiModel):
    """A taint of nodes that does not keep the Pod away."""

    key: str = ""
    """The taint's key; empty with operator Exists: all keys."""
    operator: str = ""
    """Exists or Equal, which is the default."""
    value: str = ""
    """The taint's value, for Equal."""
    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute; empty: all effects."""
    toleration_seconds: Int64 | None = None
    """For how long NoExecute is tolerated; for ever by default."""


class LifecycleHook(ApiModel):
    """Who wants to be asked before something happens to a Pod: whoever holds one of its finalizers or labels."""

    labels_handler: dict[str, str] | None = None
    """Labels that hold the Pod while it has them with these values."""
    finalizers_handler: list[str] | None = None
    """Finalizers that hold the Pod while it has them."""
    mark_pod_not_ready: bool = False
    """Takes the Pod out of service while it is held: it becomes not ready, by its readiness gate KruisePodReady."""


class Lifecycle(ApiModel):
    """Hooks at the turning points of a Pod's life."""

    pre_delete: LifecycleHook | None = None
    """Before the Pod is deleted."""
    in_place_update: LifecycleHook | None = None
    """Before the Pod is updated in place, and after it."""
    pre_normal: LifecycleHook | None = None
    """After the Pod was created, before it counts as available: it is held until it has all labels and finalizers."""


RECREATE: Final = "ReCreate"
IN_PLACE_IF_POSSIBLE: Final = "InPlaceIfPossible"
IN_PLACE_ONLY: Final = "InPlaceOnly"
POD_UPDATE_POLICIES: Final = (RECREATE, IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
IN_PLACE_POLICIES: Final = (IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
#: When the claims of a StatefulSet are resized: as its Pods are updated.
ON_POD_ROLLING_UPDATE: Final = "OnPodRollingUpdate"
UPDATE_TYPES: Final = (ROLLING_UPDATE, ON_DELETE)


class InPlaceUpdateStrategyV1Alpha1(ApiModel):
    """How Pods are updated in place."""

    grace_period_seconds: Int32 = 0
    """How long a Pod is not ready before its containers change, so that traffic can move away."""


class InPlaceUpdateStrategy(InPlaceUpdateStrategyV1Alpha1):
    """How Pods are updated in place."""

    image_pre_download_parallelism: IntOrString | None = None
    """On how many nodes at once new images are pulled ahead of the update; 1 by default."""
    image_pre_download_timeout_seconds: Int32 | None = None
    """How long one pull ahead of the update may take, in seconds; 300 by default."""
    image_pre_download_min_updated_ready_pods: Int32 | None = None
    """How many updated Pods must be ready before images are pulled ahead for the rest; 0 by default."""


# The order in which a workload's Pods are updated: priorityStrategy and scatterStrategy, shared by several kinds.
#
# Rules PM-6 and PM-7; SidecarSet's SS-25 is the same check.


class WeightPriorityTerm(ApiModel):
    """Pods that match the selector weigh this much more."""

    weight: Int32
    """What a matching Pod weighs, from 0 to 100; weights of several terms add up, and heavier Pods come first."""
    match_selector: LabelSelector
    """The Pods this term speaks of."""


class OrderPriorityTerm(ApiModel):
    """Pods that have this label are ordered by the number its value ends with."""

    ordered_key: str
    """The label key. Larger numbers come first; Pods with none of the keys come before all others."""


class UpdatePriorityStrategy(ApiModel):
    """Which Pods are updated first: by weight or by order, not both."""

    order_priority: list[OrderPriorityTerm] | None = None
    """Label keys whose values end in a number; earlier terms take precedence."""
    weight_priority: list[WeightPriorityTerm] | None = None
    """Weights for Pods by selector."""


class UpdateScatterTerm(ApiModel):
    """Pods with this label are spread over the whole update instead of being updated together."""

    key: str
    """The label key."""
    value: str
    """The label value; in a SidecarSet `*` stands for every value there is."""


def priority_error(strategy: dict[str, Any] | None) -> str:
    """PM-6: what is wrong with a priorityStrategy in its JSON form, or ''. The first mistake, as OpenKruise has it."""
    strategy = strategy or {}
    weights, orders = strategy.get("weightPriority") or [], strategy.get("orderPriority") or []
    if weights and orders:
        return "only one of weightPriority and orderPriority can be used"
    for term in weights:
        if not 0 <= (term.get("weight") or 0) <= 100:
            return "weight must be valid number in the range 1-100"
        selector = term.get("matchSelector") or {}
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return "selector can not be empty"
        try:
            compile_selector(selector)
        except SelectorError as error:
            return f"invalid selector {error}"
    return "" if all(term.get("orderedKey") for term in orders) else "order key can not be empty"


def scatter_error(terms: list[dict[str, Any]] | None) -> str:
    """PM-7: what is wrong with a scatterStrategy in its JSON form, or ''."""
    seen: set[tuple[str, str]] = set()
    for term in terms or []:
        key, value = term.get("key") or "", term.get("value") or ""
        if not key:
            return "key should not be empty"
        if (key, value) in seen:
            return f"duplicated key={key} value={value}"
        seen.add((key, value))
    return ""
