"""Defaults of a UnitedDeployment. Pure functions on the JSON of either version. [UD-4 … UD-6]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core.defaults import completed_template, default_claim_template
from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT_OR_STRING, GoType, list_of, normalized, pointer, struct
from app.api.gopod import CLAIM, METADATA, POD_TEMPLATE, SPEC_TYPES
from app.api.schema import go_struct
from app.features.cloneset.types import CloneSetSpec
from app.features.statefulset.types import StatefulSetSpec
from app.features.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    MANUAL,
    STATEFUL_SET,
    TEMPLATES,
)
from app.kube.jsonvalues import fill, json_copy, object_at, objects, part

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
#: Defaults of rescheduleCriticalSeconds and unschedulableDuration, which are not written to the object.
RESCHEDULE_CRITICAL_SECONDS: Final = 30
UNSCHEDULABLE_SECONDS: Final = 300
_STRATEGY: Final = struct(
    optional("type"),
    optional(
        "rollingUpdate",
        pointer(
            struct(
                optional("partition", pointer(INT32)),
                optional("maxUnavailable", pointer(INT_OR_STRING)),
                optional("maxSurge", pointer(INT_OR_STRING)),
            )
        ),
    ),
)
_NATIVE: Final = (
    optional("replicas", pointer(INT32)),
    always("selector", pointer(LABEL_SELECTOR)),
    always("template", POD_TEMPLATE),
    optional("minReadySeconds", INT32),
    optional("revisionHistoryLimit", pointer(INT32)),
)
#: Go types of the workloads' specs.
_SPECS: Final[Mapping[str, GoType]] = {
    STATEFUL_SET: struct(
        *_NATIVE,
        optional("volumeClaimTemplates", list_of(CLAIM)),
        always("serviceName"),
        optional("podManagementPolicy"),
        optional("updateStrategy", _STRATEGY),
        optional(
            "persistentVolumeClaimRetentionPolicy", pointer(struct(optional("whenDeleted"), optional("whenScaled")))
        ),
        optional("ordinals", pointer(struct(always("start", INT32)))),
    ),
    DEPLOYMENT: struct(
        *_NATIVE,
        optional("strategy", _STRATEGY),
        optional("paused", BOOL),
        optional("progressDeadlineSeconds", pointer(INT32)),
    ),
    ADVANCED_STATEFUL_SET: go_struct(StatefulSetSpec, SPEC_TYPES),
    CLONE_SET: go_struct(CloneSetSpec, SPEC_TYPES),
}


def with_defaults(
    obj: Mapping[str, Any],
    *,
    default_templates: bool = True,
    former: Mapping[str, Any] | None = None,
    host_ports: bool = False,
) -> dict[str, Any]:
    """Return a copy of the UnitedDeployment with its defaults and without a status. [UD-4]

    ``default_templates``: whether to default the Pod and claim templates of a StatefulSet template. [UD-5] ``former``
    is the stored object; its Pod template is kept if the two differ only in defaults. Values of the wrong type are left
    for validation to report.
    """
    defaulted: dict[str, Any] = json_copy({key: value for key, value in obj.items() if key != "status"})
    spec = object_at(defaulted, "spec")
    if spec is None:
        return defaulted
    fill(spec, {"replicas": REPLICAS, "revisionHistoryLimit": REVISION_HISTORY_LIMIT})
    strategy = part(spec, "updateStrategy")
    if strategy is not None:
        strategy["type"] = strategy.get("type") or MANUAL
        if strategy["type"] == MANUAL:
            part(strategy, "manualUpdate")
    _default_least(object_at(spec, "topology"))
    if default_templates:
        stored = object_at(_stateful_set(object_at(former, "spec")), "template")
        _default_stateful_set(_stateful_set(spec), stored, host_ports=host_ports)
    return defaulted


def as_printed(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as OpenKruise stores it, with the zero values that Go marshals for some unset fields. Raises
    GoTypeError."""
    spec = object_at(obj, "spec")
    topology = object_at(spec, "topology")
    if topology is not None:
        part(topology, "scheduleStrategy")
        if topology.get("subsets") == []:
            del topology["subsets"]
        for subset in objects(topology.get("subsets")):
            part(subset, "nodeSelectorTerm")
    for name in TEMPLATES:
        workload = object_at(object_at(spec, "template"), name)
        if workload is None or object_at(workload, "spec") is None:
            continue
        at = f"spec.template.{name}"
        workload["metadata"] = normalized(METADATA, workload.get("metadata"), f"{at}.metadata")
        workload["spec"] = printed = normalized(_SPECS[name], workload["spec"], f"{at}.spec")
        if printed["selector"] is None:
            del printed["selector"]  # the API server drops null
        scale = object_at(printed, "scaleStrategy") or {}
        if scale.get("enablePVCReuse") is False and not str(obj.get("apiVersion")).endswith(f"/{names.V1BETA1}"):
            del scale["enablePVCReuse"]
    return obj


def _default_least(topology: dict[str, Any] | None) -> None:
    """Set the default of minReplicas. [UD-6]"""
    subsets = list(objects(topology.get("subsets"))) if topology is not None else []
    given = [
        field for one in subsets for field in ("replicas", "minReplicas", "maxReplicas") if one.get(field) is not None
    ]
    if given and "replicas" not in given:
        for one in subsets:
            fill(one, {"minReplicas": 0})


def _stateful_set(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    return object_at(object_at(object_at(spec, "template"), STATEFUL_SET), "spec")


def _default_stateful_set(spec: dict[str, Any] | None, former: dict[str, Any] | None, *, host_ports: bool) -> None:
    """Set the defaults of a StatefulSet template. [UD-5]"""
    if spec is None:
        return
    template = object_at(spec, "template")
    if template is not None:
        spec["template"] = completed_template(template, former, host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)
