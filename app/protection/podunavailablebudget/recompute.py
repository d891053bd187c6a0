"""The status of a budget from what is observed (PUB-42, PUB-54 … PUB-58). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from app.api.podunavailablebudget import PodUnavailableBudget, PodUnavailableBudgetStatus, protected_total
from app.protection.podunavailablebudget.inflight import (
    DISRUPTED_FOR,
    UNAVAILABLE_FOR,
    EntryState,
    Seen,
    entry_state,
    seconds_left,
)
from app.protection.podunavailablebudget.numbers import Expected, allowed, desired_available
from app.protection.podunavailablebudget.podstate import PodFacts

#: Seconds after which something overdue that was not looked at yet is looked at.
REQUEUE_DELAY: Final = 0.01
#: An entry is found overdue a moment after its time, not at it.
PAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Observed:
    """What a budget's status follows from. ``expected``: as its workloads have it.

    ``confirmed``: Pods whose entry is overdue, as the API server has them now; None: it has none, or another of that
    name.
    """

    pods: Mapping[str, PodFacts]
    expected: Expected
    now: datetime
    seen: Mapping[str, Seen] = field(default_factory=dict)
    confirmed: Mapping[str, PodFacts | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The status, and what follows from it."""

    status: PodUnavailableBudgetStatus
    #: Pods that were granted to be deleted, and are there all the same (PUB-55).
    not_deleted: tuple[str, ...] = ()
    #: Pods that have to be looked at before they count again.
    overdue: tuple[str, ...] = ()
    again_after: float | None = None


def recompute(budget: PodUnavailableBudget, observed: Observed) -> Recomputed:
    """The status of this copy of a budget. Raises ``IntOrPercentError``."""
    status = budget.status or PodUnavailableBudgetStatus()
    disrupted = _kept(status.disrupted_pods, observed, DISRUPTED_FOR)
    unavailable = _kept(status.unavailable_pods, observed, UNAVAILABLE_FOR, come_back=True)
    held = disrupted.entries.keys() | unavailable.entries.keys()
    # What was looked at just now counts as it was found.
    pods = (observed.confirmed.get(name, pod) for name, pod in observed.pods.items() if name not in held)
    current = sum(pod is not None and pod.active and pod.healthy for pod in pods)
    spec, total = budget.spec, protected_total(budget.spec.protect_total_replicas, budget.metadata.annotations)
    expected = observed.expected if total is None else Expected(total, gone=observed.expected.gone)
    desired = desired_available(spec.max_unavailable, spec.min_available, expected)
    computed = {
        "observed_generation": budget.metadata.generation,
        "disrupted_pods": disrupted.entries or None,
        "unavailable_pods": unavailable.entries or None,
        "unavailable_allowed": allowed(current, desired),
        "current_available": current,
        "desired_available": desired,
        "total_replicas": expected.replicas,
    }
    times = [left for one in (disrupted, unavailable) for left in one.left]
    overdue = (*disrupted.overdue, *unavailable.overdue)
    return Recomputed(
        status=_changed(status, computed),
        not_deleted=disrupted.lapsed,
        overdue=overdue,
        again_after=REQUEUE_DELAY if overdue else min(times) + PAST if times else None,
    )


@dataclass(slots=True)
class _Kept:
    entries: dict[str, str] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()
    lapsed: tuple[str, ...] = ()
    left: list[float] = field(default_factory=list)


def _kept(entries: Mapping[str, str] | None, observed: Observed, lasts: timedelta, *, come_back: bool = False) -> _Kept:
    found = _Kept()
    for name, noted in (entries or {}).items():
        pod, seen = observed.pods.get(name), observed.seen.get(name)
        what = entry_state(noted, pod, seen, observed.now, lasts)
        if what is EntryState.OVERDUE and name in observed.confirmed:
            live = observed.confirmed[name]
            if live is not None and live.active:
                found.lapsed += (name,)
        elif what is EntryState.OVERDUE:
            found.entries[name] = noted
            found.overdue += (name,)
        elif what is EntryState.STAYS and not (come_back and _is_back(noted, pod, seen)):
            found.entries[name] = noted
            found.left.append(seconds_left(noted, observed.now, lasts))
    return found


def _is_back(noted: str, pod: PodFacts | None, seen: Seen | None) -> bool:
    """What was seen since an earlier grant says nothing about this one."""
    return pod is not None and seen is not None and seen.noted == noted and seen.is_back(pod)


def _changed(status: PodUnavailableBudgetStatus, computed: Mapping[str, Any]) -> PodUnavailableBudgetStatus:
    """PUB-58: the very same status where nothing differs; no map and an empty one are the same."""
    different = {name: value for name, value in computed.items() if (getattr(status, name) or None) != (value or None)}
    return status.model_copy(update=different) if different else status
