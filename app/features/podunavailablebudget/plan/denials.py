"""Decides whether a budget denies a disruption, and with which message. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.features.podunavailablebudget.kind import ProtectedOperation, protected_operations
from app.features.podunavailablebudget.plan.pods import effective_selector, is_healthy, is_unprotected
from app.features.podunavailablebudget.plan.status import (
    DISRUPTED_FOR,
    MAX_ENTRIES,
    UNAVAILABLE_FOR,
    holds,
    is_computed,
)
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetStatus
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.errors import Conflict, KubeError, message_of
from app.kube.objects import Pod
from app.kube.rulings import Ruling

# Whether a Pod may be deleted, evicted, updated or resized now. [PUB-64, PUB-65, PUB-67] The first matching rule wins.
# Rules that need no budget come first. The others are applied to the latest known version of the budget, and again if a
# newer one appears.


class Outcome(StrEnum):
    """Outcome of a request."""

    ALLOWED = "allowed"
    #: The refusal is counted, logged and recorded as an event on the Pod. [PUB-69]
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
        return allow("the Pod is already unavailable")
    return None


def protected(budget: PodUnavailableBudget, *, resize_is_update: bool) -> frozenset[ProtectedOperation]:
    """Return the protected operations. ``resize_is_update`` is set if gate InPlacePodVerticalScaling is off.
    [PUB-65]"""
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
    """Apply rules 4 to 9. ``budget`` is the current budget, or None if it does not exist."""
    if budget is None or budget.deleting:
        return Ruling(allow("its budget does not exist"))
    ignored = effective_selector(budget.spec.ignored_pod_selector)
    if ignored is not None and ignored.matches(pod.metadata.labels):
        return Ruling(allow("the budget's ignoredPodSelector matches the Pod"))
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


def is_recorded(status: PodUnavailableBudgetStatus, pod: Pod, now: datetime) -> bool:
    """Return whether the Pod has an outstanding grant. A grant older than the Pod belongs to a former Pod of the same
    name. (Rule 7) [PUB-55, PUB-56]"""
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


def failed(name: str, error: KubeError | TimeoutError) -> Judgement:
    """Return the refusal for a budget that cannot be read or written. [PUB-82, PUB-83]"""
    why = (
        "every attempt conflicted with another write"
        if isinstance(error, Conflict)
        else "its status could not be written"
    )
    return Judgement(Outcome.REFUSED, why, _FORBIDDEN.format(name, message_of(error)))
