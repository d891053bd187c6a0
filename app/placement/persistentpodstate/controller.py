"""The PersistentPodState controller: what it watches, and what a change concerns (PPS-20)."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.kube.controller import Watch
from app.placement.persistentpodstate.plan import targets
from app.placement.persistentpodstate.plan.whitelist import parse_kinds
from app.placement.persistentpodstate.reconcile import Caches, Options, PersistentPodStateReconciler
from app.placement.persistentpodstate.states import STATES_BY_NODE
from app.pods.customworkloads import ConfiguredList
from app.slices import CONFIGURATION, NODES, PODS, STATEFULSETS, ControllerContext, Gate, Reconciling, Watched

NAME: Final = "persistentpodstate-controller"
FORGET_LOST: Final = Gate(
    "PersistentPodStateForgetsLostNodes", "a PersistentPodState forgets places that no node offers any more"
)
START_ORDINAL: Final = "StatefulSetStartOrdinal"

ADVANCED_STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
WATCHED: Final = (STATES_BY_NODE, PODS, NODES, STATEFULSETS, ADVANCED_STATEFUL_SETS, CONFIGURATION)


def persistentpodstate_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = PersistentPodStateReconciler(
        context.client,
        caches,
        context.events,
        ConfiguredList(
            caches.configuration, context.own_namespace, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY, parse_kinds
        ),
        Options(context.enabled(START_ORDINAL), context.enabled(FORGET_LOST.name)),
        context.flags.text("namespace"),
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.states, reconciler.of_state),
            Watch(caches.statefulsets, reconciler.of_workload(targets.native)),
            Watch(caches.advanced_statefulsets, reconciler.of_workload(reconciler.advanced)),
            Watch(caches.nodes, reconciler.of_node, reconciler.delay),
            Watch(caches.configuration, reconciler.of_configuration),
            Watch(caches.pods, reconciler.of_pod, reconciler.delay),
        ],
    )
