"""Kind definition of BroadcastJob: versions, columns and the Go type of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.api import names
from app.api.gojson import GoType
from app.api.gopod import POD_TEMPLATE
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, unchanged
from app.api.schema import go_struct
from app.features.broadcastjob.types import BroadcastJob, BroadcastJobSpec

_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".status.desired", "Number of eligible nodes."),
    PrinterColumn("ACTIVE", "integer", ".status.active", "Number of running and pending Pods."),
    PrinterColumn("SUCCEEDED", "integer", ".status.succeeded", "Number of succeeded Pods."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Number of failed Pods."),
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
        Version(names.V1ALPHA1, BroadcastJob, _COLUMNS, to_hub=unchanged, from_hub=unchanged),
    ),
)


SPEC: Final[GoType] = go_struct(BroadcastJobSpec, {"template": POD_TEMPLATE})
#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {names.V1BETA1: SPEC, names.V1ALPHA1: SPEC}
