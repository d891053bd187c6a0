"""The slice of UnitedDeployment."""

from __future__ import annotations

from typing import Final

from app.api.uniteddeployment import UNITED_DEPLOYMENT
from app.slices import AdmissionContext, AdmissionPart, Decisions, Protected, Slice
from app.workloads.uniteddeployment import admission
from app.workloads.uniteddeployment.admission import TEMPLATE_GATE, ClusterLookups, StandaloneLookups


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    lookups: admission.TemplateLookups = StandaloneLookups()
    if context.client is not None:
        lookups = ClusterLookups(context.client, context.own_namespace)
    return Decisions(admission.handlers(lookups, default_templates=not context.enabled(TEMPLATE_GATE)))


SLICE: Final = Slice(
    name="uniteddeployment",
    kinds=(UNITED_DEPLOYMENT,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(TEMPLATE_GATE,),
    protected=(Protected(UNITED_DEPLOYMENT, cascading="replicas"),),
)
