"""Whether a Pod may be deleted, evicted, updated or resized now (PUB-64, PUB-65, PUB-67). Pure.

First hit wins. What can be said without the budget is said first; the rest is a decision on its freshest copy, which
may be made again on a fresher one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.api.podunavailablebudget import (
    PodUnavailableBudget,
    PodUnavailableBudgetStatus,
    ProtectedOperation,
    protected_operations,
)
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.rulings import Ruling
from app.kube.selectors import Selector, SelectorError, compile_selector
from app.protection.podunavailablebudget.inflight import (
    DISRUPTED_FOR,
    MAX_ENTRIES,
    UNAVAILABLE_FOR,
    holds,
    parse_time,
)
from app.protection.podunavailablebudget.podstate import is_healthy, is_unprotected


class Outcome(StrEnum):
    """What comes of asking."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    #: The budget's numbers are not those of its present spec: nobody can say yet (PUB-121).
    NOT_COMPUTED = "not computed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer, and why: in words for ``explain``, as a message for who is refused."""

    outcome: Outcome
    why: str
    message: str = ""

    @property
    def allowed(self) -> bool:
        """Whether it may be done."""
        return self.outcome is Outcome.ALLOWED


_FORBIDDEN: Final = 'podunavailablebudget.policy.kruise.io "{}" is forbidden: {}'


def allow(why: str) -> Judgement:
    """It may be done."""
    return Judgement(Outcome.ALLOWED, why)


def without_budget(pod: Pod, *, vertical_scaling: bool) -> Judgement | None:
    """Rules 2 and 3: what the Pod itself settles; None where its budget has to be asked."""
    if is_unprotected(pod.metadata):
        return allow("the Pod is annotated not to be protected")
    if not is_healthy(pod, vertical_scaling=vertical_scaling):
        return allow("the Pod does not count as available, so nothing is lost with it")
    return None


def protected(budget: PodUnavailableBudget, *, resize_is_update: bool) -> frozenset[ProtectedOperation]:
    """PUB-65. ``resize_is_update``: gate InPlacePodVerticalScaling is off."""
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
    """Rules 4 to 9, on the budget as it is now; None where there is none."""
    if budget is None or budget.deleting:
        return Ruling(allow("its budget does not exist"))
    if _ignored(budget).matches(pod.metadata.labels):
        return Ruling(allow("the budget ignores Pods with its labels"))
    if operation not in protected(budget, resize_is_update=resize_is_update):
        return Ruling(allow(f"the budget does not protect from {operation}"))
    status = budget.status or PodUnavailableBudgetStatus()
    if is_recorded(status, pod, now):
        return Ruling(allow("it was granted a moment ago"))
    if not is_computed(budget):
        return Ruling(_not_computed(budget), provisional=True)
    if status.desired_available == 0:
        return Ruling(allow("the budget wants no Pod to stay"))
    return _charge(budget, status, pod.metadata.name, operation, now)


#: Matches no Pod: what a missing, empty or unreadable selector stands for here.
def _ignored(budget: PodUnavailableBudget) -> _Nothing | Selector:
    given = budget.spec.ignored_pod_selector
    try:
        selector = compile_selector(given)
    except SelectorError:
        return _NOTHING
    return _NOTHING if selector.empty else selector


class _Nothing:
    """A selector that matches nothing."""

    def matches(self, labels: object) -> bool:  # noqa: ARG002
        """Never."""
        return False


_NOTHING: Final = _Nothing()


def is_computed(budget: PodUnavailableBudget) -> bool:
    """PUB-121: whether the numbers in the status are those of the present spec."""
    return budget.status is not None and budget.status.observed_generation >= budget.metadata.generation


def is_recorded(status: PodUnavailableBudgetStatus, pod: Pod, now: datetime) -> bool:
    """Rule 8: whether something was granted on this Pod that is not seen done yet. What was granted before it was made
    was granted on another of its name."""
    name, made = pod.metadata.name, pod.metadata.creation_timestamp
    noted = (
        ((status.unavailable_pods or {}).get(name), UNAVAILABLE_FOR),
        ((status.disrupted_pods or {}).get(name), DISRUPTED_FOR),
    )
    return any(holds(at, now, lasts) and not _is_before(at, made) for at, lasts in noted)


def _is_before(noted: object, made: datetime | None) -> bool:
    at = parse_time(noted)
    return made is not None and at is not None and at < made


def _charge(
    budget: PodUnavailableBudget,
    status: PodUnavailableBudgetStatus,
    name: str,
    operation: ProtectedOperation,
    now: datetime,
) -> Ruling[PodUnavailableBudget, Judgement]:
    """Rule 9."""
    if status.unavailable_allowed <= 0:
        numbers = f"(allowed 0, desired {status.desired_available}, current {status.current_available})"
        text = _FORBIDDEN.format(budget.name, f"pub unavailable allowed is negative {numbers}")
        return Ruling(Judgement(Outcome.REFUSED, "the budget is used up", text), provisional=True)
    entries = len(status.disrupted_pods or ()) + len(status.unavailable_pods or ())
    if entries > MAX_ENTRIES:
        text = _FORBIDDEN.format(
            budget.name, f"disruptedPods and unavailablePods are too big: {entries} grants are not seen done yet"
        )
        return Ruling(Judgement(Outcome.REFUSED, "too many grants are not seen done yet", text), provisional=True)
    # PUB-123: a Pod that is resized is there afterwards, like one that is updated.
    stays = operation in (ProtectedOperation.UPDATE, ProtectedOperation.RESIZE)
    field = "unavailable_pods" if stays else "disrupted_pods"
    noted = {**(getattr(status, field) or {}), name: rfc3339(now)}
    charged = status.model_copy(update={"unavailable_allowed": status.unavailable_allowed - 1, field: noted})
    return Ruling(allow("the budget lasts"), budget.model_copy(update={"status": charged}))


def _not_computed(budget: PodUnavailableBudget) -> Judgement:
    text = _FORBIDDEN.format(budget.name, "how many Pods may be unavailable is not computed yet: try again in a moment")
    return Judgement(Outcome.NOT_COMPUTED, "the budget is not computed yet", text)
