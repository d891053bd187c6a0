"""EphemeralJob: ephemeral containers in running Pods. Fields, validation."""

from app.api.ephemeraljob.definition import EPHEMERAL_JOB
from app.api.ephemeraljob.types import EphemeralJob, EphemeralJobSpec, EphemeralJobStatus

__all__ = ["EPHEMERAL_JOB", "EphemeralJob", "EphemeralJobSpec", "EphemeralJobStatus"]
