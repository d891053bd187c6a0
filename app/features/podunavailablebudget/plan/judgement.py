"""Whether a disruption is allowed, and which disruptions are still under way. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from app.features.podunavailablebudget.kind import ProtectedOperation, protected_operations
from app.features.podunavailablebudget.plan.pods import (
    PodFacts,
    RunningContainer,
    is_healthy,
    is_unprotected,
    runs_other_images,
)
from app.features.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetStatus
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.rulings import Ruling
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector

# What was granted and is not seen done yet: when an entry holds, and when it leaves (PUB-54 … PUB-57). Pure.
#
# The status has two maps, Pod → time of the grant: ``disruptedPods`` for deletions and evictions, ``unavailablePods``
# for updates and resizes. A Pod in one of them does not count as available, and is not charged again.

#: PUB-55, PUB-56: how long a grant is waited for.
DISRUPTED_FOR: Final = timedelta(seconds=20)
UNAVAILABLE_FOR: Final = timedelta(seconds=10)
#: Clocks of replicas differ; what is noted for later than this is nothing that was granted.
CLOCK_SKEW: Final = timedelta(seconds=60)
#: PUB-67: more are not granted at once.
MAX_ENTRIES: Final = 2_000

_time: Final = msgspec.json.Decoder(datetime)


def parse_time(text: object) -> datetime | None:
    """A time as the API has it; None for anything else."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return found if found.tzinfo is not None else None


def holds(noted: object, now: datetime, lasts: timedelta) -> bool:
    """Whether an entry still stands for a grant."""
    at = parse_time(noted)
    return at is not None and now - lasts <= at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Seen:
    """What the controller has seen of a Pod since it first saw its entry, or since it was granted in this process."""

    noted: str
    uid: str
    spec: tuple[int, tuple[str, ...]]
    #: What ran at first.
    running: tuple[RunningContainer, ...] = ()
    #: Which grant of this process it is since; 0 for one of another.
    grant: int = 0
    #: Since when the Pod was ready when its spec was first seen changed.
    changed: bool = False
    ready_since: datetime | None = None
    #: Whether it was not healthy, or became ready anew, since then.
    dipped: bool = False

    def after(self, pod: PodFacts) -> Seen:
        """The same with what is to be seen now."""
        if pod.spec != self.spec and not self.changed:
            return replace(self, spec=pod.spec, changed=True, ready_since=pod.ready_since, dipped=not pod.healthy)
        if not self.changed or self.dipped:
            return self
        return replace(self, spec=pod.spec, dipped=not pod.healthy or pod.ready_since != self.ready_since)

    def is_back(self, pod: PodFacts) -> bool:
        """PUB-56: whether the update came, and the Pod with it is healthy again. It may be so soon that nobody saw it
        unhealthy, and within the second since when it was ready before; what runs tells it then."""
        return self.changed and pod.healthy and (self.dipped or runs_other_images(self.running, pod))


def first_seen(noted: str, pod: PodFacts) -> Seen:
    """A Pod whose entry is new to us."""
    return Seen(noted, pod.uid, pod.spec, pod.running)


class EntryState(StrEnum):
    """What becomes of an entry."""

    STAYS = "stays"
    #: Done, or about a Pod that there is no more.
    DONE = "done"
    #: Its time is over; the Pod has to be looked at before it counts again.
    OVERDUE = "overdue"


def entry_state(noted: str, pod: PodFacts | None, seen: Seen | None, now: datetime, lasts: timedelta) -> EntryState:
    """PUB-54 … PUB-56. ``pod``: as the cache has it, None where it has none; ``seen``: what was seen of it before.

    An entry about a Pod that the cache has never shown stays its time: it may be the cache that is behind.
    """
    if not holds(noted, now, lasts):
        return EntryState.OVERDUE if pod is not None and pod.active else EntryState.DONE
    if seen is not None and seen.noted == noted and (pod is None or pod.uid != seen.uid):
        return EntryState.DONE
    if pod is not None and not pod.active:
        return EntryState.DONE
    return EntryState.STAYS


def seconds_left(noted: str, now: datetime, lasts: timedelta) -> float:
    """How long an entry that holds will hold yet."""
    at = parse_time(noted)
    return max(0.0, (min(at, now) + lasts - now).total_seconds()) if at is not None else 0.0


def track(
    entries: Mapping[str, str],
    pods: Mapping[str, PodFacts],
    before: Mapping[str, Seen],
    granted: Mapping[str, Seen] | None = None,
) -> dict[str, Seen]:
    """What is seen of the Pods that have an entry, entry by entry.

    ``granted``: Pods as they were when this process granted it; of others what is seen first may be the update already.
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


# Whether a Pod may be deleted, evicted, updated or resized now (PUB-64, PUB-65, PUB-67). Pure.
#
# First hit wins. What can be said without the budget is said first; the rest is a decision on its freshest copy, which
# may be made again on a fresher one.


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
