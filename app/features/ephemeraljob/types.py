"""The fields of EphemeralJob: what users write and what kubectl explains."""

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

#: Containers whose fields the schema does not name.
Containers = Annotated[list[dict[str, Any]], Keywords({"items": {"type": "object", PRESERVE: True}})]


class EphemeralTemplate(ApiModel):
    """What is put into each Pod."""

    ephemeral_containers: Containers
    """The containers, as in a Pod; imagePullPolicy and terminationMessagePolicy must be given."""


class EphemeralJobSpec(ApiModel):
    """Which Pods, and what is put into them."""

    selector: LabelSelector
    """The Pods, of the job's namespace, by labels."""
    replicas: Int32 | None = None
    """How many of them at the most; all by default."""
    parallelism: Int32 | None = None
    """In how many of them containers run at once; 1 by default."""
    template: EphemeralTemplate
    """What is put into each Pod."""
    paused: bool = False
    """Puts nothing into further Pods until it is set to false again."""
    active_deadline_seconds: Int64 | None = None
    """After how many seconds the job fails, unless it is paused then; no limit by default."""
    ttl_seconds_after_finished: Int32 | None = None
    """How long the job is kept after its end, in seconds; 1800 by default, 0 deletes it at once."""


class EphemeralJobCondition(ApiModel):
    """Something that happened to the job."""

    type: str
    """Initialized, MatchedEmpty, JobSucceeded, JobFailed or JobError."""
    status: str
    """True."""
    last_probe_time: Time = ""
    """When it was last looked at."""
    last_transition_time: Time = ""
    """When it happened."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class EphemeralJobStatus(ApiModel):
    """How far the job has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"match", "running", "succeeded", "waiting", "failed"})
    always_required: ClassVar[bool] = False

    conditions: list[EphemeralJobCondition] | None = None
    """What happened to the job."""
    start_time: Time = ""
    """When the job was first worked on."""
    completion_time: Time = ""
    """When it ended."""
    phase: str = ""
    """Waiting, Running, Succeeded, Failed, Paused, Error or Unknown."""
    match: Int32 = 0
    """Pods that are meant."""
    running: Int32 = 0
    """Pods in which a container runs."""
    succeeded: Int32 = 0
    """Pods in which all containers ended well."""
    waiting: Int32 = 0
    """Pods in which a container is about to start."""
    failed: Int32 = 0
    """Pods in which a container failed."""


class EphemeralJob(KubeObject):
    """EphemeralJob puts ephemeral containers into running Pods."""

    spec: EphemeralJobSpec
    """What is wanted."""
    status: EphemeralJobStatus | None = None
    """What is."""
