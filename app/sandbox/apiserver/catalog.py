"""Catalog: what is known of each kind beyond its row. Strategies, the checking of types, the columns of tables.

Built on first use and kept; what belongs to a custom resource comes from its CRD.
"""

from __future__ import annotations

from app.sandbox.apiserver.builtins import strategy_of
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.schemas import Field, kind_field
from app.sandbox.apiserver.strategies import Strategy
from app.sandbox.apiserver.tables import TableKind, builtin_table
from app.sandbox.apiserver.typecheck import Checker, Reader

_checkers: dict[tuple[str, str], Checker | None] = {}


class Catalog:
    """Looks up what belongs to a resource."""

    def strategy(self, resource: ResourceType) -> Strategy:
        """How objects of the resource are written."""
        if resource.custom is not None:
            return resource.custom.strategy
        return strategy_of(resource.qualified)

    def schema(self, resource: ResourceType) -> Field | None:
        """The type of its objects."""
        if resource.custom is not None:
            return resource.custom.field
        return kind_field(resource.api_version, resource.kind)

    def checker(self, resource: ResourceType) -> Reader | None:
        """What checks the types of its objects as they come in."""
        if resource.custom is not None:
            return resource.custom.reader
        return self.checker_of(resource.api_version, resource.kind)

    def checker_of(self, api_version: str, kind: str) -> Checker | None:
        """The same by name, for the bodies of subresources too."""
        key = (api_version, kind)
        if key not in _checkers:
            found = kind_field(api_version, kind)
            _checkers[key] = Checker(found) if found is not None else None
        return _checkers[key]

    def table(self, resource: ResourceType) -> TableKind:
        """The columns of ``kubectl get``."""
        if resource.custom is not None:
            return resource.custom.table
        return builtin_table(resource.api_version, resource.plural)
