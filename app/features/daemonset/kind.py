"""Kind definition of DaemonSet: versions, conversion and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.kind import AGE, TEMPLATE_COLUMNS, Access, KindDefinition, PrinterColumn, Version, noted
from app.features.daemonset.types import STANDARD, SURGING, DaemonSet, DaemonSetV1Alpha1
from app.kube.jsonvalues import object_at

# Conversion of DaemonSets between versions. Each direction may lose fields; app.api.conversion records them in an
# annotation. [DS-1 … DS-3]


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1alpha1 object to v1beta1. [DS-1]"""
    spec, status = object_at(obj, "spec"), object_at(obj, "status")
    if status is not None and "daemonSetHash" in status:
        status["updateRevision"] = status.pop("daemonSetHash")
    if spec is None:
        return obj
    rolling = object_at(object_at(spec, "updateStrategy") or {}, "rollingUpdate")
    if rolling is not None and rolling.get("rollingUpdateType") == SURGING:
        rolling["rollingUpdateType"] = STANDARD
    if _annotations(obj).get(names.PROGRESSIVE_CREATE_POD) == "true":
        spec["scaleStrategy"] = {"partitionedScaling": True}
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1beta1 object to v1alpha1. [DS-2]"""
    spec, status = object_at(obj, "spec"), object_at(obj, "status")
    if status is not None and "updateRevision" in status:
        status["daemonSetHash"] = status.pop("updateRevision")
    if spec is None:
        return obj
    scale, annotations = spec.pop("scaleStrategy", None), _annotations(obj)
    if isinstance(scale, dict) and scale.get("partitionedScaling") is True:
        obj.setdefault("metadata", {})["annotations"] = {**annotations, names.PROGRESSIVE_CREATE_POD: "true"}
    elif annotations.get(names.PROGRESSIVE_CREATE_POD) == "true":
        # Otherwise, a value removed from the v1beta1 field would reappear with the next write in v1alpha1.
        del annotations[names.PROGRESSIVE_CREATE_POD]
        if not annotations:
            del obj["metadata"]["annotations"]
    return obj


def canonical_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Drop ``partitionedScaling: false``, which is the default."""
    spec = object_at(obj, "spec")
    scale = object_at(spec, "scaleStrategy") if spec is not None else None
    if spec is not None and scale is not None and scale.get("partitionedScaling") is False:
        del scale["partitionedScaling"]
    return obj


def _annotations(obj: Mapping[str, Any]) -> dict[str, Any]:
    return object_at(object_at(obj, "metadata") or {}, "annotations") or {}


_DESIRED: Final = ".status.desiredNumberScheduled"
_CURRENT: Final = ".status.currentNumberScheduled"
_UPDATED: Final = ".status.updatedNumberScheduled"
_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", _DESIRED, "Number of nodes that should run a Pod."),
    PrinterColumn("CURRENT", "integer", _CURRENT, "Number of nodes that should run a Pod and have one."),
    PrinterColumn("READY", "integer", ".status.numberReady", "Number of nodes with a ready Pod."),
    PrinterColumn("UP-TO-DATE", "integer", _UPDATED, "Number of nodes with a Pod from the current template."),
    PrinterColumn("AVAILABLE", "integer", ".status.numberAvailable", "Number of nodes with an available Pod."),
    AGE,
    *TEMPLATE_COLUMNS,
    # Former names of the first columns. [DS-79]
    PrinterColumn("DESIREDNUMBER", "integer", _DESIRED, "Same as DESIRED.", priority=1),
    PrinterColumn("CURRENTNUMBER", "integer", _CURRENT, "Same as CURRENT.", priority=1),
    PrinterColumn("UPDATEDNUMBERSCHEDULED", "integer", _UPDATED, "Same as UP-TO-DATE.", priority=1),
)
_NOTED: Final = (
    *noted("metadata", "annotations", fields=(names.PROGRESSIVE_CREATE_POD,)),
    *noted("spec", "scaleStrategy", fields=("partitionedScaling",)),
)
#: The rolling update type Surging becomes Standard in v1beta1. [DS-1]
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
            names.V1ALPHA1, DaemonSetV1Alpha1, _COLUMNS, to_hub=to_v1beta1, from_hub=to_v1alpha1, notes=_NOTED_V1ALPHA1
        ),
    ),
)
