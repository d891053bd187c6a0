"""Feature declaration of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.containerrecreate import webhooks
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.reconcile import NAME, WATCHED, containerrecreaterequest_controller
from app.features.containerrecreate.webhooks import DAEMON_GATE, Lookups
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.kube.admission import PolicyRule

_KIND: Final = CONTAINER_RECREATE_REQUEST.plural


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers(Lookups(context.client), context.enabled))


FEATURE: Final = Feature(
    name="containerrecreate",
    kinds=(CONTAINER_RECREATE_REQUEST,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=containerrecreaterequest_controller,
            permissions=(
                PolicyRule(("patch", "delete"), (names.APPS_GROUP,), (_KIND,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
                PolicyRule(("get",), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/status",)),
            ),
            gates=(DAEMON_GATE,),
            workers_flag="crr-workers",
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(DAEMON_GATE,),
    explain_node=lazily("app.features.containerrecreate.commands:explain_node"),
    verbs=lazily("app.features.containerrecreate.commands:RESTART"),
)
