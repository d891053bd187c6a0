"""EphemeralJob as a kind: its names, version and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version
from app.features.ephemeraljob.types import EphemeralJob

_COLUMNS: Final = (
    PrinterColumn("STATUS", "string", ".status.phase", "How far the job is."),
    PrinterColumn("MATCH", "integer", ".status.match", "Pods that are meant."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Pods in which all containers ended well."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Pods in which a container failed."),
    PrinterColumn("RUNNING", "integer", ".status.running", "Pods in which a container runs."),
    PrinterColumn("WAITING", "integer", ".status.waiting", "Pods in which a container is about to start."),
    AGE,
)

EPHEMERAL_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="EphemeralJob",
    plural="ephemeraljobs",
    access=Access(
        "adds containers to Pods of its namespace, where edit may already run commands (pods/exec)",
        view=True,
        edit=True,
    ),
    short_names=("ejob",),
    versions=(Version(names.V1ALPHA1, EphemeralJob, _COLUMNS),),
)
