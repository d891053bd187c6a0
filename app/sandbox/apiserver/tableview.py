"""The columns of a table: what ``kubectl get`` shows of a kind, and the cells of one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Cells: TypeAlias = Callable[[dict[str, Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class TableView:
    """Column definitions as a Table carries them, and how an object becomes a row."""

    columns: Sequence[dict[str, Any]]
    cells: Cells

    def without_headers(self) -> TableView:
        """The same, for rows that follow others in one watch."""
        return replace(self, columns=[])


#: What is shown of kinds that declare nothing else.
NAME_AND_AGE = TableView(
    columns=[
        {
            "name": "Name",
            "type": "string",
            "format": "name",
            "description": "Name must be unique within a namespace.",
            "priority": 0,
        },
        {
            "name": "Created At",
            "type": "date",
            "format": "",
            "description": "CreationTimestamp is a timestamp representing the server time when this object was created.",
            "priority": 0,
        },
    ],
    cells=lambda obj: [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")],
)
