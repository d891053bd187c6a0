"""The ResourceDistribution controller: what it watches, and what a change concerns."""

from __future__ import annotations

from typing import Final

from app.api.resourcedistribution import RESOURCE_DISTRIBUTION, ResourceDistribution
from app.kube.controller import Watch
from app.kube.objects import Metadata, decode_metadata
from app.kube.resources import CONFIGMAPS, SECRETS, Resource
from app.operations.resourcedistribution.reconcile import (
    Caches,
    ResourceDistributionReconciler,
    is_managed_copy,
    managing_distribution,
)
from app.pods.owners import BY_CONTROLLER
from app.slices import NAMESPACES, ControllerContext, Reconciling, Scope, Watched

NAME: Final = "resourcedistribution-controller"
DISTRIBUTIONS: Final = Watched.kind(RESOURCE_DISTRIBUTION, ResourceDistribution)


def _copies(name: str, resource: Resource) -> Watched[Metadata]:
    return Watched(
        name,
        resource,
        decode_metadata,
        Scope.CLUSTER,
        indexes={BY_CONTROLLER: managing_distribution},
        keep=is_managed_copy,
    )


COPIES_OF_CONFIG_MAPS: Final = _copies("ConfigMaps that are distributed", CONFIGMAPS)
COPIES_OF_SECRETS: Final = _copies("Secrets that are distributed", SECRETS)
WATCHED: Final = (DISTRIBUTIONS, NAMESPACES, COPIES_OF_CONFIG_MAPS, COPIES_OF_SECRETS)


def resourcedistribution_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = ResourceDistributionReconciler(context.client, caches, context.events)
    return Reconciling(
        reconciler,
        [
            Watch(caches.namespaces, reconciler.keys_for_namespace, reconciler.coalesce_delay),
            Watch(caches.configmaps, reconciler.keys_for_copy, reconciler.coalesce_delay),
            Watch(caches.secrets, reconciler.keys_for_copy, reconciler.coalesce_delay),
            Watch(caches.distributions, reconciler.keys_for_distribution),
        ],
    )
