"""The slice of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.operations.containerrecreate import admission
from app.operations.containerrecreate.admission import DAEMON_GATE, ClusterLookups, StandaloneLookups
from app.operations.containerrecreate.controller import CONTROLLER
from app.slices import AdmissionContext, AdmissionPart, Decisions, Slice
from app.slices.commands import ExplainNode
from app.slices.verbs import LongVerb


def decisions(context: AdmissionContext) -> Decisions:
    """The handler of the webhook."""
    lookups = ClusterLookups(context.client) if context.client is not None else StandaloneLookups()
    return Decisions(admission.handlers(lookups, context.enabled))


def node() -> tuple[ExplainNode, ...]:
    """What the command line says of a node."""
    from app.operations.containerrecreate.commands import explain_node

    return (explain_node,)


def long_verbs() -> tuple[LongVerb, ...]:
    """``pykruise restart``."""
    from app.operations.containerrecreate.commands import RESTART

    return (RESTART,)


SLICE: Final = Slice(
    name="containerrecreate",
    kinds=(CONTAINER_RECREATE_REQUEST,),
    controllers=(CONTROLLER,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(DAEMON_GATE,),
    explain_node=node,
    long_verbs=long_verbs,
)
