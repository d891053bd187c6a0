"""The fields of ContainerRecreateRequest: what users write and what kubectl explains.

v1alpha1 has two annotations for what v1beta1 has in its status, and a looser schema.
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
"""Condition of a request, and its reason: since when the Pod is not ready because of it."""

_LABEL_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NOT_NEGATIVE: Final = minimum(0)


class StatusContext(ApiModel):
    """The container that the request is about."""

    container_id: str = Field(alias="containerID")
    """Its id when the request was made."""
    restart_count: Int32
    """How often it had been restarted by then."""


class RecreateContainer(ApiModel):
    """One container to restart. Give only its name; the rest is filled in from the Pod."""

    name: str
    """The container's name in the Pod."""
    pre_stop: LifecycleHandler | None = None
    """Filled in: what is done before it is stopped."""
    ports: list[ContainerPort] | None = None
    """Filled in: its ports, if the hook may need them."""
    status_context: StatusContext | None = None
    """Filled in: the container that the request is about."""


class RecreateStrategyV1Alpha1(ApiModel):
    """How the containers are restarted."""

    failure_policy: str = ""
    """Fail (the default): the request ends with the first container that cannot be stopped. Ignore: it goes on."""
    ordered_recreate: bool = False
    """Whether a container is stopped only when the one before it runs again. Otherwise they are stopped one after the
    other, without waiting."""
    force_recreate: bool = False
    """Whether containers that were restarted in the meantime are restarted once more."""
    termination_grace_period_seconds: Int64 | None = None
    """How long a container may take to end, in seconds; as long as the Pod says by default, 2 at least."""
    unready_grace_period_seconds: Int64 | None = None
    """How long the Pod is not ready before its containers are stopped, in seconds, so that traffic can move away. The
    Pod needs the readiness gate KruisePodReady for that."""
    min_started_seconds: Int32 = 0
    """How long a new container must have run, in seconds, before it counts as recreated; 0 by default."""


class RecreateStrategy(RecreateStrategyV1Alpha1):
    """How the containers are restarted."""

    failure_policy: Annotated[str, enum(*FAILURE_POLICIES)] = ""
    """Fail (the default): the request ends with the first container that cannot be stopped. Ignore: it goes on."""
    termination_grace_period_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """How long a container may take to end, in seconds; as long as the Pod says by default, 2 at least."""
    unready_grace_period_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """How long the Pod is not ready before its containers are stopped, in seconds, so that traffic can move away. The
    Pod needs the readiness gate KruisePodReady for that."""
    min_started_seconds: Annotated[Int32, _NOT_NEGATIVE] = 0
    """How long a new container must have run, in seconds, before it counts as recreated; 0 by default."""


class ContainerRecreateRequestV1Alpha1Spec(ApiModel):
    """Which containers to restart, and how. Cannot be changed."""

    pod_name: str
    """The Pod, in the namespace of the request."""
    containers: list[RecreateContainer]
    """The containers, in the order they are restarted in."""
    strategy: RecreateStrategyV1Alpha1 | None = None
    """How they are restarted."""
    active_deadline_seconds: Int64 | None = None
    """After how many seconds the request ends in any case, 3 at least; no limit by default."""
    ttl_seconds_after_finished: Int32 | None = None
    """How long the request is kept after its end, in seconds. Kept for ever by default."""


class ContainerRecreateRequestSpec(ContainerRecreateRequestV1Alpha1Spec):
    """Which containers to restart, and how. Cannot be changed."""

    strategy: RecreateStrategy | None = None
    """How they are restarted."""
    active_deadline_seconds: Annotated[Int64 | None, _NOT_NEGATIVE] = None
    """After how many seconds the request ends in any case, 3 at least; no limit by default."""
    ttl_seconds_after_finished: Annotated[Int32 | None, _NOT_NEGATIVE] = None
    """How long the request is kept after its end, in seconds. Kept for ever by default."""


class ContainerRecreateStateV1Alpha1(ApiModel):
    """How far one container has come."""

    name: str
    """The container's name."""
    phase: str
    """Pending, Recreating, Succeeded or Failed."""
    message: str = ""
    """Why it failed, or what it waits for."""
    is_killed: bool = False
    """Whether this request has stopped it."""


class ContainerRecreateState(ContainerRecreateStateV1Alpha1):
    """How far one container has come."""

    phase: Annotated[str, enum(*PHASES)]
    """Pending, Recreating, Succeeded or Failed."""


class ContainerSnapshot(ApiModel):
    """What the Pod's status says about one container."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"ready", "restart_count"})

    name: str
    """The container's name."""
    ready: bool = False
    """Whether it is ready."""
    restart_count: Int32 = 0
    """How often it has been restarted."""
    container_id: str = Field(default="", alias="containerID")
    """Its id."""


class Condition(ApiModel):
    """One aspect of how the request is."""

    type: Annotated[str, Keywords({"maxLength": 316, "pattern": f"^({_SUBDOMAIN}/)?({_LABEL_NAME})$"})]
    """PreRecreateGrace: the Pod is not ready because of this request."""
    status: Annotated[str, enum("True", "False", "Unknown")]
    """True, False or Unknown."""
    observed_generation: Annotated[Int64, _NOT_NEGATIVE] = 0
    """The generation of the request this is about."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[
        str, Keywords({"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"})
    ]
    """Why, in one word."""
    message: Annotated[str, Keywords({"maxLength": 32768})]
    """Why, in a sentence."""


class _Status(ApiModel):
    """What both versions of the status say in the same words."""

    completion_time: Time = ""
    """When it ended."""
    message: str = ""
    """Why it ended early."""


class ContainerRecreateRequestV1Alpha1Status(_Status):
    """How far the request has come."""

    phase: str
    """Pending, Recreating or Completed."""
    container_recreate_states: list[ContainerRecreateStateV1Alpha1] | None = None
    """How far each container has come."""


class ContainerRecreateRequestStatus(_Status):
    """How far the request has come."""

    phase: Annotated[str, enum(*PHASES)]
    """Pending, Recreating or Completed."""
    container_recreate_states: list[ContainerRecreateState] | None = None
    """How far each container has come."""
    container_status_snapshot: list[ContainerSnapshot] | None = None
    """What the Pod's status says about containers that started after the request was made."""
    conditions: Annotated[list[Condition] | None, Keywords({LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]})] = None
    """Aspects of how the request is."""


class ContainerRecreateRequest(KubeObject):
    """ContainerRecreateRequest restarts containers of a running Pod; the Pod itself stays."""

    spec: ContainerRecreateRequestSpec
    """What is wanted."""
    status: ContainerRecreateRequestStatus | None = None
    """What is observed."""


class ContainerRecreateRequestV1Alpha1(KubeObject):
    """ContainerRecreateRequest restarts containers of a running Pod; the Pod itself stays."""

    spec: ContainerRecreateRequestV1Alpha1Spec
    """What is wanted."""
    status: ContainerRecreateRequestV1Alpha1Status | None = None
    """What is observed."""
