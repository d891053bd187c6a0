"""From client-side to server-side apply: what ``kubectl apply`` wrote into its annotation. Pure.

Source: apimachinery/pkg/util/managedfields/internal/{lastappliedmanager,lastappliedupdater}.go.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import orjson

from app.sandbox.apiserver.fieldsets import Step, fields_of, leaves, lookup
from app.sandbox.apiserver.schemas import Field

Json: TypeAlias = dict[str, Any]

#: The manager that ``kubectl apply --server-side`` writes as.
KUBECTL: Final = "kubectl"
_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def last_applied_fields(live: Json, field: Field | None) -> frozenset[tuple[Step, ...]]:
    """The fields that are still as client-side apply left them: kubectl may go on with them, whoever manages them."""
    try:
        applied = orjson.loads((live["metadata"].get("annotations") or {}).get(_ANNOTATION, "null"))
    except orjson.JSONDecodeError:
        return frozenset()
    if not isinstance(applied, dict):
        return frozenset()
    return frozenset(
        path for path in leaves(fields_of(field, applied)) if lookup(field, applied, path) == lookup(field, live, path)
    )


def keep_last_applied(obj: Json, applied: Json) -> None:
    """Where there is the annotation, it says what was applied last, for those who go back to client-side apply."""
    annotations = obj["metadata"].get("annotations") or {}
    if _ANNOTATION not in annotations:
        return
    metadata = dict(applied["metadata"])
    others = {key: text for key, text in (metadata.pop("annotations", None) or {}).items() if key != _ANNOTATION}
    if others:
        metadata["annotations"] = others
    text = orjson.dumps({**applied, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode()
    obj["metadata"]["annotations"] = {**annotations, _ANNOTATION: f"{text}\n"}
