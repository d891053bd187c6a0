"""DaemonSet as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.daemonset.conversion import canonical_v1beta1, to_v1alpha1, to_v1beta1
from app.api.daemonset.types import DaemonSet, DaemonSetV1Alpha1
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted

_DESIRED: Final = ".status.desiredNumberScheduled"
_CURRENT: Final = ".status.currentNumberScheduled"
_UPDATED: Final = ".status.updatedNumberScheduled"
_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", _DESIRED, "Nodes that should have a Pod."),
    PrinterColumn("CURRENT", "integer", _CURRENT, "Nodes that should have a Pod and have one."),
    PrinterColumn("READY", "integer", ".status.numberReady", "Nodes whose Pod is ready."),
    PrinterColumn("UP-TO-DATE", "integer", _UPDATED, "Nodes whose Pod is of the present template."),
    PrinterColumn("AVAILABLE", "integer", ".status.numberAvailable", "Nodes whose Pod is available."),
    AGE,
    PrinterColumn(
        "CONTAINERS", "string", ".spec.template.spec.containers[*].name", "The template's containers.", priority=1
    ),
    PrinterColumn(
        "IMAGES", "string", ".spec.template.spec.containers[*].image", "The images of these containers.", priority=1
    ),
    # DS-79: what the first columns were called once.
    PrinterColumn("DESIREDNUMBER", "integer", _DESIRED, "The same as DESIRED.", priority=1),
    PrinterColumn("CURRENTNUMBER", "integer", _CURRENT, "The same as CURRENT.", priority=1),
    PrinterColumn("UPDATEDNUMBERSCHEDULED", "integer", _UPDATED, "The same as UP-TO-DATE.", priority=1),
)
_NOTED: Final = (
    *noted("metadata", "annotations", fields=(names.PROGRESSIVE_CREATE_POD,)),
    *noted("spec", "scaleStrategy", fields=("partitionedScaling",)),
)
#: DS-1: Surging is Standard in v1beta1.
_NOTED_V1ALPHA1: Final = noted("spec", "updateStrategy", "rollingUpdate", fields=("rollingUpdateType",))

DAEMON_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="DaemonSet",
    plural="daemonsets",
    access=Access("creates Pods in its namespace, as a native DaemonSet does", view=True, edit=True),
    short_names=("daemon", "ads"),
    versions=(
        Version(names.V1BETA1, DaemonSet, _COLUMNS, canonical=canonical_v1beta1, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            DaemonSetV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            notes=_NOTED_V1ALPHA1,
        ),
    ),
)
