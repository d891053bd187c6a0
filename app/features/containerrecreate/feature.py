"""Feature declaration of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.features.containerrecreate import webhooks
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.reconcile import CONTROLLER
from app.features.containerrecreate.webhooks import DAEMON_GATE, Lookups
from app.framework.feature import AdmissionContext, AdmissionPart, Decisions, Feature, lazily


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers(Lookups(context.client), context.enabled))


FEATURE: Final = Feature(
    name="containerrecreate",
    kinds=(CONTAINER_RECREATE_REQUEST,),
    controllers=(CONTROLLER,),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(DAEMON_GATE,),
    explain_node=lazily("app.features.containerrecreate.commands:explain_node"),
    verbs=lazily("app.features.containerrecreate.commands:RESTART"),
)
