"""The definition of PodUnavailableBudget: its versions, conversion and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version, noted
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetV1Alpha1

# What a budget says in a field of v1beta1 or, older, in an annotation (PUB-1, PUB-3, PUB-120). Pure.
#
# An annotation counts where the field is empty: whoever wrote it in v1alpha1 through OpenKruise, which stores such an
# object without converting it, meant it.

_INT32: Final = re.compile(r"[+-]?[0-9]{1,10}").fullmatch


class ProtectedOperation(StrEnum):
    """What a budget can be asked about."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    EVICT = "EVICT"
    RESIZE = "RESIZE"


OPERATIONS: Final = tuple(operation.value for operation in ProtectedOperation)
#: PUB-65: what is protected where nothing is said.
DEFAULT_OPERATIONS: Final = (ProtectedOperation.DELETE, ProtectedOperation.UPDATE, ProtectedOperation.EVICT)


def split_operations(text: str) -> list[str]:
    """PUB-1: the items of the annotation, trimmed, empty ones left out; they may be none of the operations."""
    return [item for part in text.split(",") if (item := part.strip())]


def parse_total(text: str) -> int | None:
    """PUB-1: the annotation as a 32-bit integer; None where it is none."""
    number = int(text) if _INT32(text) else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def protected_operations(given: Sequence[str] | None, annotations: Mapping[str, str]) -> tuple[ProtectedOperation, ...]:
    """PUB-65: the field, else what is known of the annotation, else the default."""
    found = given or split_operations(annotations.get(names.PUB_PROTECT_OPERATIONS, ""))
    known = tuple(ProtectedOperation(item) for item in dict.fromkeys(found) if item in OPERATIONS)
    return known or DEFAULT_OPERATIONS


def protected_total(given: int | None, annotations: Mapping[str, str]) -> int | None:
    """PUB-33: the field, else the annotation where it holds a number of Pods."""
    if given is not None:
        return given
    number = parse_total(annotations.get(names.PUB_PROTECT_TOTAL_REPLICAS, "").strip())
    return number if number is not None and number >= 1 else None


# PodUnavailableBudget between its versions: two fields of v1beta1 are annotations in v1alpha1 (PUB-1, PUB-2).
#
# Each direction may lose something (ignoredPodSelector, the spelling of an annotation); app.api.conversion notices and
# remembers it. An annotation that says nothing usable stays where it is and fails no conversion: one bad object must
# not keep all others from being listed (PUB-120).


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """PUB-1: the annotations become fields, and leave."""
    annotations = _annotations(obj)
    operations = split_operations(_text(annotations, names.PUB_PROTECT_OPERATIONS))
    total = parse_total(_text(annotations, names.PUB_PROTECT_TOTAL_REPLICAS).strip())
    if operations and set(operations) <= set(OPERATIONS):
        _set_field(obj, "protectOperations", operations)
        _remove(obj, names.PUB_PROTECT_OPERATIONS)
    if total is not None and total >= 1:
        _set_field(obj, "protectTotalReplicas", total)
        _remove(obj, names.PUB_PROTECT_TOTAL_REPLICAS)
    status = obj.get("status")
    if isinstance(status, dict) and status.get("observedGeneration") == 0:
        del status["observedGeneration"]
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """PUB-2: the fields become annotations. One that stands there without its field counts, and so stays."""
    spec = obj.get("spec")
    fields = spec if isinstance(spec, dict) else {}
    operations = fields.pop("protectOperations", None)
    total = fields.pop("protectTotalReplicas", None)
    fields.pop("ignoredPodSelector", None)
    if isinstance(operations, list) and operations and all(isinstance(item, str) for item in operations):
        _set_annotation(obj, names.PUB_PROTECT_OPERATIONS, ",".join(operations))
    if isinstance(total, int) and not isinstance(total, bool):
        _set_annotation(obj, names.PUB_PROTECT_TOTAL_REPLICAS, str(total))
    return canonical_v1alpha1(obj)


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """v1alpha1 always shows the observed generation of a status, v1beta1 leaves out 0."""
    status = obj.get("status")
    if isinstance(status, dict):
        status.setdefault("observedGeneration", 0)
    return obj


def _annotations(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _text(annotations: dict[str, Any], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""


def _set_field(obj: dict[str, Any], field: str, value: Any) -> None:
    if not isinstance(obj.get("spec"), dict):
        obj["spec"] = {}
    obj["spec"][field] = value


def _set_annotation(obj: dict[str, Any], key: str, value: str) -> None:
    metadata = obj.setdefault("metadata", {})
    metadata["annotations"] = {**_annotations(obj), key: value}


def _remove(obj: dict[str, Any], key: str) -> None:
    annotations = _annotations(obj)
    del annotations[key]
    if not annotations:
        del obj["metadata"]["annotations"]


_COLUMNS: Final = (
    PrinterColumn("Allowed", "integer", ".status.unavailableAllowed", "Pods that may become unavailable now."),
    PrinterColumn("Current", "integer", ".status.currentAvailable", "Pods that are available."),
    PrinterColumn("Desired", "integer", ".status.desiredAvailable", "Pods that have to stay available."),
    PrinterColumn("Total", "integer", ".status.totalReplicas", "Pods there are meant to be."),
)
_ANNOTATIONS: Final = noted(
    "metadata", "annotations", fields=(names.PUB_PROTECT_OPERATIONS, names.PUB_PROTECT_TOTAL_REPLICAS)
)
_NOTED: Final = (
    *_ANNOTATIONS,
    *noted("spec", fields=("protectOperations", "protectTotalReplicas"), depth=1),
    *noted("spec", fields=("ignoredPodSelector",), size=65536, depth=4),
    *noted("status", fields=("observedGeneration",)),
)

POD_UNAVAILABLE_BUDGET: Final = KindDefinition(
    group=names.POLICY_GROUP,
    kind="PodUnavailableBudget",
    plural="podunavailablebudgets",
    access=Access("limits disruptions in its namespace, as a PodDisruptionBudget does", view=True, edit=True),
    short_names=("pub",),
    versions=(
        Version(names.V1BETA1, PodUnavailableBudget, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            PodUnavailableBudgetV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            notes=_ANNOTATIONS,
        ),
    ),
)
