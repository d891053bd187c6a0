"""Decides whether a disruption is allowed and which grants are outstanding. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.features.podunavailablebudget.kind import ProtectedOperation, protected_operations
from app.features.podunavailablebudget.plan.pods import (
    PodFacts,
    RunningContainer,
    effective_selector,
    is_healthy,
    is_unprotected,
    runs_other_images,
)
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetStatus
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Pod
from app.kube.rulings import Ruling

# Outstanding grants: when an entry is valid and when it is removed. [PUB-54 … PUB-57] The status maps Pods to the time
# of the grant: ``disruptedPods`` for deletions and evictions, ``unavailablePods`` for updates and resizes. A Pod with
# an entry does not count as available and is not charged again.

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
    """Observations of a Pod since its entry was first seen, or since this process granted it."""

    noted: str
    uid: str
    spec: tuple[int, tuple[str, ...]]
    #: Containers that ran when the entry was first seen.
    running: tuple[RunningContainer, ...] = ()
    #: Number of the grant by this process; 0 if another process granted it.
    grant: int = 0
    #: Whether the spec has changed, and since when the Pod had been ready at that time.
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

        An update may be so fast that the Pod is never seen unhealthy and becomes ready within the same second; then its
        running containers decide.
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

    ``pod`` is the Pod in the cache, if any; ``seen`` holds earlier observations. The entry of a Pod that the cache has
    never shown stays until it times out, as the cache may lag.
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

    ``granted`` holds Pods as they were when this process granted the disruption. For grants by other processes, the
    first observation may already be of the updated Pod.
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


# Whether a Pod may be deleted, evicted, updated or resized now. [PUB-64, PUB-65, PUB-67] The first matching rule wins.
# Rules that need no budget come first. The others are applied to the budget's freshest copy, and again if there is a
# newer one.


class Outcome(StrEnum):
    """Outcome of a request."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    #: The status does not reflect the current spec yet. [PUB-121]
    NOT_COMPUTED = "not computed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcome of a request, the reason shown by ``explain``, and the message of the refusal."""

    outcome: Outcome
    why: str
    message: str = ""

    @property
    def allowed(self) -> bool:
        return self.outcome is Outcome.ALLOWED


_FORBIDDEN: Final = 'podunavailablebudget.policy.kruise.io "{}" is forbidden: {}'


def allow(why: str) -> Judgement:
    """Allow the request."""
    return Judgement(Outcome.ALLOWED, why)


def without_budget(pod: Pod, *, vertical_scaling: bool) -> Judgement | None:
    """Apply rules 2 and 3, which need only the Pod. Return None if the budget must decide."""
    if is_unprotected(pod.metadata):
        return allow("an annotation exempts the Pod from protection")
    if not is_healthy(pod, vertical_scaling=vertical_scaling):
        return allow("the Pod is unavailable already")
    return None


def protected(budget: PodUnavailableBudget, *, resize_is_update: bool) -> frozenset[ProtectedOperation]:
    """Return the protected operations. ``resize_is_update``: gate InPlacePodVerticalScaling is off. [PUB-65]"""
    found = set(protected_operations(budget.spec.protect_operations, budget.metadata.annotations))
    if resize_is_update and ProtectedOperation.UPDATE in found:
        found.add(ProtectedOperation.RESIZE)
    return frozenset(found)


def judge(
    budget: PodUnavailableBudget | None,
    pod: Pod,
    operation: ProtectedOperation,
    now: datetime,
    *,
    resize_is_update: bool,
) -> Ruling[PodUnavailableBudget, Judgement]:
    """Apply rules 4 to 9 to the current budget, or None if it does not exist."""
    if budget is None or budget.deleting:
        return Ruling(allow("its budget does not exist"))
    ignored = effective_selector(budget.spec.ignored_pod_selector)
    if ignored is not None and ignored.matches(pod.metadata.labels):
        return Ruling(allow("the budget ignores Pods with its labels"))
    if operation not in protected(budget, resize_is_update=resize_is_update):
        return Ruling(allow(f"the budget does not protect against {operation}"))
    status = budget.status or PodUnavailableBudgetStatus()
    if is_recorded(status, pod, now):
        return Ruling(allow("a disruption of the Pod is already granted"))
    if not is_computed(budget):
        text = _FORBIDDEN.format(budget.name, "its status is not computed yet: try again shortly")
        return Ruling(Judgement(Outcome.NOT_COMPUTED, "the budget is not computed yet", text), provisional=True)
    if status.desired_available == 0:
        return Ruling(allow("the budget requires no available Pods"))
    return _charge(budget, status, pod.metadata.name, operation, now)


def is_computed(budget: PodUnavailableBudget) -> bool:
    """Return whether the status reflects the current spec. [PUB-121]"""
    return budget.status is not None and budget.status.observed_generation >= budget.metadata.generation


def is_recorded(status: PodUnavailableBudgetStatus, pod: Pod, now: datetime) -> bool:
    """Return whether the Pod has an outstanding grant. A grant older than the Pod belongs to a former Pod of the same
    name. (Rule 8)"""
    name, made = pod.metadata.name, pod.metadata.creation_timestamp
    noted = (
        ((status.unavailable_pods or {}).get(name), UNAVAILABLE_FOR),
        ((status.disrupted_pods or {}).get(name), DISRUPTED_FOR),
    )
    return any(holds(at, now, lasts) and not _is_before(at, made) for at, lasts in noted)


def _is_before(noted: object, made: datetime | None) -> bool:
    at = parsed_rfc3339(noted)
    return made is not None and at is not None and at < made


def _charge(
    budget: PodUnavailableBudget,
    status: PodUnavailableBudgetStatus,
    name: str,
    operation: ProtectedOperation,
    now: datetime,
) -> Ruling[PodUnavailableBudget, Judgement]:
    """Charge the budget, or refuse if it is exhausted. (Rule 9)"""
    if status.unavailable_allowed <= 0:
        numbers = f"(allowed 0, desired {status.desired_available}, current {status.current_available})"
        text = _FORBIDDEN.format(budget.name, f"pub unavailable allowed is negative {numbers}")
        return Ruling(Judgement(Outcome.REFUSED, "the budget is used up", text), provisional=True)
    entries = len(status.disrupted_pods or ()) + len(status.unavailable_pods or ())
    if entries > MAX_ENTRIES:
        text = _FORBIDDEN.format(
            budget.name, f"disruptedPods and unavailablePods are too big: {entries} grants are outstanding"
        )
        return Ruling(Judgement(Outcome.REFUSED, "too many grants are outstanding", text), provisional=True)
    # A resized Pod still exists afterwards, like an updated one. [PUB-123]
    stays = operation in (ProtectedOperation.UPDATE, ProtectedOperation.RESIZE)
    field = "unavailable_pods" if stays else "disrupted_pods"
    noted = {**(getattr(status, field) or {}), name: rfc3339(now)}
    charged = status.model_copy(update={"unavailable_allowed": status.unavailable_allowed - 1, field: noted})
    return Ruling(allow("the budget allows it"), budget.model_copy(update={"status": charged}))
