"""A feature's section of the dashboard.

Stored objects may have any content: ``mapping``, ``text`` and ``number`` treat a value of another type as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from app.api.kind import KindDefinition
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.kube.text import one_line

#: A stored object of the section's kind.
Stored: TypeAlias = Mapping[str, Any]

#: Maximum number of objects in a section, and of Pods listed by name.
SHOWN: Final = 500
NAMED: Final = 5
#: Maximum length of a text in characters.
LONGEST: Final = 300


class DashboardModel(BaseModel):
    """Dashboard data for API clients: snake_case here, camelCase in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Shown(DashboardModel):
    """Display of a row: details below the name, a colored sentence, and a dimmed one."""

    about: str = ""
    tone: Literal["", "good", "busy", "bad"] = ""
    message: str = ""
    detail: str = ""


class Row(DashboardModel):
    """One object. Kinds may add fields for API clients."""

    namespace: str = ""
    name: str
    shown: Shown


R = TypeVar("R", bound=Row)


class PodJudge(Protocol):
    """Tracks a section's cluster-scoped objects and finds those that a Pod lacks."""

    def update(self, stored: Stored) -> object:
        """Handle a new or changed object."""
        ...

    def remove(self, name: str) -> None:
        """Handle a deleted object."""
        ...

    def lacking(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Sequence[str]:
        """Return the names of the objects that the Pod should have but does not."""
        ...


@dataclass(frozen=True, slots=True)
class DashboardSection(Generic[R]):
    """One section. ``name`` is its field in the overview and, in camelCase, the name of its event."""

    name: str
    title: str
    kind: KindDefinition
    row_type: type[R]
    #: Returns the row of an object, given the Pods that lack it.
    row: Callable[[Stored, Collection[ObjectKey]], R]
    #: Returns the sort key of a row.
    place: Callable[[R], Any] = lambda row: (row.namespace, row.name)
    #: Creates the PodJudge; None if Pods never lack an object of the kind.
    judge: Callable[[], PodJudge] | None = None


def mapping(obj: Stored, field: str) -> Stored:
    """Return the value of a field that should be an object, or an empty mapping if it is not one."""
    found = obj.get(field)
    return found if isinstance(found, Mapping) else {}


def text(obj: Stored, field: str) -> str:
    """Return a string field on one line with limited length; empty if it is not a string."""
    found = obj.get(field)
    return one_line(found[:LONGEST]) if isinstance(found, str) else ""


def number(obj: Stored, field: str) -> int:
    """Return an integer field; 0 if it is not an integer."""
    found = obj.get(field)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def pods(count: int) -> str:
    """Return ``1 Pod``, ``2 Pods``."""
    return f"{count} Pod" if count == 1 else f"{count} Pods"
