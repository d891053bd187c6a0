"""One case: everything that an admission answer may depend on, as plain JSON values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]

#: The time of every case (SS-57 writes it into annotations).
NOW = "2024-05-06T07:08:09Z"
#: The namespace of ControllerRevisions.
MANAGER_NAMESPACE = "kruise-system"
#: The random characters of every generated name (PM-144).
NAME_SUFFIX = "bcdfg"


@dataclass(slots=True)
class Case:
    """A Pod under admission, and the objects around it."""

    seed: int
    pod: Json
    request_namespace: str
    namespaces: list[Json]
    sets: list[Json]
    revisions: list[Json] = field(default_factory=list)
    #: The sets before defaulting, because defaulting is checked too.
    raw_sets: list[Json] = field(default_factory=list)
    readiness_gate_for_all: bool = False
    sort_by_name: bool = False
    #: The random number of SS-70, from 0 to 1.
    draw: float = 0.5
    dry_run: bool = False
    #: Whether a node creates the Pod.
    by_node: bool = False

    def text(self) -> str:
        """Return the case as readable text."""
        shown = {name: value for name, value in asdict(self).items() if name != "raw_sets"}
        return json.dumps(shown, indent=1, ensure_ascii=False)
