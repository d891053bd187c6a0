"""The budgets of each namespace as claims on Pods, kept as the cache changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from app.api.podunavailablebudget import PodUnavailableBudget
from app.kube.selector_index import label_keys, selector_keys
from app.kube.store import Change, Store
from app.protection.podunavailablebudget.matching import Claim, Workload, by_age, claim_of, matches


class Claims:
    """What the budgets of a cache are for, by namespace, and by what they ask for."""

    def __init__(self, budgets: Store[PodUnavailableBudget]) -> None:
        self._by_namespace: dict[str, dict[str, Claim]] = {}
        #: Key of a selector or a target → the claims that stand there, by name.
        self._places: dict[str, dict[str, Claim]] = {}
        #: Namespace → how many of its claims name a target.
        self._targets: dict[str, int] = {}
        budgets.subscribe(self._changed)

    def names(self, namespace: str) -> Collection[str]:
        """The names of the budgets of a namespace."""
        return self._by_namespace.get(namespace, {}).keys()

    def name_targets(self, namespace: str) -> bool:
        """Whether any budget of the namespace is for the Pods of a workload."""
        return namespace in self._targets

    def matching(self, namespace: str, labels: Mapping[str, str], owners: Sequence[Workload]) -> Sequence[Claim]:
        """Those that are for a Pod with these labels, made by these workloads, the oldest first."""
        found: dict[str, Claim] = {}
        for key in (*label_keys(namespace, labels), *(_target_key(namespace, one) for one in owners)):
            found |= self._places.get(key, {})
        return by_age(claim for claim in found.values() if matches(claim, labels, owners))

    def budget_for(self, namespace: str, labels: Mapping[str, str], owners: Sequence[Workload]) -> str:
        """PUB-31: the name of the budget that such a Pod belongs to; '' for none."""
        found = self.matching(namespace, labels, owners)
        return found[0].name if found else ""

    def __bool__(self) -> bool:
        """Whether any namespace is known to have a budget."""
        return bool(self._by_namespace)

    def _changed(self, change: Change[PodUnavailableBudget]) -> None:
        metadata = change.object.metadata
        known = self._by_namespace.setdefault(metadata.namespace, {})
        before = known.pop(metadata.name, None)
        after = claim_of(change.new) if change.new is not None and not change.new.deleting else None
        if before is not None:
            self._leave(metadata.namespace, before)
        if after is not None:
            known[metadata.name] = after
            self._stand(metadata.namespace, after)
        if not known:
            del self._by_namespace[metadata.namespace]

    def _stand(self, namespace: str, claim: Claim) -> None:
        for key in _keys(namespace, claim):
            self._places.setdefault(key, {})[claim.name] = claim
        if claim.target is not None:
            self._targets[namespace] = self._targets.get(namespace, 0) + 1

    def _leave(self, namespace: str, claim: Claim) -> None:
        for key in _keys(namespace, claim):
            del self._places[key][claim.name]
            if not self._places[key]:
                del self._places[key]
        if claim.target is not None:
            self._targets[namespace] -= 1
            if not self._targets[namespace]:
                del self._targets[namespace]


def _keys(namespace: str, claim: Claim) -> Iterable[str]:
    if claim.target is not None:
        return (_target_key(namespace, claim.target),)
    return selector_keys(namespace, claim.selector) if claim.selector is not None else ()


def _target_key(namespace: str, workload: Workload) -> str:
    """A label's key does not begin so."""
    return f"{namespace}/@{workload.group}/{workload.kind}/{workload.name}"
