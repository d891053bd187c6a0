"""Pods as they were when this process granted that they are touched (PUB-56).

The status of a budget says when, and nothing about the Pod. Whoever asks in the process of the controllers updates the
Pod at once, and it may be back before the budget is looked at: what it was before is known here alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from app.kube.resources import ObjectKey
from app.protection.podunavailablebudget.inflight import MAX_ENTRIES, Seen, first_seen
from app.protection.podunavailablebudget.podstate import PodFacts

#: Budgets whose grants are kept; of one that is forgotten a grant is waited for its whole time.
MAX_BUDGETS: Final = 1_000


class Grants:
    """The latest grants of each budget, by Pod."""

    def __init__(self) -> None:
        self._by_budget: OrderedDict[ObjectKey, dict[str, Seen]] = OrderedDict()
        self._numbers = count(1)

    def note(self, budget: ObjectKey, noted: str, pod: PodFacts) -> None:
        """This was granted now, or once more. ``noted``: as the status has it."""
        known = self._by_budget.setdefault(budget, {})
        self._by_budget.move_to_end(budget)
        known[pod.name] = replace(first_seen(noted, pod), grant=next(self._numbers))
        if len(known) > MAX_ENTRIES:
            del known[next(iter(known))]
        if len(self._by_budget) > MAX_BUDGETS:
            self._by_budget.popitem(last=False)

    def of(self, budget: ObjectKey) -> Mapping[str, Seen]:
        """Those of a budget."""
        return self._by_budget.get(budget, {})

    def are_latest(self, budget: ObjectKey, seen: Mapping[str, Seen]) -> dict[str, Seen]:
        """Of what was seen that of Pods that were not granted once more since: the update that was seen done is not the
        one that comes then."""
        known = self.of(budget)
        return {name: one for name, one in seen.items() if name not in known or known[name].grant == one.grant}

    def keep(self, budget: ObjectKey, pods: Collection[str]) -> None:
        """Of a budget only those of these Pods are of use."""
        known = self._by_budget.pop(budget, {})
        if kept := {name: seen for name, seen in known.items() if name in pods}:
            self._by_budget[budget] = kept
