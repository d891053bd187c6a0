"""API types of EphemeralJob."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from app.api.model import PRESERVE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, Keywords, LabelSelector, Time

WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
PAUSED: Final = "Paused"
ERROR: Final = "Error"
UNKNOWN: Final = "Unknown"

#: Containers, without a schema for their fields.
Containers = Annotated[list[dict[str, Any]], Keywords({"items": {"type": "object", PRESERVE: True}})]


class EphemeralTemplate(ApiModel):
    """EphemeralTemplate defines the containers to add to each Pod."""

    ephemeral_containers: Containers
    """Containers to add. imagePullPolicy and terminationMessagePolicy are required."""


class EphemeralJobSpec(ApiModel):
    """EphemeralJobSpec defines the Pods to target and the containers to add."""

    selector: LabelSelector
    """Label query over the Pods in the job's namespace."""
    replicas: Int32 | None = None
    """Maximum number of Pods to target. Defaults to all matching Pods."""
    parallelism: Int32 | None = None
    """Maximum number of Pods in which the job's containers are waiting or running at any time. Defaults to 1."""
    template: EphemeralTemplate
    """Containers to add to each Pod."""
    paused: bool = False
    """Stops adding containers until it is set to false."""
    active_deadline_seconds: Int64 | None = None
    """Seconds after which the job fails, unless it is paused. Defaults to no limit."""
    ttl_seconds_after_finished: Int32 | None = None
    """Seconds to keep the job after it ends. Defaults to 1800."""


class EphemeralJobCondition(ApiModel):
    """EphemeralJobCondition describes an event in the life of the job."""

    type: str
    """One of Initialized, MatchedEmpty, JobSucceeded, JobFailed and JobError."""
    status: str
    """Always True."""
    last_probe_time: Time = ""
    """Last time the condition was checked."""
    last_transition_time: Time = ""
    """Time the condition became true."""
    reason: str = ""
    """One-word CamelCase reason."""
    message: str = ""
    """Human-readable message."""


class EphemeralJobStatus(ApiModel):
    """EphemeralJobStatus is the observed state of an EphemeralJob."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"match", "running", "succeeded", "waiting", "failed"})
    always_required: ClassVar[bool] = False

    conditions: list[EphemeralJobCondition] | None = None
    """Events in the life of the job."""
    start_time: Time = ""
    """Time the job was first processed."""
    completion_time: Time = ""
    """Time the job ended."""
    phase: str = ""
    """One of Waiting, Running, Succeeded, Failed, Paused, Error and Unknown."""
    match: Int32 = 0
    """Number of targeted Pods."""
    running: Int32 = 0
    """Number of Pods in which a container is running."""
    succeeded: Int32 = 0
    """Number of Pods in which all containers succeeded."""
    waiting: Int32 = 0
    """Number of Pods in which a container is waiting to start."""
    failed: Int32 = 0
    """Number of Pods in which a container failed."""


class EphemeralJob(KubeObject):
    """EphemeralJob adds ephemeral containers to running Pods."""

    spec: EphemeralJobSpec
    """Desired state of the EphemeralJob."""
    status: EphemeralJobStatus | None = None
    """Observed state of the EphemeralJob."""
