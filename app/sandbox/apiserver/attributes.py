"""A write as admission sees it, and what the steps of a write need of other parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import Managed
from app.sandbox.apiserver.requests import User
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.strategies import Strategy

Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Attributes:
    """A write as admission sees it. ``obj`` may be replaced by mutating admission."""

    operation: str
    resource: ResourceType
    subresource: str
    namespace: str
    name: str
    obj: Json | None
    old: Json | None
    user: User
    dry_run: bool
    options: Json
    warnings: list[str]
    #: Who manages what in ``obj`` and ``old``: remote webhooks are shown it.
    managed: Managed | None = None
    old_managed: Managed | None = None
    #: The kind of what is posted to a subresource, where it is not that of the resource.
    kind: Json | None = None


class Admission(Protocol):
    """What may change or refuse a write before it is committed."""

    async def mutate(self, attributes: Attributes) -> None:
        """Change ``attributes.obj`` (by putting another there), or refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Refuse what must not be."""
        ...

    def concerns(self, attributes: Attributes) -> bool:
        """Whether there is anything to ask; saves the copies that asking needs."""
        ...


class Kinds(Protocol):
    """What is known of kinds beyond their row: strategies, and the reading of bodies."""

    def strategy(self, resource: ResourceType) -> Strategy:
        """How objects of the resource are written."""
        ...

    def schema(self, resource: ResourceType) -> Field | None:
        """The type of its objects."""
        ...
