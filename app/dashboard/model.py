"""What the page is told, as models: the documentation of ``/api/overview`` and of the events."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Revision(_Model):
    """The Pods of a workload at one revision."""

    name: str
    pods: int
    ready: int
    #: Whether new Pods get it.
    target: bool = False


class Workload(_Model):
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


class PodCounts(_Model):
    """Pods by state."""

    ready: int = 0
    not_ready: int = 0
    pending: int = 0
    terminating: int = 0
    failed: int = 0
    finished: int = 0


class Node(_Model):
    """A node's Pods; without a name those that have no node yet."""

    name: str
    pods: PodCounts


class SidecarSet(_Model):
    """A SidecarSet, and who should have its containers and has not."""

    name: str
    matched: int
    updated: int
    ready: int
    lacking: int
    #: Some of the Pods that lack them.
    lacking_pods: list[str]


class Budget(_Model):
    """A PodUnavailableBudget, and what it would say to the next deletion."""

    namespace: str
    name: str
    available: int
    desired: int
    total: int
    allowed: int
    verdict: str


class Subset(_Model):
    """A subset of a WorkloadSpread; ``missing`` is -1 where it takes any number."""

    name: str
    replicas: int
    missing: int


class Spread(_Model):
    """A WorkloadSpread."""

    namespace: str
    name: str
    target: str
    subsets: list[Subset]


class Section(_Model):
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


class SidecarSets(Section):
    """SidecarSets; those that Pods lack come first."""

    items: list[SidecarSet] = Field(default_factory=list)


class Budgets(Section):
    """Budgets; those that allow nothing come first."""

    items: list[Budget] = Field(default_factory=list)


class Spreads(Section):
    """WorkloadSpreads."""

    items: list[Spread] = Field(default_factory=list)


class Overview(_Model):
    """Everything the page shows. The event of each section carries one field of this."""

    workloads: Workloads
    nodes: Nodes
    sidecar_sets: SidecarSets
    budgets: Budgets
    spreads: Spreads
