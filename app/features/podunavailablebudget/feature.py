"""Feature declaration: webhook, Pod admission, controller, and the budget checks of workload controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from app.api import names
from app.features.podunavailablebudget import webhooks
from app.features.podunavailablebudget.budgets import (
    COMPUTED_WITHIN,
    RESIZE_GATE,
    VERTICAL_SCALING,
    AnyBudget,
    Budgets,
    ControllerBudget,
    FindAnother,
    Grants,
    Refused,
    shared_statuses,
)
from app.features.podunavailablebudget.index import Claims, DirectOwners, LiveOwners, Owners
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.pod_admission import DELETE_GATE, UPDATE_GATE, BudgetGuard, BudgetStep
from app.features.podunavailablebudget.reconcile import GATHER, BudgetReconciler
from app.features.podunavailablebudget.targets import BUDGETS, WATCHED, Caches, listed_workloads
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.podunavailablebudget.webhooks import BudgetLookups
from app.framework.denial_log import ProtectionLog, RefusalMetrics
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Provides,
    Reconciling,
    lazily,
)
from app.kube.admission import PolicyRule
from app.kube.controller import Watch
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod
from app.kube.resources import PODS
from app.kube.statuses import LocalStatuses, Statuses
from app.pods.admission import Guarded
from app.pods.disruption_budget import Disruption, DisruptionBudget

NAME: Final = "podunavailablebudget-controller"
_GATES: Final = (DELETE_GATE, UPDATE_GATE)
GUARDED: Final = Guarded(
    "budgets",
    (names.RELATED_PUB, names.RELATED_PUB_OLD),
    removal_gate=DELETE_GATE,
    change_gate=UPDATE_GATE,
    label_prefix=names.UNAVAILABLE_POD_PREFIX,
)

#: Permissions to patch the status, and to read the object after a conflict. [PUB-80]
_MAY_CHARGE: Final = (
    PolicyRule(("get",), (names.POLICY_GROUP,), (POD_UNAVAILABLE_BUDGET.plural,)),
    PolicyRule(("patch",), (names.POLICY_GROUP,), (f"{POD_UNAVAILABLE_BUDGET.plural}/status",)),
)
#: Permissions to read the replicas of unwatched workloads. For other kinds, the operator must add an RBAC
#: rule. [PUB-34]
_MAY_COUNT: Final = (
    PolicyRule(("get",), ("",), ("replicationcontrollers", "replicationcontrollers/scale")),
    PolicyRule(("get",), ("apps",), ("daemonsets", "deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), ("batch",), ("cronjobs", "jobs")),
    PolicyRule(
        ("get",),
        (names.APPS_GROUP,),
        (
            "advancedcronjobs",
            "broadcastjobs",
            "clonesets",
            "daemonsets",
            "statefulsets",
            "uniteddeployments",
            "uniteddeployments/scale",
        ),
    ),
)

#: Component that reports the events about refusals.
SOURCE: Final = "pub-controller"
REASON: Final = "PubPreventPodDeletion"
MESSAGE: Final = "openkruise pub prevents pod deletion"
FAMILY: Final = "pod_unavailable_budget"


def refusal_counters(registry: CollectorRegistry) -> RefusalMetrics:
    """Return the metric that counts refusals."""
    return RefusalMetrics(registry, {FAMILY: "Pod deletions, evictions and updates refused by a PodUnavailableBudget."})


class RefusalRecord:
    """Counts refusals, logs them and records events. The recorder aggregates repeated events of a Pod. [PUB-69]"""

    def __init__(self, counters: RefusalMetrics, log: ProtectionLog, events: EventRecorder | None) -> None:
        self._counters = counters
        self._log = log
        self._events = events

    def __call__(self, pod: Pod, username: str) -> None:
        metadata = pod.metadata
        owner = metadata.controller
        kind, name = (owner.kind, owner.name) if owner is not None else ("unknown", metadata.name)
        self._counters.add(FAMILY, "kind_namespace_name", f"{kind}_{metadata.namespace}_{name}", username)
        self._log.write("PodUnavailableBudget", "Pod", metadata.namespace, metadata.name, username)
        if self._events is not None:
            self._events.event(reference(PODS, pod), "Warning", REASON, MESSAGE)


def webhook(context: AdmissionContext) -> Decisions:
    """Return the handlers of the kind's own webhook, which is served even if the gates are off. [PUB-10]"""
    enabled = any(map(context.enabled, _GATES))
    lookups = BudgetLookups(enabled, context.client, context.stores)
    return Decisions(webhooks.handlers(lookups))


def guarding(context: AdmissionContext) -> Decisions:
    """Return the Pod creation step and the Pod guard."""
    budgets = context.stores(BUDGETS)
    claims = Claims(budgets)
    any_budget: Callable[[str], Awaitable[bool]]
    if context.client is None:
        owners: Owners = DirectOwners()
        statuses: Statuses[PodUnavailableBudget] = LocalStatuses(budgets)
        refused: Refused = lambda _pod, _user: None  # noqa: E731
        any_budget = _any_of_the_files(claims)
    else:
        owners = LiveOwners(context.client)
        any_budget = AnyBudget(claims, context.client, context.flags.text("namespace"))
        statuses = shared_statuses(context.client, budgets, context.rng)
        log = ProtectionLog(Path(context.flags.text("protection-log-path")))
        refused = RefusalRecord(context.counters(refusal_counters), log, context.events)
    keeper = Budgets(
        statuses,
        context.clock,
        resize_is_update=not context.enabled(RESIZE_GATE),
        vertical_scaling=context.enabled(VERTICAL_SCALING),
        find_another=_another(claims, owners),
        waits=COMPUTED_WITHIN if context.client is not None else 0.0,
    )
    guard = BudgetGuard(
        keeper,
        any_budget,
        refused,
        removals=context.enabled(DELETE_GATE),
        updates=context.enabled(UPDATE_GATE),
    )
    return Decisions(steps=(BudgetStep(claims, owners),), guards=(guard,))


def _any_of_the_files(claims: Claims) -> Callable[[str], Awaitable[bool]]:
    """Return the function that checks, in standalone mode, whether the files contain any budget."""

    async def known(_namespace: str) -> bool:
        return bool(claims)

    return known


def _another(claims: Claims, owners: Owners) -> FindAnother:
    """Return the function that finds another budget for a Pod. [PUB-122]"""

    async def find(pod: Pod) -> str:
        namespace, controller = pod.metadata.namespace, pod.metadata.controller
        if not claims.names(namespace):
            return ""
        above = await owners.above(controller, namespace) if controller is not None else ()
        return claims.budget_for(namespace, pod.metadata.labels, above)

    return find


def controller_budget(context: ControllerContext) -> ControllerBudget:
    """Return the budget check of workload controllers."""
    judged = {Disruption.DELETE: DELETE_GATE, Disruption.UPDATE: UPDATE_GATE}
    log = ProtectionLog(Path(context.flags.text("protection-log-path")))
    keeper = Budgets(
        shared_statuses(context.client, context.stores(BUDGETS), context.rng),
        context.client.clock,
        resize_is_update=not context.enabled(RESIZE_GATE),
        vertical_scaling=context.enabled(VERTICAL_SCALING),
        grants=Grants(),
    )
    return ControllerBudget(
        keeper,
        RefusalRecord(context.counters(refusal_counters), log, context.events),
        frozenset(disruption for disruption, gate in judged.items() if context.enabled(gate)),
    )


def budget_controller(context: ControllerContext) -> Reconciling:
    """Build the controller. It shares status writes with the budget checks of this process."""
    caches = Caches.of(context.stores)
    shared = [one for one in context.provided(DisruptionBudget) if isinstance(one, ControllerBudget)]
    reconciler = BudgetReconciler(
        context.client,
        caches,
        shared[0].keeper.statuses if shared else shared_statuses(context.client, caches.budgets, context.rng),
        context.events,
        listed_workloads(caches.configuration, context.own_namespace),
        vertical_scaling=context.enabled(VERTICAL_SCALING),
        grants=shared[0].keeper.grants if shared else None,
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.budgets, reconciler.of_budget),
            *(Watch(store, reconciler.of_workload(kind)) for kind, store in caches.workloads.items()),
            Watch(caches.pods, reconciler.of_pod, GATHER),
        ],
    )


FEATURE: Final = Feature(
    name="podunavailablebudget",
    kinds=(POD_UNAVAILABLE_BUDGET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=budget_controller,
            permissions=(
                *_MAY_CHARGE,
                *_MAY_COUNT,
                PolicyRule(("get", "patch"), ("",), ("pods",)),
            ),
            gates=_GATES,
            workers_flag="podunavailablebudget-workers",
        ),
    ),
    admission=(
        AdmissionPart(webhook, webhooks=webhooks.WEBHOOKS, files=(BUDGETS,)),
        AdmissionPart(
            guarding,
            watched=(BUDGETS,),
            permissions=(*_MAY_CHARGE, *_MAY_COUNT),
            counters=(refusal_counters,),
            event_source=SOURCE,
            gates=_GATES,
            guarded=(GUARDED,),
        ),
    ),
    provides=(
        Provides(
            DisruptionBudget,
            controller_budget,
            watched=(BUDGETS,),
            permissions=_MAY_CHARGE,
            counters=(refusal_counters,),
            event_source=SOURCE,
        ),
    ),
    gates=(DELETE_GATE, UPDATE_GATE, RESIZE_GATE, VERTICAL_SCALING),
    flags=("protection-log-path",),
    commands=lazily("app.features.podunavailablebudget.commands:COMMANDS"),
    dashboard=lazily("app.features.podunavailablebudget.commands:SECTION"),
)
