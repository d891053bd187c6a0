"""The slice of the sidecar terminator: a controller of Pods, without a kind of its own."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.kube.admission import PolicyRule
from app.kube.controller import Watch
from app.sidecars.terminator.reconcile import SidecarTerminatorReconciler
from app.slices import PODS, ControllerContext, ControllerPart, Reconciling, Slice

NAME: Final = "sidecarterminator-controller"
GATE: Final = "SidecarTerminator"


def sidecarterminator_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    pods = context.stores(PODS)
    reconciler = SidecarTerminatorReconciler(context.client, pods, context.events)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod)])


SLICE: Final = Slice(
    name="terminator",
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
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            gates=(GATE,),
            workers_flag="sidecarterminator-workers",
        ),
    ),
    gates=(GATE,),
)
