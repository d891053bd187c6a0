"""The UnitedDeployment controller: what it watches, and what a change concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from app.api import names
from app.api.cloneset import CLONE_SET
from app.api.statefulset import STATEFUL_SET
from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment, types
from app.kube.controller import Watch
from app.kube.objects import Pod
from app.kube.resources import Resource
from app.pods.owners import BY_CONTROLLER, controller_keys
from app.slices import PODS, REVISIONS, ControllerContext, Reconciling, Watched
from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload, decode_subset_workload
from app.workloads.uniteddeployment.reconcile import SUBSET, Caches, UnitedDeploymentReconciler, resources

NAME: Final = "uniteddeployment-controller"
UNITED: Final = Watched.kind(UNITED_DEPLOYMENT, UnitedDeployment)
RESOURCES: Final = resources(
    {types.CLONE_SET: CLONE_SET.resource(), types.ADVANCED_STATEFUL_SET: STATEFUL_SET.resource()}
)


def subset_keys(pod: Pod) -> Iterable[str]:
    """Namespace and subset of a Pod, if it is of one."""
    subset = pod.metadata.labels.get(names.SUBSET_NAME)
    return (f"{pod.metadata.namespace}/{subset}",) if subset else ()


def _workloads(template: str, resource: Resource) -> Watched[SubsetWorkload]:
    name = f"workloads of subsets ({template})"
    indexes = {BY_CONTROLLER: controller_keys}
    return Watched(name, resource, decode_subset_workload, label_selector=names.SUBSET_NAME, indexes=indexes)


SUBSET_PODS: Final = PODS.indexed(**{SUBSET: subset_keys})
WORKLOADS: Final = {template: _workloads(template, resource) for template, resource in RESOURCES.items()}
WATCHED: Final[tuple[Watched[Any], ...]] = (UNITED, SUBSET_PODS, REVISIONS, *WORKLOADS.values())


def uniteddeployment_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    stores = context.stores
    workloads = {template: stores(watched) for template, watched in WORKLOADS.items()}
    caches = Caches(stores(UNITED), stores(SUBSET_PODS), stores(REVISIONS), workloads)
    reconciler = UnitedDeploymentReconciler(context.client, caches, context.events, RESOURCES)
    delay = reconciler.coalesce_delay
    return Reconciling(
        reconciler,
        [
            Watch(caches.revisions, reconciler.keys_for_revision),
            Watch(caches.pods, reconciler.keys_for_pod, delay),
            *(Watch(store, reconciler.keys_for_workload, delay) for store in workloads.values()),
            Watch(caches.united, reconciler.keys_for_united),
        ],
    )
