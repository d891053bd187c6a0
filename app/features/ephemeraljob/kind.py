"""Kind definition of EphemeralJob: version, columns and defaults."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version
from app.features.ephemeraljob.types import EphemeralJob

#: Defaults of parallelism and ttlSecondsAfterFinished. They are not written to the object.
PARALLELISM: Final = 1
TTL_SECONDS: Final = 1800
_COLUMNS: Final = (
    PrinterColumn("STATUS", "string", ".status.phase", "Phase of the job."),
    PrinterColumn("MATCH", "integer", ".status.match", "Number of targeted Pods."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Number of Pods in which all containers succeeded."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Number of Pods in which a container failed."),
    PrinterColumn("RUNNING", "integer", ".status.running", "Number of Pods in which a container is running."),
    PrinterColumn("WAITING", "integer", ".status.waiting", "Number of Pods in which a container is waiting to start."),
    AGE,
)

EPHEMERAL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="EphemeralJob",
    plural="ephemeraljobs",
    access=Access(
        "adds containers to Pods in its namespace, where the edit role can already run commands (pods/exec)",
        view=True,
        edit=True,
    ),
    short_names=("ejob",),
    versions=(Version(names.V1ALPHA1, EphemeralJob, _COLUMNS),),
)
