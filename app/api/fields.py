"""Fields shared by several kinds: handlers, scheduling, lifecycle, references, in-place updates, update order."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.model import LIST_TYPE, MAP_TYPE, ApiModel, Schema
from app.api.schema import Int32, Int64, IntOrString, Keywords, LabelSelector, schema_default
from app.kube.fielderrors import GoLiteral, quote
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector

_ATOMIC = Keywords({LIST_TYPE: "atomic"})


class ExecAction(ApiModel):
    """ExecAction describes a command that is run inside the container."""

    command: Annotated[list[str] | None, _ATOMIC] = None
    """The command line to run inside the container. It is not run in a shell. Exit status 0 means success."""


class HttpHeader(ApiModel):
    """HTTPHeader describes a custom header of an HTTP request."""

    name: str
    """Name of the header."""
    value: str
    """Value of the header."""


class HttpGetAction(ApiModel):
    """HTTPGetAction describes an HTTP GET request. A status code from 200 to 399 means success."""

    host: str = ""
    """Host name to connect to. Defaults to the Pod IP."""
    http_headers: Annotated[list[HttpHeader] | None, _ATOMIC] = None
    """Custom headers of the request. HTTP allows repeated headers."""
    path: str = ""
    """Path of the HTTP request."""
    port: IntOrString
    """Name or number of the container port to connect to."""
    scheme: str = ""
    """Scheme used to connect to the host: HTTP or HTTPS. Defaults to HTTP. Certificates are not verified."""


class TcpSocketAction(ApiModel):
    """TCPSocketAction describes opening a TCP connection. An established connection means success."""

    host: str = ""
    """Host name to connect to. Defaults to the Pod IP."""
    port: IntOrString
    """Name or number of the container port to connect to."""


class GrpcAction(ApiModel):
    """GRPCAction describes a gRPC health check."""

    port: Int32
    """Port number of the gRPC service."""
    service: Annotated[str, schema_default("")] = ""
    """Name of the service in the gRPC HealthCheckRequest."""


class SleepAction(ApiModel):
    """SleepAction describes a sleep."""

    seconds: Int64
    """Seconds to sleep."""


class ContainerPort(ApiModel):
    """ContainerPort represents a network port of a container."""

    container_port: Int32
    """Number of the port to expose on the Pod IP."""
    host_ip: str = Field(default="", alias="hostIP")
    """Host IP to bind the port to."""
    host_port: Int32 = 0
    """Number of the port to expose on the host."""
    name: str = ""
    """Name of the port, unique within the Pod, by which it can be referred to."""
    protocol: Annotated[str, schema_default("TCP")] = ""
    """Protocol of the port: TCP, UDP or SCTP."""


class _Handlers(ApiModel):
    """Fields common to probes and hooks."""

    exec: ExecAction | None = None
    """Command to run inside the container."""
    http_get: HttpGetAction | None = None
    """HTTP GET request to perform."""
    tcp_socket: TcpSocketAction | None = None
    """TCP connection to open."""


class LifecycleHandler(_Handlers):
    """LifecycleHandler defines an action to take before a container is stopped."""

    sleep: SleepAction | None = None
    """Sleep to perform."""


class Probe(_Handlers):
    """Probe describes a check of a container's health and how often it runs."""

    grpc: GrpcAction | None = None
    """Not supported; use another handler."""
    initial_delay_seconds: Int32 = 0
    """Seconds from the container's start to the first probe, at least 1."""
    timeout_seconds: Int32 = 0
    """Seconds after which the probe times out. Defaults to 1."""
    period_seconds: Int32 = 0
    """How often to run the probe, in seconds. Defaults to 1."""
    success_threshold: Int32 = 0
    """Number of consecutive successes after which the probe counts as succeeded. Defaults to 1."""
    failure_threshold: Int32 = 0
    """Number of consecutive failures after which the probe counts as failed. Defaults to 1."""
    termination_grace_period_seconds: Int64 | None = None
    """Not used: a failed probe of a PodProbeMarker does not stop containers."""


class NodeSelectorRequirement(ApiModel):
    """NodeSelectorRequirement contains a key, values, and an operator that relates them."""

    key: str
    """The label key or field that the requirement applies to."""
    operator: str
    """Relationship of the key to the values: In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: Annotated[list[str] | None, _ATOMIC] = None
    """Values of the requirement. Must not be empty for In and NotIn, must be empty for Exists and DoesNotExist, and
    must have a single integer for Gt and Lt."""


class NodeSelectorTerm(ApiModel):
    """NodeSelectorTerm contains requirements on a node, all of which must be met."""

    schema_keywords: ClassVar[Schema] = {MAP_TYPE: "atomic"}

    match_expressions: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's labels."""
    match_fields: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's fields."""


class PreferredSchedulingTerm(ApiModel):
    """PreferredSchedulingTerm describes preferred nodes and the weight of the preference."""

    weight: Int32
    """Weight of the preference, in the range 1-100."""
    preference: NodeSelectorTerm
    """Nodes that the preference selects."""


class Toleration(ApiModel):
    """Toleration allows the Pod to run on nodes with matching taints."""

    key: str = ""
    """Taint key that the toleration applies to. Empty, with operator Exists, matches all keys."""
    operator: str = ""
    """Relationship of the key to the value: Exists or Equal. Defaults to Equal."""
    value: str = ""
    """Taint value that the toleration matches. Must be empty if the operator is Exists."""
    effect: str = ""
    """Taint effect to match: NoSchedule, PreferNoSchedule or NoExecute. Empty matches all effects."""
    toleration_seconds: Int64 | None = None
    """Seconds a NoExecute taint is tolerated. By default, it is tolerated forever."""


class LifecycleHook(ApiModel):
    """LifecycleHook delays an action on a Pod by means of labels or finalizers that another component manages."""

    labels_handler: dict[str, str] | None = None
    """Labels with values that delay the action while the Pod has any or, for preNormal, until it has all of them."""
    finalizers_handler: list[str] | None = None
    """Finalizers that delay the action while the Pod has any of them or, for preNormal, until it has all of them."""
    mark_pod_not_ready: bool = False
    """Marks the Pod as not ready while the action is delayed (readiness gate KruisePodReady)."""


class Lifecycle(ApiModel):
    """Lifecycle contains the hooks of a Pod's lifecycle."""

    pre_delete: LifecycleHook | None = None
    """Hook that runs before the Pod is deleted."""
    in_place_update: LifecycleHook | None = None
    """Hook that runs before and after the Pod is updated in place."""
    pre_normal: LifecycleHook | None = None
    """Hook that runs after the Pod is created. The Pod is not available until the hook completes."""


class ObjectReference(ApiModel):
    """ObjectReference refers to another object."""

    schema_keywords: ClassVar[dict[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """API version of the object."""
    kind: str = ""
    """Kind of the object."""
    namespace: str = ""
    """Namespace of the object."""
    name: str = ""
    """Name of the object."""
    uid: str = ""
    """UID of the object."""
    resource_version: str = ""
    """Resource version of the object."""
    field_path: str = ""
    """Path of the referenced field within the object."""


class WorkloadReference(ApiModel):
    """WorkloadReference refers to a workload in the same namespace."""

    api_version: str
    """API version of the workload, such as apps/v1."""
    kind: str
    """Kind of the workload."""
    name: str
    """Name of the workload."""

    @property
    def group(self) -> str:
        """API group; '' for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.group, self.kind

    @property
    def identity(self) -> tuple[str, str, str]:
        """Group, kind and name. Equal for all references to a workload, regardless of the version."""
        return *self.group_kind, self.name

    def as_go(self) -> GoLiteral:
        """Return the reference as formatted in Go's error messages."""
        return GoLiteral(
            f"v1beta1.TargetReference{{APIVersion:{quote(self.api_version)}, Kind:{quote(self.kind)}, "
            f"Name:{quote(self.name)}}}"
        )


RECREATE: Final = "ReCreate"
IN_PLACE_IF_POSSIBLE: Final = "InPlaceIfPossible"
IN_PLACE_ONLY: Final = "InPlaceOnly"
POD_UPDATE_POLICIES: Final = (RECREATE, IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
IN_PLACE_POLICIES: Final = (IN_PLACE_IF_POSSIBLE, IN_PLACE_ONLY)
ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
#: Volume claim update strategy: resize a StatefulSet's claims when its Pods are updated.
ON_POD_ROLLING_UPDATE: Final = "OnPodRollingUpdate"
UPDATE_TYPES: Final = (ROLLING_UPDATE, ON_DELETE)


class InPlaceUpdateStrategy(ApiModel):
    """InPlaceUpdateStrategy defines how Pods are updated in place."""

    grace_period_seconds: Int32 = 0
    """Seconds to keep the Pod not ready before its containers are updated."""
    image_pre_download_parallelism: IntOrString | None = None
    """Number of nodes that pull new images in parallel ahead of the update. Defaults to 1."""
    image_pre_download_timeout_seconds: Int32 | None = None
    """Timeout in seconds of each image pull ahead of the update. Defaults to 300."""
    image_pre_download_min_updated_ready_pods: Int32 | None = None
    """Number of updated Pods that must be ready before images are pulled for the rest. Defaults to 0."""


class InPlaceUpdateStrategyV1Alpha1(InPlaceUpdateStrategy):
    """InPlaceUpdateStrategy defines how Pods are updated in place."""

    image_pre_download_parallelism: IntOrString | None = None
    """Ignored; use the annotation apps.kruise.io/image-predownload-parallelism."""
    image_pre_download_timeout_seconds: Int32 | None = None
    """Ignored; use the annotation apps.kruise.io/image-predownload-timeout-seconds."""
    image_pre_download_min_updated_ready_pods: Int32 | None = None
    """Ignored; use the annotation apps.kruise.io/image-predownload-min-updated-ready-pods."""


# The update order of a workload's Pods: priorityStrategy and scatterStrategy, shared by several kinds. [PM-6, PM-7,
# SS-25]


class WeightPriorityTerm(ApiModel):
    """WeightPriorityTerm adds a weight to the Pods that match a selector."""

    weight: Int32
    """Weight of matching Pods, in the range 0-100. Weights of several terms add up; heavier Pods are updated first."""
    match_selector: LabelSelector
    """Selects the Pods that the term applies to."""


class OrderPriorityTerm(ApiModel):
    """OrderPriorityTerm orders Pods by the number at the end of a label value."""

    ordered_key: str
    """Key of the label. Pods with larger numbers are updated first; Pods with none of the strategy's keys are updated
    before all others."""


class UpdatePriorityStrategy(ApiModel):
    """UpdatePriorityStrategy defines which Pods are updated first: by weight or by order, but not both."""

    order_priority: list[OrderPriorityTerm] | None = None
    """Label keys whose values end in a number. Earlier terms take precedence."""
    weight_priority: list[WeightPriorityTerm] | None = None
    """Weights of Pods, by selector."""


class UpdateScatterTerm(ApiModel):
    """UpdateScatterTerm spreads the Pods with a label evenly over the update."""

    key: str
    """Key of the label."""
    value: str
    """Value of the label. In a SidecarSet, `*` matches every value."""


#: Maximum number of terms in a strategy: controllers match every Pod of a workload against each of them.
MAX_TERMS: Final = 256
#: Maximum number of requirements in the selectors of all terms.
MAX_REQUIREMENTS: Final = 1_000


def priority_error(strategy: dict[str, Any] | None) -> str:
    """Return the first error of a JSON priorityStrategy, with OpenKruise's message, or ''. [PM-6]"""
    strategy = strategy or {}
    weights, orders = strategy.get("weightPriority") or [], strategy.get("orderPriority") or []
    if len(weights) + len(orders) > MAX_TERMS:
        return f"must have at most {MAX_TERMS} terms"
    if weights and orders:
        return "only one of weightPriority and orderPriority can be used"
    requirements = 0
    for term in weights:
        if not 0 <= (term.get("weight") or 0) <= 100:
            return "weight must be valid number in the range 1-100"
        selector = term.get("matchSelector") or {}
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return "selector can not be empty"
        try:
            requirements += len(compile_selector(selector).requirements)
        except SelectorError as error:
            return f"invalid selector {error}"
        if requirements > MAX_REQUIREMENTS:
            return f"must have at most {MAX_REQUIREMENTS} requirements in the selectors of all terms"
    return "" if all(term.get("orderedKey") for term in orders) else "order key can not be empty"


def scatter_error(terms: list[dict[str, Any]] | None) -> str:
    """Return the first error of a JSON scatterStrategy, or ''. [PM-7]"""
    if len(terms or ()) > MAX_TERMS:
        return f"must have at most {MAX_TERMS} terms"
    seen: set[tuple[str, str]] = set()
    for term in terms or []:
        key, value = term.get("key") or "", term.get("value") or ""
        if not key:
            return "key should not be empty"
        if (key, value) in seen:
            return f"duplicated key={key} value={value}"
        seen.add((key, value))
    return ""
