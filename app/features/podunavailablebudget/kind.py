"""Kind definition of PodUnavailableBudget: versions, conversion and columns, and fields that v1alpha1 keeps in
annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version, noted
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetV1Alpha1
from app.kube.jsonvalues import as_object

# Settings that are fields in v1beta1 and annotations in v1alpha1. [PUB-1, PUB-3, PUB-120] An annotation applies if the
# field is empty, because OpenKruise stores v1alpha1 objects without converting them.

_INT32: Final = re.compile(r"[+-]?[0-9]{1,10}").fullmatch


class ProtectedOperation(StrEnum):
    """Operations on Pods that a budget can refuse."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    EVICT = "EVICT"
    RESIZE = "RESIZE"


OPERATIONS: Final = tuple(operation.value for operation in ProtectedOperation)
#: Operations protected by default. [PUB-65]
DEFAULT_OPERATIONS: Final = (ProtectedOperation.DELETE, ProtectedOperation.UPDATE, ProtectedOperation.EVICT)


def split_operations(text: str) -> list[str]:
    """Return the trimmed, non-empty items of the annotation, including unknown operations. [PUB-1]"""
    return [item for part in text.split(",") if (item := part.strip())]


def parse_total(text: str) -> int | None:
    """Parse the annotation as a 32-bit integer. Return None if it is invalid. [PUB-1]"""
    number = int(text) if _INT32(text) else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def protected_operations(given: Sequence[str] | None, annotations: Mapping[str, str]) -> tuple[ProtectedOperation, ...]:
    """Return the known operations in the field or, if that is empty, in the annotation. If there are none, return the
    default. [PUB-65]"""
    found = given or split_operations(annotations.get(names.PUB_PROTECT_OPERATIONS, ""))
    known = tuple(ProtectedOperation(item) for item in dict.fromkeys(found) if item in OPERATIONS)
    return known or DEFAULT_OPERATIONS


def protected_total(given: int | None, annotations: Mapping[str, str]) -> int | None:
    """Return the field if it is set, otherwise the annotation if it is a valid number. [PUB-33]"""
    if given is not None:
        return given
    number = parse_total(annotations.get(names.PUB_PROTECT_TOTAL_REPLICAS, "").strip())
    return number if number is not None and number >= 1 else None


# Conversion: two fields of v1beta1 are annotations in v1alpha1. [PUB-1, PUB-2] Each direction may lose data
# (ignoredPodSelector, the spelling of an annotation), which app.api.conversion detects and preserves. An invalid
# annotation stays as it is and never fails the conversion: one bad object must not prevent listing the others.
# [PUB-120]


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Turn the annotations into fields. [PUB-1]"""
    annotations = _annotations(obj)
    operations = split_operations(_text(annotations, names.PUB_PROTECT_OPERATIONS))
    total = parse_total(_text(annotations, names.PUB_PROTECT_TOTAL_REPLICAS).strip())
    if operations and set(operations) <= set(OPERATIONS):
        _set_field(obj, "protectOperations", operations)
        _remove(obj, names.PUB_PROTECT_OPERATIONS)
    if total is not None and total >= 1:
        _set_field(obj, "protectTotalReplicas", total)
        _remove(obj, names.PUB_PROTECT_TOTAL_REPLICAS)
    status = as_object(obj.get("status"))
    if status.get("observedGeneration") == 0:
        del status["observedGeneration"]
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Turn the fields into annotations. An existing annotation stays if its field is unset. [PUB-2]"""
    fields = as_object(obj.get("spec"))
    operations = fields.pop("protectOperations", None)
    total = fields.pop("protectTotalReplicas", None)
    fields.pop("ignoredPodSelector", None)
    if isinstance(operations, list) and operations and all(isinstance(item, str) for item in operations):
        _set_annotation(obj, names.PUB_PROTECT_OPERATIONS, ",".join(operations))
    if isinstance(total, int) and not isinstance(total, bool):
        _set_annotation(obj, names.PUB_PROTECT_TOTAL_REPLICAS, str(total))
    return canonical_v1alpha1(obj)


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Set a missing observedGeneration to zero: v1alpha1 always has the field, but v1beta1 omits zero."""
    as_object(obj.get("status")).setdefault("observedGeneration", 0)
    return obj


def _annotations(obj: dict[str, Any]) -> dict[str, Any]:
    return as_object(as_object(obj.get("metadata")).get("annotations"))


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
    PrinterColumn("Allowed", "integer", ".status.unavailableAllowed", "Number of Pods that may be disrupted now."),
    PrinterColumn("Current", "integer", ".status.currentAvailable", "Number of available Pods."),
    PrinterColumn("Desired", "integer", ".status.desiredAvailable", "Number of Pods that must stay available."),
    PrinterColumn("Total", "integer", ".status.totalReplicas", "Number of desired Pods."),
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
