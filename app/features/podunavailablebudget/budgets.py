"""Decides whether a Pod may be disrupted, and records each grant in the budget's status before returning it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final, TypeAlias, TypeVar

from app.features.podunavailablebudget.index import Claims
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET, ProtectedOperation
from app.features.podunavailablebudget.plan.denials import Judgement, Outcome, failed, judge, without_budget
from app.features.podunavailablebudget.plan.pods import PodFacts, facts_of, related_budget
from app.features.podunavailablebudget.plan.status import MAX_ENTRIES, Seen, first_seen, is_computed
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.concurrency import Coalesced, Remembered
from app.kube.errors import KubeError, NotFound
from app.kube.objects import Pod, decode_metadata
from app.kube.resources import ObjectKey
from app.kube.rulings import Ruling
from app.kube.statuses import SharedStatus, Statuses
from app.kube.store import Store
from app.pods.disruption_budget import ALLOWED, Disruption, Verdict

# Pods as they were when this process granted their disruption. [PUB-56] A budget's status records only the time. A
# controller in this process updates the Pod immediately, and the Pod may be available again before the budget is
# reconciled, so its former state is known only here.

#: Maximum number of budgets whose grants are kept in memory. Grants of other budgets count until they time out in the
#: status.
MAX_BUDGETS: Final = 1_000


class Grants:
    """The latest grants of each budget, by Pod."""

    def __init__(self) -> None:
        self._by_budget: OrderedDict[ObjectKey, dict[str, Seen]] = OrderedDict()
        self._numbers = count(1)

    def note(self, budget: ObjectKey, noted: str, pod: PodFacts) -> None:
        """Record a grant. ``noted`` is the time written to the status."""
        known = self._by_budget.setdefault(budget, {})
        self._by_budget.move_to_end(budget)
        known[pod.name] = replace(first_seen(noted, pod), grant=next(self._numbers))
        if len(known) > MAX_ENTRIES:
            del known[next(iter(known))]
        if len(self._by_budget) > MAX_BUDGETS:
            self._by_budget.popitem(last=False)

    def of(self, budget: ObjectKey) -> Mapping[str, Seen]:
        """Return the grants of a budget by Pod name."""
        return self._by_budget.get(budget, {})

    def latest(self, budget: ObjectKey, seen: Mapping[str, Seen]) -> dict[str, Seen]:
        """Return the observations, except those of Pods whose disruption has since been granted again."""
        known = self.of(budget)
        return {name: one for name, one in seen.items() if name not in known or known[name].grant == one.grant}

    def keep(self, budget: ObjectKey, pods: Collection[str]) -> None:
        """Drop the budget's grants, except those for these Pods."""
        known = self._by_budget.pop(budget, {})
        if kept := {name: seen for name, seen in known.items() if name in pods}:
            self._by_budget[budget] = kept


# Checks requests against budgets. A grant is written to the status before it is returned. Each process has one
# instance, shared by its webhooks and controllers, so that concurrent requests are decided together. [PUB-80]

R = TypeVar("R")

#: Seconds that a review waits for the controller to compute the status of a new or changed budget, and the polling
#: interval. [PUB-121]
COMPUTED_WITHIN: Final = 2.0
LOOK_AGAIN: Final = 0.05
RESIZE_GATE: Final = "InPlacePodVerticalScaling"
#: Feature gate for in-place resizes by workloads. If it is on, a Pod with a resize in progress counts as inconsistent.
VERTICAL_SCALING: Final = "InPlaceWorkloadVerticalScaling"

#: Returns the name of another budget for a Pod whose own budget is gone, or ''. [PUB-122]
FindAnother: TypeAlias = Callable[[Pod], Awaitable[str]]
#: Called with each Pod for which a request was refused, and the name of the user.
Refused: TypeAlias = Callable[[Pod, str], None]


def shared_statuses(
    client: Client, budgets: Store[PodUnavailableBudget], rng: Random
) -> SharedStatus[PodUnavailableBudget]:
    """Return the shared statuses of a cluster's budgets."""
    return SharedStatus(
        client,
        POD_UNAVAILABLE_BUDGET.resource(),
        budgets.by_key,
        rng,
        decode=PodUnavailableBudget.read,
        status_of=status_of,
    )


def status_of(budget: PodUnavailableBudget) -> Mapping[str, object]:
    """Return the status as JSON."""
    return budget.status.to_dict() if budget.status is not None else {}


def entries_of(budget: PodUnavailableBudget) -> dict[str, str]:
    """Return the times of the outstanding grants by Pod name."""
    status = budget.status
    return {**(status.disrupted_pods or {}), **(status.unavailable_pods or {})} if status is not None else {}


class Budgets:
    """Checks disruptions of Pods against their budgets. ``waits`` is the number of seconds to wait for a budget's
    status to be computed."""

    def __init__(
        self,
        statuses: Statuses[PodUnavailableBudget],
        clock: Clock,
        *,
        resize_is_update: bool,
        vertical_scaling: bool,
        find_another: FindAnother | None = None,
        waits: float = 0.0,
        grants: Grants | None = None,
    ) -> None:
        self.statuses = statuses
        #: Recent grants, shared with the controller in this process.
        self.grants = grants
        self._clock = clock
        self._resize_is_update = resize_is_update
        self._vertical_scaling = vertical_scaling
        self._find_another = find_another
        self._waits = waits

    async def judge(
        self, pod: Pod, operation: ProtectedOperation, *, budget: str = "", dry_run: bool = False
    ) -> Judgement:
        """Return whether the operation is allowed now, and record a grant unless ``dry_run`` is set. [PW-27]

        ``budget`` overrides the name in the Pod's annotations. Never raises: errors count as refusals.
        """
        name = budget or related_budget(pod.metadata.annotations)
        if not name:
            return Judgement(Outcome.ALLOWED, "it has no budget")
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
            return failed(name, error)
        return found

    async def _ask(
        self, pod: Pod, operation: ProtectedOperation, name: str, *, dry_run: bool
    ) -> tuple[Judgement, bool]:
        """Return the judgment, and whether the budget exists."""
        key = ObjectKey(pod.metadata.namespace, name)
        deadline = self._clock.monotonic() + self._waits

        def decision(budget: PodUnavailableBudget | None) -> Ruling[PodUnavailableBudget, tuple[Judgement, bool]]:
            ruling = judge(budget, pod, operation, self._clock.now(), resize_is_update=self._resize_is_update)
            answer = (ruling.answer, budget is not None and not budget.deleting)
            copy = ruling.changed or budget
            noted = entries_of(copy).get(pod.metadata.name) if copy is not None else None
            if self.grants is not None and noted and ruling.answer.allowed and not dry_run:
                # Note the grant before writing the status; otherwise, observations of an earlier update could end it.
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


# Workload controllers check the budget before they disrupt a Pod, as the webhook does, but in their own process.
# [PUB-90]

#: User name under which refused requests of controllers are recorded.
USERNAME: Final = "kruise-manager"


class ControllerBudget:
    """Checks disruptions by controllers against budgets. ``judged`` holds the disruptions whose gate is on."""

    def __init__(self, keeper: Budgets, refused: Refused, judged: frozenset[Disruption]) -> None:
        self.keeper = keeper
        self._refused = refused
        self._judged = judged

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        """Return whether the Pod may be disrupted now. A grant is recorded, so the request that follows is not charged
        again."""
        if disruption not in self._judged:
            return ALLOWED
        found = await self.keeper.judge(pod, ProtectedOperation(disruption.value))
        if found.allowed:
            return ALLOWED
        self._refused(pod, USERNAME)
        return Verdict(False, found.message)


# Evictions need no lookup of the Pod if the cluster has no budget. The watch may lag when the first budget is created,
# so if the cache has none, the API server is queried too, at most once a second.

#: Seconds for which the API server's answer is cached.
REMEMBERED: Final = 1.0


class AnyBudget:
    """Looks for budgets in the cache, then on the API server. ``namespace`` is the watched namespace, or "" for all."""

    def __init__(self, claims: Claims, client: Client, namespace: str = "") -> None:
        self._claims = claims
        self._client = client
        self._namespace = namespace
        ask: Coalesced[str, bool] = Coalesced(self._is_there)
        self._any_there = Remembered(client.clock, lambda: ask(""), seconds=REMEMBERED)

    async def __call__(self, namespace: str) -> bool:
        """Return whether a Pod in this namespace may have a budget. Raises ``KubeError`` if it cannot tell."""
        if self._namespace not in ("", namespace):
            return False
        if self._claims:
            return True
        return await self._any_there()

    async def _is_there(self, _: str) -> bool:
        try:
            page = await self._client.list_page(
                POD_UNAVAILABLE_BUDGET.resource(), self._namespace, limit=1, metadata_only=True, decode=decode_metadata
            )
        except NotFound:
            return False  # the CRD is not installed
        return bool(page.items)
