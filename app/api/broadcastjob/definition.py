"""BroadcastJob as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.broadcastjob.types import BroadcastJob
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version


def _same(obj: dict[str, Any]) -> dict[str, Any]:
    """Both versions say the same in the same words."""
    return obj


_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".status.desired", "Nodes that match."),
    PrinterColumn("ACTIVE", "integer", ".status.active", "Pods that run or are about to."),
    PrinterColumn("SUCCEEDED", "integer", ".status.succeeded", "Pods that have succeeded."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Pods that have failed."),
    AGE,
)

BROADCAST_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="BroadcastJob",
    plural="broadcastjobs",
    access=Access("creates Pods in its namespace, as a Job or a DaemonSet does", view=True, edit=True),
    short_names=("bcj",),
    versions=(
        Version(names.V1BETA1, BroadcastJob, _COLUMNS),
        Version(names.V1ALPHA1, BroadcastJob, _COLUMNS, to_hub=_same, from_hub=_same),
    ),
)
