"""Who keeps the budgets: answers whether a Pod may be touched now, and has the answer written down first.

One per process. Reviews and the controllers of that process ask the same one, so that what they ask together is decided
together (PUB-80).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final, Protocol, TypeAlias, TypeVar

from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET, PodUnavailableBudget, ProtectedOperation
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.errors import ApiError, Conflict, KubeError
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.kube.rulings import Decision, Ruling
from app.kube.shared_status import SharedStatus
from app.kube.store import Store
from app.protection.podunavailablebudget.grants import Grants
from app.protection.podunavailablebudget.judgement import (
    Judgement,
    Outcome,
    is_computed,
    judge,
    without_budget,
)
from app.protection.podunavailablebudget.podstate import facts_of, related_budget

R = TypeVar("R")

#: PUB-121: how long a review waits for the controller to compute a budget that is new or was changed, and how often it
#: looks, in seconds.
COMPUTED_WITHIN: Final = 2.0
LOOK_AGAIN: Final = 0.05
RESIZE_GATE: Final = "InPlacePodVerticalScaling"
#: Gate of workloads: they resize Pods in place, so a resize under way makes a Pod inconsistent.
VERTICAL_SCALING: Final = "InPlaceWorkloadVerticalScaling"

#: PUB-122: another budget for a Pod whose own is gone: its name, '' for none.
FindAnother: TypeAlias = Callable[[Pod], Awaitable[str]]


class Statuses(Protocol):
    """The statuses of budgets, as many write them; see :class:`app.kube.shared_status.SharedStatus`."""

    async def decide(self, key: ObjectKey, decision: Decision[PodUnavailableBudget, R], /) -> R:
        """The answer to one request."""
        ...

    def freshest(self, key: ObjectKey, /) -> PodUnavailableBudget | None:
        """The newest copy known."""
        ...


def shared_statuses(
    client: Client, budgets: Store[PodUnavailableBudget], rng: Random
) -> SharedStatus[PodUnavailableBudget]:
    """The statuses in a cluster."""
    return SharedStatus(
        client,
        POD_UNAVAILABLE_BUDGET.resource(),
        budgets.by_key,
        rng,
        decode=PodUnavailableBudget.model_validate_json,
        status_of=status_of,
    )


def status_of(budget: PodUnavailableBudget) -> Mapping[str, object]:
    """The status as JSON."""
    return budget.status.to_dict() if budget.status is not None else {}


def entries_of(budget: PodUnavailableBudget) -> dict[str, str]:
    """What was granted and is not seen done yet: Pod → time."""
    status = budget.status
    return {**(status.disrupted_pods or {}), **(status.unavailable_pods or {})} if status is not None else {}


class LocalStatuses:
    """The statuses in standalone mode: as the files have them, changed in memory only."""

    def __init__(self, budgets: Store[PodUnavailableBudget]) -> None:
        self._budgets = budgets
        self._changed: dict[ObjectKey, tuple[PodUnavailableBudget, PodUnavailableBudget]] = {}

    async def decide(self, key: ObjectKey, decision: Decision[PodUnavailableBudget, R]) -> R:
        """The answer; what it takes is taken here alone."""
        found = self._budgets.by_key(key)
        ruling = decision(self.freshest(key))
        if ruling.changed is not None and found is not None:
            self._changed[key] = (found, ruling.changed)
        return ruling.answer

    def freshest(self, key: ObjectKey) -> PodUnavailableBudget | None:
        """As it is by now, until the file changes."""
        found = self._budgets.by_key(key)
        origin, changed = self._changed.get(key, (None, None))
        return changed if origin is found and changed is not None else found


class BudgetKeeper:
    """Judges Pods by their budgets. ``waits``: seconds to wait for a budget that is not computed yet."""

    def __init__(
        self,
        statuses: Statuses,
        clock: Clock,
        *,
        resize_is_update: bool,
        vertical_scaling: bool,
        find_another: FindAnother | None = None,
        waits: float = 0.0,
        grants: Grants | None = None,
    ) -> None:
        self.statuses = statuses
        #: What is granted, for the controller of this process.
        self.grants = grants
        self._clock = clock
        self._resize_is_update = resize_is_update
        self._vertical_scaling = vertical_scaling
        self._find_another = find_another
        self._waits = waits

    async def judge(
        self, pod: Pod, operation: ProtectedOperation, *, budget: str = "", dry_run: bool = False
    ) -> Judgement:
        """Whether this may be done to the Pod now; a grant is written down unless it is a dry run (PUB-68).

        ``budget``: its name, if not the Pod's annotations say it. Never raises: what cannot be found out is refused.
        """
        name = budget or related_budget(pod.metadata.annotations)
        if not name:
            return Judgement(Outcome.ALLOWED, "it belongs to no budget")
        settled = without_budget(pod, vertical_scaling=self._vertical_scaling)
        if settled is not None:
            return settled
        try:
            found, exists = await self._ask(pod, operation, name, dry_run=dry_run)
            if not exists and self._find_another is not None:
                another = await self._find_another(pod)
                if another and another != name:
                    found, _ = await self._ask(pod, operation, another, dry_run=dry_run)
        except (KubeError, TimeoutError) as error:
            return _failed(name, error)
        return found

    async def _ask(
        self, pod: Pod, operation: ProtectedOperation, name: str, *, dry_run: bool
    ) -> tuple[Judgement, bool]:
        """The judgement, and whether the budget exists."""
        key = ObjectKey(pod.metadata.namespace, name)
        deadline = self._clock.monotonic() + self._waits

        def decision(budget: PodUnavailableBudget | None) -> Ruling[PodUnavailableBudget, tuple[Judgement, bool]]:
            ruling = judge(budget, pod, operation, self._clock.now(), resize_is_update=self._resize_is_update)
            answer = (ruling.answer, budget is not None and not budget.deleting)
            copy = ruling.changed or budget
            noted = entries_of(copy).get(pod.metadata.name) if copy is not None else None
            if self.grants is not None and noted and ruling.answer.allowed and not dry_run:
                # Here, in the turn of the requests: what the controller has seen of an earlier update ends nothing now.
                self.grants.note(key, noted, facts_of(pod, vertical_scaling=self._vertical_scaling))
            return Ruling(answer, None if dry_run else ruling.changed, provisional=ruling.provisional)

        while True:
            found = await self.statuses.decide(key, decision)
            if found[0].outcome is not Outcome.NOT_COMPUTED or self._clock.monotonic() >= deadline:
                return found
            await self._computed(key, deadline)

    async def _computed(self, key: ObjectKey, deadline: float) -> None:
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_AGAIN)
            budget = self.statuses.freshest(key)
            if budget is None or is_computed(budget):
                return


def _failed(name: str, error: KubeError | TimeoutError) -> Judgement:
    """PUB-82, PUB-83."""
    text = error.message if isinstance(error, ApiError) and error.message else str(error)
    why = "other replicas were faster each time" if isinstance(error, Conflict) else "its status could not be written"
    message = f'podunavailablebudget.policy.kruise.io "{name}" is forbidden: {text}'
    return Judgement(Outcome.REFUSED, why, message)
