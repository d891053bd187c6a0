"""Feature declaration of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.features.containerrecreate import webhooks
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.reconcile import CONTROLLER
from app.features.containerrecreate.webhooks import DAEMON_GATE, Lookups
from app.framework.commands import ExplainNode
from app.framework.feature import AdmissionContext, AdmissionPart, Decisions, Feature
from app.framework.verbs import Verb


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers(Lookups(context.client), context.enabled))


def node() -> tuple[ExplainNode, ...]:
    """Return the functions that explain a node on the command line."""
    from app.features.containerrecreate.commands import explain_node

    return (explain_node,)


def verbs() -> tuple[Verb, ...]:
    """Return ``pykruise restart``."""
    from app.features.containerrecreate.commands import RESTART

    return (RESTART,)


FEATURE: Final = Feature(
    name="containerrecreate",
    kinds=(CONTAINER_RECREATE_REQUEST,),
    controllers=(CONTROLLER,),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(DAEMON_GATE,),
    explain_node=node,
    verbs=verbs,
)
