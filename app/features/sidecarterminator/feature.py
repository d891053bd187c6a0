"""Sidecar terminator feature: a Pod controller without a kind of its own."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.sidecarterminator.reconcile import SidecarTerminatorReconciler
from app.framework.feature import ControllerContext, ControllerPart, Feature, Reconciling
from app.framework.watched import PODS
from app.kube.admission import PolicyRule
from app.kube.controller import Watch

NAME: Final = "sidecarterminator-controller"
GATE: Final = "SidecarTerminator"


def sidecarterminator_controller(context: ControllerContext) -> Reconciling:
    """Return the sidecar terminator controller."""
    pods = context.stores(PODS)
    reconciler = SidecarTerminatorReconciler(context.client, pods, context.events)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod)])


FEATURE: Final = Feature(
    name="sidecarterminator",
    controllers=(
        ControllerPart(
            NAME,
            watched=(PODS,),
            make=sidecarterminator_controller,
            permissions=(
                PolicyRule(("get", "patch"), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/status",)),
                PolicyRule(("get",), ("",), ("nodes",)),
                PolicyRule(("get", "create", "delete"), (names.APPS_GROUP,), (CONTAINER_RECREATE_REQUEST.plural,)),
                # The owner reference from a request to its Pod sets blockOwnerDeletion.
                PolicyRule(("update",), ("",), ("pods/finalizers",)),
            ),
            gates=(GATE,),
            workers_flag="sidecarterminator-workers",
        ),
    ),
    gates=(GATE,),
)
