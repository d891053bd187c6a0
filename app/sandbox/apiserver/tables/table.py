"""Tables: column definitions, rows and the objects attached to them.

The columns of built-in kinds are recorded from a real API server; those of custom resources are JSONPaths in their
CRDs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

import orjson

from app.kube.fielderrors import format_float
from app.sandbox.apiserver.schemas import read_data
from app.sandbox.apiserver.tables import core, groups
from app.sandbox.apiserver.tables.jsonpath import JsonPathError, parse
from app.sandbox.apiserver.tables.words import Cells, Object, age

Document: TypeAlias = dict[str, Any]
#: Keyed by plural: built-in resources with the same plural have the same columns in all groups.
_CELLS: Final[Mapping[str, Cells]] = {**core.CELLS, **groups.WORKLOAD_CELLS, **groups.CELLS}
_META: Final = "meta.k8s.io/v1"
_COMPLETED: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclass(frozen=True, slots=True)
class TableKind:
    """The column definitions of a resource, and the function that computes its cells."""

    columns: Sequence[Mapping[str, Any]]
    cells: Cells

    def table(
        self,
        objects: Iterable[Object],
        now: datetime,
        *,
        metadata: Mapping[str, Any] | None = None,
        include_object: str = "Metadata",
        headers: bool = True,
    ) -> Document:
        """Return a Table.

        ``metadata``: that of the list, or the resourceVersion of a single object. ``include_object``: None, Metadata or
        Object, as in the request. For Object, the objects must have apiVersion and kind.
        """
        rows = [self._row(one, now, include_object) for one in objects]
        found: Document = {"kind": "Table", "apiVersion": _META, "metadata": dict(metadata or {})}
        found["columnDefinitions"] = [dict(column) for column in self.columns] if headers else None
        found["rows"] = rows
        return found

    def _row(self, one: Object, now: datetime, include_object: str) -> Document:
        row: Document = {"cells": self.cells(one, now)}
        if one.get("kind") == "Pod" and one.get("apiVersion") == "v1":
            phase = (one.get("status") or {}).get("phase")
            if phase in _COMPLETED:
                completed = {"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]}
                row["conditions"] = [completed]
        if include_object == "Object":
            row["object"] = one
        elif include_object == "Metadata":
            row["object"] = partial_object(one)
        else:
            row["object"] = None
        return row


def partial_object(one: Object) -> Document:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": one.get("metadata", {})}


@cache
def _recorded_columns() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    found: Mapping[str, Sequence[Mapping[str, Any]]] = read_data("columns.json.gz")
    return found


@cache
def builtin_table(api_version: str, plural: str) -> TableKind:
    """Return the table of a built-in resource (``apps/v1``, ``deployments``)."""
    columns = _recorded_columns()[f"{api_version}/{plural}"]
    return TableKind(columns, _CELLS.get(plural, _name_and_creation))


def _name_and_creation(one: Object, _now: datetime) -> list[Any]:
    """Return the cells of a resource without columns of its own."""
    return [one["metadata"]["name"], one["metadata"].get("creationTimestamp")]


# ---- custom resources

_AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def custom_table(version: Mapping[str, Any]) -> TableKind:
    """Return the table of a custom resource. ``version`` is an element of its CRD's ``spec.versions``."""
    declared = version.get("additionalPrinterColumns") or [_AGE | {"description": _described("Age")}]
    name = {"name": "Name", "type": "string", "format": "name", "description": _described("Name"), "priority": 0}
    columns = [name, *(_custom_column(column) for column in declared)]

    def cells(one: Object, now: datetime) -> list[Any]:
        return [one["metadata"]["name"], *(_custom_cell(column, one, now) for column in declared)]

    return TableKind(columns, cells)


@cache
def _described(column: str) -> str:
    """Return the description of a metadata column, which is the same for all kinds."""
    columns = _recorded_columns()["v1/configmaps"]
    return next(str(one["description"]) for one in columns if one["name"] == column)


def _custom_column(column: Mapping[str, Any]) -> Document:
    path = column["jsonPath"]
    return {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format", ""),
        "description": column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        "priority": column.get("priority", 0),
    }


def _custom_cell(column: Mapping[str, Any], one: Object, now: datetime) -> Any:
    try:
        found = parse(column["jsonPath"]).find(one)
    except JsonPathError:
        return None
    return _typed_cell(column["type"], found[0], now) if found else None


def _typed_cell(kind: str, value: Any, now: datetime) -> Any:
    """Return the cell for a JSON value, or None if the column has another type."""
    if kind == "string":
        return _text(value)
    if isinstance(value, bool):
        return value if kind == "boolean" else None
    if kind == "integer" and isinstance(value, int | float):
        return int(value)
    if kind == "number" and isinstance(value, int | float):
        return value
    if kind == "date" and isinstance(value, str):
        return age(value, now) if _is_time(value) else "<invalid>"
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, int):
        return str(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _is_time(text: str) -> bool:
    if not text:
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
