"""BroadcastJob: one Pod on every matching node, once. Fields, defaults, validation."""

from app.api.broadcastjob.definition import BROADCAST_JOB
from app.api.broadcastjob.types import BroadcastJob, BroadcastJobSpec, BroadcastJobStatus

__all__ = ["BROADCAST_JOB", "BroadcastJob", "BroadcastJobSpec", "BroadcastJobStatus"]
