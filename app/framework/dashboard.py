"""A section of the dashboard as a feature declares it: how it shows the objects of a kind.

Objects are read as they are stored, whatever they hold: ``mapping``, ``text`` and ``number`` take what does not fit for
nothing.
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

#: An object of the kind as it is stored.
Stored: TypeAlias = Mapping[str, Any]

#: How many objects a section shows, and how many Pods are named.
SHOWN: Final = 500
NAMED: Final = 5
#: Characters of a text that are shown.
LONGEST: Final = 300


class DashboardModel(BaseModel):
    """What programs read of the dashboard: snake_case here, camelCase in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Shown(DashboardModel):
    """How the page shows a row: what stands under the name, a sentence in a colour, and a fainter one."""

    about: str = ""
    tone: Literal["", "good", "busy", "bad"] = ""
    message: str = ""
    detail: str = ""


class Row(DashboardModel):
    """An object; a kind adds fields of its own, for programs."""

    namespace: str = ""
    name: str
    shown: Shown


R = TypeVar("R", bound=Row)


class PodJudge(Protocol):
    """Knows the objects of a section, and says which of them a Pod lacks. They have no namespace."""

    def update(self, stored: Stored) -> None:
        """An object is new or changed."""
        ...

    def remove(self, name: str) -> None:
        """An object is gone."""
        ...

    def lacking(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Sequence[str]:
        """The names of those that the Pod should have and has not."""
        ...


@dataclass(frozen=True, slots=True)
class DashboardSection(Generic[R]):
    """One section. ``name`` is the field of the overview, in camelCase the event."""

    name: str
    title: str
    kind: KindDefinition
    row_type: type[R]
    #: The row of an object, and which Pods lack it.
    row: Callable[[Stored, Collection[ObjectKey]], R]
    #: Which row comes first.
    place: Callable[[R], Any] = lambda row: (row.namespace, row.name)
    #: Makes who knows which Pods lack what, where Pods can.
    judge: Callable[[], PodJudge] | None = None


def mapping(obj: Stored, field: str) -> Stored:
    """An object's part; empty where there is none."""
    found = obj.get(field)
    return found if isinstance(found, Mapping) else {}


def text(obj: Stored, field: str) -> str:
    """A text, on one line and not too long; empty where there is none."""
    found = obj.get(field)
    return one_line(found[:LONGEST]) if isinstance(found, str) else ""


def number(obj: Stored, field: str) -> int:
    """A whole number; 0 where there is none."""
    found = obj.get(field)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def pods(count: int) -> str:
    """``1 Pod``, ``2 Pods``."""
    return f"{count} Pod" if count == 1 else f"{count} Pods"
