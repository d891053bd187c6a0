"""Where Pods may run, as kinds of ours say it: terms over nodes, and tolerations. The same as in a Pod."""

from __future__ import annotations

from typing import Annotated, ClassVar

from app.api.keywords import LIST_TYPE, MAP_TYPE, Schema
from app.api.model import ApiModel
from app.api.schema import Int32, Int64, Keywords

_ATOMIC = Keywords({LIST_TYPE: "atomic"})


class NodeSelectorRequirement(ApiModel):
    """A key, an operator, and values that relate them."""

    key: str
    """The label key, or field, the requirement applies to."""
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: Annotated[list[str] | None, _ATOMIC] = None
    """With In and NotIn at least one value, with Exists and DoesNotExist none, with Gt and Lt one integer."""


class NodeSelectorTerm(ApiModel):
    """Requirements on a node, all of which must hold."""

    schema_keywords: ClassVar[Schema] = {MAP_TYPE: "atomic"}

    match_expressions: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's labels."""
    match_fields: Annotated[list[NodeSelectorRequirement] | None, _ATOMIC] = None
    """Requirements on the node's fields."""


class PreferredSchedulingTerm(ApiModel):
    """Nodes that are preferred, and how much."""

    weight: Int32
    """How much, from 1 to 100."""
    preference: NodeSelectorTerm
    """Which nodes."""


class Toleration(ApiModel):
    """A taint of nodes that does not keep the Pod away."""

    key: str = ""
    """The taint's key; empty with operator Exists: all keys."""
    operator: str = ""
    """Exists or Equal, which is the default."""
    value: str = ""
    """The taint's value, for Equal."""
    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute; empty: all effects."""
    toleration_seconds: Int64 | None = None
    """For how long NoExecute is tolerated; for ever by default."""
