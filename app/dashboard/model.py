"""What the page is told, as models: the documentation of ``/api/overview`` and of the events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, create_model

from app.slices.dashboard import DashboardModel, DashboardSection


class Revision(DashboardModel):
    """The Pods of a workload at one revision."""

    name: str
    pods: int
    ready: int
    #: Whether new Pods get it.
    target: bool = False


class Workload(DashboardModel):
    """A workload, and how far its roll-out is."""

    kind: str
    namespace: str = ""
    name: str
    state: Literal["done", "under way", "failed", "unknown"]
    #: The sentence of ``pykruise rollout status``.
    message: str
    #: How much of the roll-out is done, from 0 to 1.
    part: float
    revisions: list[Revision] = Field(default_factory=list)


class PodCounts(DashboardModel):
    """Pods by state."""

    ready: int = 0
    not_ready: int = 0
    pending: int = 0
    terminating: int = 0
    failed: int = 0
    finished: int = 0


class Node(DashboardModel):
    """A node's Pods; without a name those that have no node yet."""

    name: str
    pods: PodCounts


class Section(DashboardModel):
    """What is shown of a section is bounded: so many more are not."""

    total: int = 0
    more: int = 0


class Workloads(Section):
    """Workloads; those whose roll-out is not done come first."""

    items: list[Workload] = Field(default_factory=list)


class Nodes(Section):
    """Nodes; those with Pods that are not ready come first."""

    pods: int = 0
    items: list[Node] = Field(default_factory=list)


class Overview(DashboardModel):
    """Everything the page shows. The event of each section carries one field of this."""

    workloads: Workloads
    nodes: Nodes


def overview_model(sections: Iterable[DashboardSection[Any]]) -> type[Overview]:
    """The overview with a field for each of these sections."""
    fields: dict[str, Any] = {}
    for one in sections:
        rows: Any = (list.__class_getitem__(one.row_type), Field(default_factory=list))
        fields[one.name] = (create_model(one.title, __base__=Section, __doc__=f"{one.title}.", items=rows), ...)
    return create_model("Overview", __base__=Overview, __doc__=Overview.__doc__, **fields)
