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

#: Containers, without a schema of their fields.
Containers = Annotated[list[dict[str, Any]], Keywords({"items": {"type": "object", PRESERVE: True}})]


class EphemeralTemplate(ApiModel):
    """EphemeralTemplate defines the containers to add to each Pod."""

    ephemeral_containers: Containers
    """ephemeralContainers are the containers to add. imagePullPolicy and terminationMessagePolicy are required."""


class EphemeralJobSpec(ApiModel):
    """EphemeralJobSpec defines the Pods to target and the containers to add."""

    selector: LabelSelector
    """selector is a label query over the Pods of the job's namespace."""
    replicas: Int32 | None = None
    """replicas is the maximum number of Pods to target. Defaults to all matching Pods."""
    parallelism: Int32 | None = None
    """parallelism is the maximum number of Pods with running containers at any time. Defaults to 1."""
    template: EphemeralTemplate
    """template defines the containers to add to each Pod."""
    paused: bool = False
    """paused stops adding containers until it is set to false."""
    active_deadline_seconds: Int64 | None = None
    """activeDeadlineSeconds is the number of seconds after which the job fails, unless it is paused. Defaults to
    no limit."""
    ttl_seconds_after_finished: Int32 | None = None
    """ttlSecondsAfterFinished is the number of seconds the job is kept after it ends. 0 deletes it immediately.
    Defaults to 1800."""


class EphemeralJobCondition(ApiModel):
    """EphemeralJobCondition describes an event in the life of the job."""

    type: str
    """type is one of Initialized, MatchedEmpty, JobSucceeded, JobFailed and JobError."""
    status: str
    """status is always True."""
    last_probe_time: Time = ""
    """lastProbeTime is the last time the condition was checked."""
    last_transition_time: Time = ""
    """lastTransitionTime is the time the condition became true."""
    reason: str = ""
    """reason is a one-word CamelCase reason."""
    message: str = ""
    """message is a human-readable message."""


class EphemeralJobStatus(ApiModel):
    """EphemeralJobStatus is the observed state of an EphemeralJob."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"match", "running", "succeeded", "waiting", "failed"})
    always_required: ClassVar[bool] = False

    conditions: list[EphemeralJobCondition] | None = None
    """conditions describe the events in the life of the job."""
    start_time: Time = ""
    """startTime is the time the job was first processed."""
    completion_time: Time = ""
    """completionTime is the time the job ended."""
    phase: str = ""
    """phase is one of Waiting, Running, Succeeded, Failed, Paused, Error and Unknown."""
    match: Int32 = 0
    """match is the number of targeted Pods."""
    running: Int32 = 0
    """running is the number of Pods in which a container is running."""
    succeeded: Int32 = 0
    """succeeded is the number of Pods in which all containers succeeded."""
    waiting: Int32 = 0
    """waiting is the number of Pods in which a container is waiting to start."""
    failed: Int32 = 0
    """failed is the number of Pods in which a container failed."""


class EphemeralJob(KubeObject):
    """EphemeralJob adds ephemeral containers to running Pods."""

    spec: EphemeralJobSpec
    """Desired state of the EphemeralJob."""
    status: EphemeralJobStatus | None = None
    """Observed state of the EphemeralJob."""
