"""The status of a budget: outstanding grants, the Pods that count, and how many must stay available. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from app.features.podunavailablebudget.kind import protected_total
from app.features.podunavailablebudget.plan.pods import PodFacts, RunningContainer, runs_other_images
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetStatus
from app.kube.clock import parsed_rfc3339
from app.kube.quantities import scaled

# How many Pods must stay available and how many may be disrupted. [PUB-34 … PUB-37]

#: Value for a workload that does not report its replicas. [PUB-34]
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Expected:
    """Number of desired Pods. ``gone`` is set if the workload is missing or being deleted."""

    replicas: int
    gone: bool = False


def desired_available(max_unavailable: int | str | None, min_available: int | str | None, expected: Expected) -> int:
    """Return how many Pods must stay available. Raises ``IntOrPercentError`` for an invalid value."""
    given, unavailable = (min_available, False) if max_unavailable is None else (max_unavailable, True)
    if given is None:
        return 0
    replicas = expected.replicas
    number = scaled(given, max(replicas, 0), round_up=True)
    if expected.gone:
        # A budget of a deleted workload protects nothing; otherwise, the namespace could not be deleted. [PUB-96,
        # PUB-125]
        return 0
    return max(0, replicas - number if unavailable else number)


# Outstanding grants: when an entry is valid and when it is removed. [PUB-54 … PUB-57] The status maps Pods to the time
# of the grant: ``disruptedPods`` for deletions and evictions, ``unavailablePods`` for updates and resizes. A Pod with
# an entry does not count as available, and the budget is not charged for it again.

#: Timeouts of grants. [PUB-55, PUB-56]
DISRUPTED_FOR: Final = timedelta(seconds=20)
UNAVAILABLE_FOR: Final = timedelta(seconds=10)
#: Tolerated clock skew between replicas; entries further in the future are invalid.
CLOCK_SKEW: Final = timedelta(seconds=60)
#: Maximum number of outstanding grants. [PUB-67]
MAX_ENTRIES: Final = 2_000


def holds(noted: object, now: datetime, lasts: timedelta) -> bool:
    """Return whether an entry is a grant that has not timed out."""
    at = parsed_rfc3339(noted)
    return at is not None and now - lasts <= at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations of a Pod since its entry was first seen, or since this process granted its disruption."""

    noted: str
    uid: str
    spec: tuple[int, tuple[str, ...]]
    #: Containers that ran when the entry was first seen.
    running: tuple[RunningContainer, ...] = ()
    #: Sequence number of the grant in this process; 0 if another process granted it.
    grant: int = 0
    #: Whether the spec has changed; if so, ``ready_since`` holds the Pod's value from when the change was seen.
    changed: bool = False
    ready_since: datetime | None = None
    #: Whether the Pod has since been unhealthy or become ready again.
    dipped: bool = False

    def after(self, pod: PodFacts) -> Seen:
        """Return the observations updated with the Pod's current state."""
        if pod.spec != self.spec and not self.changed:
            return replace(self, spec=pod.spec, changed=True, ready_since=pod.ready_since, dipped=not pod.healthy)
        if not self.changed or self.dipped:
            return self
        return replace(self, spec=pod.spec, dipped=not pod.healthy or pod.ready_since != self.ready_since)

    def is_back(self, pod: PodFacts) -> bool:
        """Return whether the Pod was updated and is healthy again. [PUB-56]

        If the update is so fast that the Pod is never seen unhealthy and its ready time, in whole seconds, stays the
        same, the running containers are compared instead.
        """
        return self.changed and pod.healthy and (self.dipped or runs_other_images(self.running, pod))


def first_seen(noted: str, pod: PodFacts) -> Seen:
    """Return the observations of a Pod whose entry is new."""
    return Seen(noted, pod.uid, pod.spec, pod.running)


class EntryState(StrEnum):
    """State of an entry."""

    STAYS = "stays"
    #: The disruption is over, or the Pod is gone.
    DONE = "done"
    #: Timed out; the Pod must be read from the API server before it counts again.
    OVERDUE = "overdue"


def entry_state(noted: str, pod: PodFacts | None, seen: Seen | None, now: datetime, lasts: timedelta) -> EntryState:
    """Return the state of an entry. [PUB-54 … PUB-56]

    ``pod`` is the cached Pod, if any; ``seen`` holds earlier observations. If the Pod has never been in the cache, its
    entry is kept until it times out, because the cache may lag.
    """
    if not holds(noted, now, lasts):
        return EntryState.OVERDUE if pod is not None and pod.active else EntryState.DONE
    if seen is not None and seen.noted == noted and (pod is None or pod.uid != seen.uid):
        return EntryState.DONE
    if pod is not None and not pod.active:
        return EntryState.DONE
    return EntryState.STAYS


def seconds_left(noted: str, now: datetime, lasts: timedelta) -> float:
    """Return the seconds until an entry times out."""
    at = parsed_rfc3339(noted)
    return max(0.0, (min(at, now) + lasts - now).total_seconds()) if at is not None else 0.0


def track(
    entries: Mapping[str, str],
    pods: Mapping[str, PodFacts],
    before: Mapping[str, Seen],
    granted: Mapping[str, Seen] | None = None,
) -> dict[str, Seen]:
    """Return the updated observations of all Pods with an entry.

    ``granted`` holds the Pods as they were when this process granted the disruption. For grants by other processes, the
    first observation may already show the updated Pod.
    """
    found = {}
    for name, noted in entries.items():
        pod, known, origin = pods.get(name), before.get(name), (granted or {}).get(name)
        if origin is not None and (pod is None or (origin.noted, origin.uid) != (noted, pod.uid)):
            origin = None
        if pod is not None and origin is not None and (known is None or known.grant != origin.grant):
            found[name] = origin.after(pod)
        elif known is None or known.noted != noted:
            if pod is not None:
                found[name] = first_seen(noted, pod)
        else:
            found[name] = known.after(pod) if pod is not None and pod.uid == known.uid else known
    return found


# The status of a budget. [PUB-42, PUB-54 … PUB-58]

#: Seconds until a budget with unconfirmed overdue entries is requeued.
REQUEUE_DELAY: Final = 0.01
#: Seconds added to an entry's timeout, so that the entry is overdue when checked.
PAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Observed:
    """Inputs to a budget's status.

    ``confirmed`` holds the Pods with an overdue entry, as read from the API server, or None if they are gone or were
    replaced.
    """

    pods: Mapping[str, PodFacts]
    expected: Expected
    now: datetime
    seen: Mapping[str, Seen] = field(default_factory=dict)
    confirmed: Mapping[str, PodFacts | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The computed status and the follow-up work."""

    status: PodUnavailableBudgetStatus
    #: Pods whose deletion was granted but did not happen. [PUB-55]
    not_deleted: tuple[str, ...] = ()
    #: Pods that must be read from the API server before they count again.
    overdue: tuple[str, ...] = ()
    again_after: float | None = None


def recompute(budget: PodUnavailableBudget, observed: Observed) -> Recomputed:
    """Compute the status of a budget. Raises ``IntOrPercentError``."""
    status = budget.status or PodUnavailableBudgetStatus()
    disrupted = _kept(status.disrupted_pods, observed, DISRUPTED_FOR)
    unavailable = _kept(status.unavailable_pods, observed, UNAVAILABLE_FOR, come_back=True)
    held = disrupted.entries.keys() | unavailable.entries.keys()
    # Pods just read from the API server override the cache.
    pods = (observed.confirmed.get(name, pod) for name, pod in observed.pods.items() if name not in held)
    current = sum(pod is not None and pod.active and pod.healthy for pod in pods)
    spec, total = budget.spec, protected_total(budget.spec.protect_total_replicas, budget.metadata.annotations)
    expected = observed.expected if total is None else Expected(total, gone=observed.expected.gone)
    desired = desired_available(spec.max_unavailable, spec.min_available, expected)
    computed = {
        "observed_generation": budget.metadata.generation,
        "disrupted_pods": disrupted.entries or None,
        "unavailable_pods": unavailable.entries or None,
        "unavailable_allowed": max(0, current - desired),
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
    """Return whether the Pod is available again. Observations that belong to an earlier grant do not count."""
    return pod is not None and seen is not None and seen.noted == noted and seen.is_back(pod)


def _changed(status: PodUnavailableBudgetStatus, computed: Mapping[str, Any]) -> PodUnavailableBudgetStatus:
    """Return the status with the computed values, or the same object if nothing differs. A missing map equals an
    empty one. [PUB-58]"""
    different = {name: value for name, value in computed.items() if (getattr(status, name) or None) != (value or None)}
    return status.model_copy(update=different) if different else status


def is_computed(budget: PodUnavailableBudget) -> bool:
    """Return whether the status reflects the current spec. [PUB-121]"""
    return budget.status is not None and budget.status.observed_generation >= budget.metadata.generation
