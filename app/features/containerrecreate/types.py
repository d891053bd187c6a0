"""API types of ContainerRecreateRequest.

v1alpha1 has a looser schema, and two annotations in place of v1beta1 status fields.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from app.api.fields import ContainerPort, LifecycleHandler
from app.api.model import LIST_MAP_KEYS, LIST_TYPE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, Keywords, Time, enum, minimum

FAIL: Final = "Fail"
IGNORE: Final = "Ignore"
FAILURE_POLICIES: Final = (FAIL, IGNORE)
PENDING: Final = "Pending"
RECREATING: Final = "Recreating"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
COMPLETED: Final = "Completed"
PHASES: Final = (PENDING, RECREATING, SUCCEEDED, FAILED, COMPLETED)
PRE_RECREATE_GRACE: Final = "PreRecreateGrace"
"""Type and reason of the condition that records when the request took the Pod out of service."""

_LABEL_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NOT_NEGATIVE: Final = minimum(0)


class StatusContext(ApiModel):
    """StatusContext identifies the container instance to restart."""

    container_id: str = Field(alias="containerID")
    """ID of the container when the request was created."""
    restart_count: Int32
    """Container's restart count when the request was created."""


class RecreateContainer(ApiModel):
    """RecreateContainer is a container to restart. Set only its name; the other fields are filled in from the Pod."""

    name: str
    """Name of the container in the Pod."""
    pre_stop: LifecycleHandler | None = None
    """Hook to run before the container is stopped. Set by the webhook."""
    ports: list[ContainerPort] | None = None
    """Ports of the container, if the hook may need them. Set by the webhook."""
    status_context: StatusContext | None = None
    """Identifies the container instance to restart. Set by the webhook."""


class RecreateStrategyV1Alpha1(ApiModel):
    """RecreateStrategy defines how the containers are restarted."""

    failure_policy: str = ""
    """What happens if a container cannot be stopped. Fail (the default) ends the request; Ignore continues with the
    other containers."""
    ordered_recreate: bool = False
    """Stops a container only after the previous one is running again."""
    force_recreate: bool = False
    """Also restarts containers that have restarted since the request was created."""
    termination_grace_period_seconds: Int64 | None = None
    """Grace period of the containers in seconds, at least 2. Defaults to that of the Pod."""
    unready_grace_period_seconds: Int64 | None = None
    """Seconds between marking the Pod as not ready and stopping its containers. Requires the readiness gate
    KruisePodReady."""
    min_started_seconds: Int32 = 0
    """Seconds a new container must run before it counts as recreated. Defaults to 0."""


class RecreateStrategy(RecreateStrategyV1Alpha1):
    """RecreateStrategy defines how the containers are restarted."""

    failure_policy: Annotated[str, enum(*FAILURE_POLICIES)] = ""
    """What happens if a container cannot be stopped. Fail (the default) ends the request; Ignore continues with the
    other containers."""
    termination_grace_period_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """Grace period of the containers in seconds, at least 2. Defaults to that of the Pod."""
    unready_grace_period_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """Seconds between marking the Pod as not ready and stopping its containers. Requires the readiness gate
    KruisePodReady."""
    min_started_seconds: Annotated[Int32, _NOT_NEGATIVE] = 0
    """Seconds a new container must run before it counts as recreated. Defaults to 0."""


class ContainerRecreateRequestV1Alpha1Spec(ApiModel):
    """ContainerRecreateRequestSpec defines the containers to restart and the strategy. It is immutable."""

    pod_name: str
    """Name of a Pod in the namespace of the request."""
    containers: list[RecreateContainer]
    """Containers in the order in which they are restarted."""
    strategy: RecreateStrategyV1Alpha1 | None = None
    """How the containers are restarted."""
    active_deadline_seconds: Int64 | None = None
    """Seconds after which the request ends in any case; at least 3. Defaults to no limit."""
    ttl_seconds_after_finished: Int32 | None = None
    """Seconds to keep the request after it ends. Kept forever by default."""


class ContainerRecreateRequestSpec(ContainerRecreateRequestV1Alpha1Spec):
    """ContainerRecreateRequestSpec defines the containers to restart and the strategy. It is immutable."""

    strategy: RecreateStrategy | None = None
    """How the containers are restarted."""
    active_deadline_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """Seconds after which the request ends in any case; at least 3. Defaults to no limit."""
    ttl_seconds_after_finished: Annotated[Int32 | None, _NOT_NEGATIVE] = None
    """Seconds to keep the request after it ends. Kept forever by default."""


class ContainerRecreateStateV1Alpha1(ApiModel):
    """ContainerRecreateState is the progress of one container."""

    name: str
    """Name of the container."""
    phase: str
    """One of Pending, Recreating, Succeeded and Failed."""
    message: str = ""
    """Why the container failed or what it is waiting for."""
    is_killed: bool = False
    """Whether this request has stopped the container."""


class ContainerRecreateState(ContainerRecreateStateV1Alpha1):
    """ContainerRecreateState is the progress of one container."""

    phase: Annotated[str, enum(*PHASES)]
    """One of Pending, Recreating, Succeeded and Failed."""


class ContainerSnapshot(ApiModel):
    """ContainerSnapshot is a copy of one container's status in the Pod."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"ready", "restart_count"})

    name: str
    """Name of the container."""
    ready: bool = False
    """Whether the container is ready."""
    restart_count: Int32 = 0
    """Restart count of the container."""
    container_id: str = Field(default="", alias="containerID")
    """ID of the container."""


class Condition(ApiModel):
    """Condition describes one aspect of the request's state."""

    type: Annotated[str, Keywords({"maxLength": 316, "pattern": f"^({_SUBDOMAIN}/)?({_LABEL_NAME})$"})]
    """Type of the condition. PreRecreateGrace means that the request keeps the Pod not ready."""
    status: Annotated[str, enum("True", "False", "Unknown")]
    """One of True, False and Unknown."""
    observed_generation: Annotated[Int64, _NOT_NEGATIVE] = 0
    """Generation this condition refers to."""
    last_transition_time: Time
    """Last time the status changed."""
    reason: Annotated[
        str, Keywords({"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"})
    ]
    """One-word CamelCase reason."""
    message: Annotated[str, Keywords({"maxLength": 32768})]
    """Human-readable message."""


class _Status(ApiModel):
    """Status fields that both versions share."""

    completion_time: Time = ""
    """Time the request ended."""
    message: str = ""
    """Why the request ended early."""


class ContainerRecreateRequestV1Alpha1Status(_Status):
    """ContainerRecreateRequestStatus is the observed state of a ContainerRecreateRequest."""

    phase: str
    """One of Pending, Recreating and Completed."""
    container_recreate_states: list[ContainerRecreateStateV1Alpha1] | None = None
    """Progress of each container."""


class ContainerRecreateRequestStatus(_Status):
    """ContainerRecreateRequestStatus is the observed state of a ContainerRecreateRequest."""

    phase: Annotated[str, enum(*PHASES)]
    """One of Pending, Recreating and Completed."""
    container_recreate_states: list[ContainerRecreateState] | None = None
    """Progress of each container."""
    container_status_snapshot: list[ContainerSnapshot] | None = None
    """Copies of the statuses of containers that started after the request was created."""
    conditions: Annotated[list[Condition] | None, Keywords({LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]})] = None
    """Current state of the request."""


class ContainerRecreateRequest(KubeObject):
    """ContainerRecreateRequest restarts containers of a running Pod without recreating the Pod."""

    spec: ContainerRecreateRequestSpec
    """Desired state of the ContainerRecreateRequest."""
    status: ContainerRecreateRequestStatus | None = None
    """Observed state of the ContainerRecreateRequest."""


class ContainerRecreateRequestV1Alpha1(KubeObject):
    """ContainerRecreateRequest restarts containers of a running Pod without recreating the Pod."""

    spec: ContainerRecreateRequestV1Alpha1Spec
    """Desired state of the ContainerRecreateRequest."""
    status: ContainerRecreateRequestV1Alpha1Status | None = None
    """Observed state of the ContainerRecreateRequest."""
