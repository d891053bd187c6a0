"""The SidecarSet feature: injection into new Pods, webhooks, controller, and the report of Pods that bypassed
injection."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.sidecarset import webhooks
from app.features.sidecarset.injection.selection import RecentSets, indexed
from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.missed_pods import NAME as REPAIR
from app.features.sidecarset.missed_pods import BypassReport, Repair, bypassed_counter
from app.features.sidecarset.plan.missed_pods import MISSED_BY, lacking_sets, missing_from
from app.features.sidecarset.pod_admission import (
    RECORDED_REVISIONS,
    SIDECAR_SETS,
    InjectionLookups,
    NewerSets,
    SidecarSetStep,
    refusal_events,
)
from app.features.sidecarset.reconcile import (
    INJECTED_BY,
    Caches,
    SidecarSetReconciler,
    by_injecting_set,
    set_aside_gauge,
)
from app.features.sidecarset.webhooks import SidecarSetLookups
from app.features.sidecarset.writes import Roller
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    BackgroundPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Reconciling,
    lazily,
)
from app.framework.options import Gate
from app.framework.watched import CONFIGURATION, NAMESPACES, PODS
from app.kube.admission import PolicyRule
from app.kube.controller import Watch, to_self
from app.kube.objects import Pod
from app.pods.disruption_budget import DisruptionBudget
from app.pods.predicates import BY_CONTROLLER, controller_keys

NAME: Final = "sidecarset-controller"
_DEFAULTS_ALLOWED: Final = "SidecarSetPatchPodMetadataDefaultsAllowed"
_SORT: Final = "EnableSortSidecarContainerByName"

_PODS: Final = PODS.indexed(**{INJECTED_BY: by_injecting_set, MISSED_BY: missing_from})
#: The manager gets permission to evict Pods only if this gate is enabled.
REPAIR_GATE: Final = Gate("RepairMissedPods", "Evicts Pods that lack their sidecars, one by one and within budgets")
_CONTROLLED_PODS: Final = _PODS.indexed(**{BY_CONTROLLER: controller_keys})


def sidecarset_controller(context: ControllerContext) -> Reconciling:
    """Return the SidecarSet controller."""
    stores = context.stores
    caches = Caches(stores(SIDECAR_SETS), stores(_PODS), stores(NAMESPACES), stores(RECORDED_REVISIONS))
    budget = next(iter(context.provided(DisruptionBudget)), None)
    roller = Roller(context.client, context.events, budget)
    ignored = context.counters(set_aside_gauge)
    reconciler = SidecarSetReconciler(context.client, caches, context.own_namespace, context.events, ignored, roller)
    return Reconciling(
        reconciler,
        [
            Watch(caches.sets, to_self, reconciler.coalesce_delay),
            Watch(caches.pods, reconciler.keys_for_pod, reconciler.coalesce_delay),
            Watch(caches.namespaces, reconciler.keys_for_namespace),
            Watch(caches.revisions, reconciler.keys_for_revision),
        ],
    )


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks, and the injecting mutator."""
    stores, client, enabled = context.stores, context.client, context.enabled
    sets = stores(SIDECAR_SETS)
    index = indexed(sets)
    newer = NewerSets(client, index.shows) if client is not None else None
    injection = InjectionLookups(stores(NAMESPACES), stores(RECORDED_REVISIONS), client, context.own_namespace, newer)
    report = refusal_events(context.events, sets.get) if context.events is not None else None
    step = SidecarSetStep(
        index, injection, context.clock, context.rng.random, sort_by_name=enabled(_SORT), report=report
    )
    lookups = SidecarSetLookups(
        client, stores, context.own_namespace, newer, defaults_allowed=enabled(_DEFAULTS_ALLOWED)
    )
    # Without a cluster, nothing is stored, so there are no admitted sets to wait for. [SS-39]
    recent = RecentSets(index, context.clock) if client is not None else None
    return Decisions(webhooks.handlers(lookups, recent), (step,))


def bypass_report(context: ControllerContext) -> BypassReport:
    """Return the report of Pods that were created without their sidecars."""
    stores = context.stores
    return BypassReport(
        context.client,
        stores(_PODS),
        stores(SIDECAR_SETS),
        stores(NAMESPACES),
        context.events,
        context.counters(bypassed_counter),
        context.reviewed_namespaces,
        context.leading,
    )


def repair_controller(context: ControllerContext) -> Reconciling:
    """Return the controller that replaces Pods without their sidecars."""
    stores = context.stores
    pods, namespaces = stores(_CONTROLLED_PODS), stores(NAMESPACES)
    index = indexed(stores(SIDECAR_SETS))

    def still_missing(pod: Pod) -> bool:
        namespace = namespaces.get(pod.metadata.namespace)
        return namespace is not None and bool(
            set(missing_from(pod)) & set(lacking_sets(pod, index, namespace.metadata.labels))
        )

    repair = Repair(context.client, pods, context.events, still_missing)
    return Reconciling(repair, [Watch(pods, repair.keys_for_pod)])


FEATURE: Final = Feature(
    name="sidecarset",
    kinds=(SIDECAR_SET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=(SIDECAR_SETS, _PODS, NAMESPACES, RECORDED_REVISIONS),
            make=sidecarset_controller,
            permissions=(
                # [SS-109]
                PolicyRule(("get",), (names.APPS_GROUP,), ("sidecarsets",)),
                PolicyRule(("patch",), (names.APPS_GROUP,), ("sidecarsets/status",)),
                # Setting an owner reference with blockOwnerDeletion requires permission to update the owner's
                # finalizers.
                PolicyRule(("update",), (names.APPS_GROUP,), ("sidecarsets/finalizers",)),
                PolicyRule(
                    ("create", "delete", "get", "patch"), ("apps",), ("controllerrevisions",), own_namespace=True
                ),
                PolicyRule(("get",), ("",), ("namespaces", "pods")),
                PolicyRule(("patch",), ("",), ("pods", "pods/status")),
            ),
            counters=(set_aside_gauge,),
            workers_flag="sidecarset-workers",
        ),
        ControllerPart(
            REPAIR,
            watched=(SIDECAR_SETS, _CONTROLLED_PODS, NAMESPACES),
            make=repair_controller,
            permissions=(
                PolicyRule(("create",), ("",), ("pods/eviction",)),
                PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets", "daemonsets")),
                PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets", "daemonsets")),
            ),
            gates=(REPAIR_GATE.name,),
            workers=1,
        ),
    ),
    admission=(
        AdmissionPart(
            decisions,
            webhooks=webhooks.WEBHOOKS,
            watched=(SIDECAR_SETS, NAMESPACES, RECORDED_REVISIONS),
            files=(CONFIGURATION,),
            permissions=(
                PolicyRule(("get", "list"), (names.APPS_GROUP,), ("sidecarsets",)),
                PolicyRule(("get",), ("",), ("namespaces",)),
                PolicyRule(("get",), ("apps",), ("controllerrevisions",), own_namespace=True),
            ),
            event_source=NAME,
        ),
    ),
    background=(
        BackgroundPart(
            "Pods that bypassed admission",
            watched=(SIDECAR_SETS, _PODS, NAMESPACES),
            make=bypass_report,
            permissions=(PolicyRule(("patch",), ("",), ("pods/status",)),),
            counters=(bypassed_counter,),
            event_source=NAME,
        ),
    ),
    gates=(_DEFAULTS_ALLOWED, _SORT, REPAIR_GATE),
    commands=lazily("app.features.sidecarset.commands:COMMANDS"),
    dashboard=lazily("app.features.sidecarset.commands:SECTION"),
    judging_pods=(SIDECAR_SET,),
)
