"""Which namespaces get a copy (RD-20 … RD-23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.api.resourcedistribution import DistributionTargets, NamespaceList
from app.kube.selectors import Selector, compile_selector

#: RD-21: these never receive anything.
SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public"})


@dataclass(frozen=True, slots=True)
class TargetRule:
    """The targets of one ResourceDistribution, ready to match."""

    all_namespaces: bool
    included: frozenset[str]
    excluded: frozenset[str]
    #: None selects nothing, and so does an empty one.
    selector: Selector | None

    @classmethod
    def of(cls, targets: DistributionTargets) -> TargetRule:
        """Compile ``targets``. Raises SelectorError for a selector that says nothing sensible."""
        return cls(
            targets.all_namespaces,
            frozenset(_names(targets.included_namespaces)) - SYSTEM_NAMESPACES,
            frozenset(_names(targets.excluded_namespaces)) | SYSTEM_NAMESPACES,
            compile_selector(targets.namespace_selector) if targets.namespace_selector else None,
        )

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace that exists is a target."""
        if name in self.excluded:
            return False
        return self.all_namespaces or name in self.included or self.selects(labels)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector alone takes a namespace with these labels."""
        return self.selector is not None and bool(self.selector.requirements) and self.selector.matches(labels)

    def namespaces(self, existing: Mapping[str, Mapping[str, str]]) -> list[str]:
        """The targets by name; ``existing`` has the labels of every namespace. Included ones that do not exist are
        targets too (RD-22)."""
        found = {name for name, labels in existing.items() if self.matches(name, labels)}
        return sorted(found | (self.included - self.excluded))


def _names(given: NamespaceList | None) -> list[str]:
    return [one.name for one in given.list_ or ()] if given is not None else []
