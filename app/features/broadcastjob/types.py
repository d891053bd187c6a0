"""API types of BroadcastJob. Both versions have the same fields."""

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
    """CompletionPolicy defines when the job ends."""

    type: str = ""
    """Always (the default) ends the job once all eligible nodes are served; Never also serves nodes added later."""
    active_deadline_seconds: Int64 | None = None
    """Seconds after which the job fails and its running Pods are deleted. Used only with type Always. Defaults to no
    limit."""
    ttl_seconds_after_finished: Int32 | None = None
    """Seconds to keep the job after it ends. Used only with type Always. By default, the job is kept forever."""
    backoff_limit: Int32 | None = None
    """Deprecated: use failurePolicy.restartLimit, which takes precedence if both are set."""


class FailurePolicy(ApiModel):
    """FailurePolicy defines what happens when a Pod fails."""

    type: str = ""
    """FailFast (the default) fails the job and deletes its running Pods, Continue serves other nodes, and Pause
    sets spec.paused."""
    restart_limit: Int32 = 0
    """Number of container restarts after which a Pod with restartPolicy OnFailure counts as failed. Defaults to 0."""


class BroadcastJobSpec(ApiModel):
    """BroadcastJobSpec defines the Pods to run, the parallelism and the policies."""

    parallelism: IntOrString | None = None
    """Maximum number or percentage (rounded up) of eligible nodes served at the same time. Defaults to all."""
    template: RawObject
    """Metadata and spec of the Pods. restartPolicy must be Never or OnFailure."""
    completion_policy: CompletionPolicy = Field(default_factory=CompletionPolicy)
    """Defines when the job ends."""
    paused: bool = False
    """Stops creating Pods until it is set to false. Running Pods continue."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    """What happens when a Pod fails."""


class JobCondition(ApiModel):
    """JobCondition describes how the job ended."""

    type: str
    """Complete or Failed."""
    status: str
    """One of True, False and Unknown."""
    last_probe_time: Time = ""
    """Last time the condition was checked."""
    last_transition_time: Time = ""
    """Last time the status changed."""
    reason: str = ""
    """One-word CamelCase reason."""
    message: str = ""
    """Human-readable message."""


class BroadcastJobStatus(ApiModel):
    """BroadcastJobStatus is the observed state of a BroadcastJob."""

    always_serialized: ClassVar[frozenset[str]] = frozenset({"active", "succeeded", "failed", "desired"})
    always_required: ClassVar[bool] = False

    conditions: list[JobCondition] | None = None
    """How the job ended. Empty while the job is running."""
    start_time: Time = ""
    """Time the job was first processed."""
    completion_time: Time = ""
    """Time the job ended."""
    active: Int32 = 0
    """Number of running and pending Pods."""
    succeeded: Int32 = 0
    """Number of succeeded Pods."""
    failed: Int32 = 0
    """Number of failed Pods."""
    desired: Int32 = 0
    """Number of eligible nodes."""
    phase: str = ""
    """One of running, paused, completed and failed."""


class BroadcastJob(KubeObject):
    """BroadcastJob runs one Pod to completion on every eligible node."""

    spec: BroadcastJobSpec
    """Desired state of the BroadcastJob."""
    status: BroadcastJobStatus | None = None
    """Observed state of the BroadcastJob."""
