"""The slice of ContainerRecreateRequest."""

from __future__ import annotations

from typing import Final

from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.operations.containerrecreate import admission
from app.operations.containerrecreate.admission import DAEMON_GATE, ClusterLookups, StandaloneLookups
from app.operations.containerrecreate.controller import CONTROLLER
from app.slices import AdmissionContext, AdmissionPart, Decisions, Slice


def decisions(context: AdmissionContext) -> Decisions:
    """The handler of the webhook."""
    lookups = ClusterLookups(context.client) if context.client is not None else StandaloneLookups()
    return Decisions(admission.handlers(lookups, context.enabled))


SLICE: Final = Slice(
    name="containerrecreate",
    kinds=(CONTAINER_RECREATE_REQUEST,),
    controllers=(CONTROLLER,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(DAEMON_GATE,),
)
