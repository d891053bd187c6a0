"""The budgets of each namespace as claims on Pods, kept as the cache changes."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.podunavailablebudget import PodUnavailableBudget
from app.kube.store import Change, Store
from app.protection.podunavailablebudget.matching import Claim, by_age, claim_of


class Claims:
    """What the budgets of a cache are for, by namespace, the oldest first."""

    def __init__(self, budgets: Store[PodUnavailableBudget]) -> None:
        self._by_namespace: dict[str, dict[str, Claim]] = {}
        self._sorted: dict[str, Sequence[Claim]] = {}
        budgets.subscribe(self._changed)

    def of(self, namespace: str) -> Sequence[Claim]:
        """The claims of a namespace; nothing where it has no budget."""
        found = self._sorted.get(namespace)
        if found is None:
            known = self._by_namespace.get(namespace)
            if known is None:
                return ()
            found = self._sorted[namespace] = by_age(known.values())
        return found

    def __bool__(self) -> bool:
        """Whether any namespace is known to have a budget."""
        return bool(self._by_namespace)

    def _changed(self, change: Change[PodUnavailableBudget]) -> None:
        metadata = change.object.metadata
        known = self._by_namespace.setdefault(metadata.namespace, {})
        if change.new is not None and not change.new.deleting:
            known[metadata.name] = claim_of(change.new)
        else:
            known.pop(metadata.name, None)
        if not known:
            del self._by_namespace[metadata.namespace]
        self._sorted.pop(metadata.namespace, None)
