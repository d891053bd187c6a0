"""Index of WorkloadSpreads by namespace and target, prepared for Pod admission. [WS-22, WS-23]"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from app.api.model import is_status_change
from app.features.workloadspread.plan.deletion_costs import first_costs
from app.features.workloadspread.plan.placement import has_percentage, sole_subset
from app.features.workloadspread.plan.subsets import PreparedSubset, prepare
from app.features.workloadspread.types import WorkloadSpread
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector
from app.kube.store import Change, Store, key_of
from app.pods.custom_workloads import GroupKind

logger = logging.getLogger(__name__)

#: Group, kind and name of a workload.
Workload: TypeAlias = tuple[str, str, str]
_STATEFUL_SET: Final = "StatefulSet"


@dataclass(frozen=True, slots=True)
class PreparedSpread:
    """Metadata and spec of a WorkloadSpread, prepared for Pod admission."""

    key: ObjectKey
    uid: str
    created: str
    target: Workload
    api_version: str
    #: None selects all Pods.
    selector: Selector | None
    paths: tuple[str, ...]
    subsets: Mapping[str, PreparedSubset]
    #: Name of the only subset, if it has no maxReplicas. [WS-25]
    sole: str
    #: Whether Pods are assigned by ordinal. [WS-26]
    by_ordinal: bool
    #: Whether a subset's maxReplicas is a percentage of the target's replicas.
    percent: bool
    #: Deletion cost of a new Pod by subset. [WS-55]
    costs: Mapping[str, str] = field(default_factory=dict)


def prepare_spread(spread: WorkloadSpread) -> PreparedSpread:
    """Prepare a WorkloadSpread. Raises SelectorError."""
    target, filtered = spread.spec.target_ref, spread.spec.target_filter
    # A filter without a selector selects all Pods. [WS-20]
    selector = compile_selector(filtered.selector) if filtered is not None and filtered.selector else None
    return PreparedSpread(
        key_of(spread),
        spread.metadata.uid,
        spread.metadata.creation_timestamp,
        target.identity,
        target.api_version,
        selector,
        tuple((filtered.replicas_path_list if filtered is not None else None) or ()),
        {subset.name: prepare(subset) for subset in spread.spec.subsets},
        sole_subset(spread),
        target.kind == _STATEFUL_SET,
        has_percentage(spread),
        first_costs(spread),
    )


class NamespaceSpreads:
    """WorkloadSpreads of a namespace, by name and by target (oldest first). Admission rejects a second
    WorkloadSpread for the same target."""

    def __init__(self) -> None:
        self.by_name: dict[str, PreparedSpread] = {}
        self.by_target: dict[Workload, list[PreparedSpread]] = {}
        self._kinds: Counter[GroupKind] = Counter()

    @property
    def kinds(self) -> Set[GroupKind]:
        """Group and kind of the targets."""
        return self._kinds.keys()

    def put(self, spread: PreparedSpread) -> None:
        self.by_name[spread.key.name] = spread
        insort(self.by_target.setdefault(spread.target, []), spread, key=lambda one: (one.created, one.key.name))
        self._kinds[spread.target[:2]] += 1

    def remove(self, name: str) -> None:
        spread = self.by_name.pop(name, None)
        if spread is None:
            return
        left = [one for one in self.by_target.pop(spread.target) if one is not spread]
        if left:
            self.by_target[spread.target] = left
        kind = spread.target[:2]
        self._kinds[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]


class SpreadIndex:
    """Indexes the WorkloadSpreads in a store. Status changes are ignored."""

    def __init__(self, spreads: Store[WorkloadSpread]) -> None:
        self._namespaces: dict[str, NamespaceSpreads] = {}
        spreads.subscribe(self._changed)

    def of(self, namespace: str) -> NamespaceSpreads | None:
        """Return the WorkloadSpreads of a namespace, or None if there are none."""
        return self._namespaces.get(namespace)

    def get(self, key: ObjectKey) -> PreparedSpread | None:
        here = self._namespaces.get(key.namespace)
        return here.by_name.get(key.name) if here is not None else None

    def _changed(self, change: Change[WorkloadSpread]) -> None:
        if is_status_change(change):
            return
        key, new = key_of(change.object), change.new
        here = self._namespaces.setdefault(key.namespace, NamespaceSpreads())
        here.remove(key.name)
        if new is not None and not new.deleting:
            try:
                here.put(prepare_spread(new))
            except SelectorError as error:
                logger.warning("ignoring WorkloadSpread %s: spec.targetFilter.selector: %s", key, error)
        if not here.by_name:
            del self._namespaces[key.namespace]
