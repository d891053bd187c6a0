"""The fields of BroadcastJob: what users write and what kubectl explains. Both versions say the same."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, Int64, IntOrString, RawObject, Time

ALWAYS: Final = "Always"
NEVER: Final = "Never"
COMPLETION_TYPES: Final = (ALWAYS, NEVER)
CONTINUE: Final = "Continue"
FAIL_FAST: Final = "FailFast"
PAUSE: Final = "Pause"
FAILURE_TYPES: Final = (CONTINUE, FAIL_FAST, PAUSE)

RUNNING: Final = "running"
PAUSED: Final = "paused"
COMPLETED: Final = "completed"
FAILED: Final = "failed"


class CompletionPolicy(ApiModel):
    """When the job has ended."""

    type: str = ""
    """Always (the default): when every matching node has been served. Never: it goes on, for nodes that come later
    too."""
    active_deadline_seconds: Int64 | None = None
    """With Always: after how many seconds the job fails and its running Pods are deleted; no limit by default."""
    ttl_seconds_after_finished: Int32 | None = None
    """With Always: how long the job is kept after its end, in seconds; 0 deletes it at once. Kept for ever by
    default."""
    backoff_limit: Int32 | None = None
    """Deprecated: the same as failurePolicy.restartLimit, which wins where both are set."""


class FailurePolicy(ApiModel):
    """What happens when a Pod fails."""

    type: str = ""
    """FailFast (the default) fails the job and deletes its running Pods. Continue goes on to other nodes. Pause stops
    creating Pods until paused is set to false."""
    restart_limit: Int32 = 0
    """With restartPolicy OnFailure: how often the containers of one Pod may be restarted before it counts as failed; 0
    by default."""


class BroadcastJobSpec(ApiModel):
    """What runs, on how many nodes at once, and when the job has ended."""

    parallelism: IntOrString | None = None
    """On how many nodes at once, as a number or a percentage of the matching nodes (rounded up); on all by default."""
    template: RawObject
    """What a Pod is made from: the metadata and spec of a Pod. restartPolicy must be Never or OnFailure."""
    completion_policy: CompletionPolicy = Field(default_factory=CompletionPolicy)
    """When the job has ended."""
    paused: bool = False
    """Stops the job until it is set to false again; Pods that run go on."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    """What happens when a Pod fails."""


class JobCondition(ApiModel):
    """How the job ended."""

    type: str
    """Complete or Failed."""
    status: str
    """True, False or Unknown."""
    last_probe_time: Time = ""
    """When it was last looked at."""
    last_transition_time: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""


class BroadcastJobStatus(ApiModel):
    """How far the job has come."""

    always_serialised: ClassVar[frozenset[str]] = frozenset({"active", "succeeded", "failed", "desired"})
    always_required: ClassVar[bool] = False

    conditions: list[JobCondition] | None = None
    """How the job ended; empty as long as it goes on."""
    start_time: Time = ""
    """When the job was first worked on."""
    completion_time: Time = ""
    """When it ended."""
    active: Int32 = 0
    """Pods that run or are about to."""
    succeeded: Int32 = 0
    """Pods that have succeeded."""
    failed: Int32 = 0
    """Pods that have failed."""
    desired: Int32 = 0
    """Nodes that match."""
    phase: str = ""
    """running, paused, completed or failed."""


class BroadcastJob(KubeObject):
    """BroadcastJob runs one Pod to its end on every node that matches."""

    spec: BroadcastJobSpec
    """What is wanted."""
    status: BroadcastJobStatus | None = None
    """What is."""
