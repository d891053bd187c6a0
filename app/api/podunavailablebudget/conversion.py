"""PodUnavailableBudget between its versions: two fields of v1beta1 are annotations in v1alpha1 (PUB-1, PUB-2).

Each direction may lose something (ignoredPodSelector, the spelling of an annotation); app.api.conversion notices and
remembers it. An annotation that says nothing usable stays where it is and fails no conversion: one bad object must not
keep all others from being listed (PUB-120).
"""

from __future__ import annotations

from typing import Any

from app.api import names
from app.api.podunavailablebudget.settings import OPERATIONS, parse_total, split_operations


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
