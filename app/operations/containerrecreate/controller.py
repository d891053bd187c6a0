"""The ContainerRecreateRequest controller: what it watches, and what a change concerns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST, ContainerRecreateRequest
from app.kube.admission import PolicyRule
from app.kube.controller import Watch
from app.operations.containerrecreate.admission import DAEMON_GATE
from app.operations.containerrecreate.reconcile import BY_POD, ContainerRecreateRequestReconciler, by_pod
from app.slices import PODS, ControllerContext, ControllerPart, Reconciling, Watched

REQUESTS: Final = Watched.kind(CONTAINER_RECREATE_REQUEST, ContainerRecreateRequest, **{BY_POD: by_pod})
_KIND: Final = CONTAINER_RECREATE_REQUEST.plural


def containerrecreaterequest_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    requests, pods = context.stores(REQUESTS), context.stores(PODS)
    reconciler = ContainerRecreateRequestReconciler(context.client, requests, pods)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod), Watch(requests, reconciler.keys_for_request)])


CONTROLLER: Final = ControllerPart(
    "containerrecreaterequest-controller",
    watched=(REQUESTS, PODS),
    make=containerrecreaterequest_controller,
    permissions=(
        PolicyRule(("patch", "delete"), (names.APPS_GROUP,), (_KIND,)),
        PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
        PolicyRule(("get",), ("",), ("pods",)),
        PolicyRule(("patch",), ("",), ("pods/status",)),
    ),
    gates=(DAEMON_GATE,),
    workers_flag="crr-workers",
)
