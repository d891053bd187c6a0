"""Advanced StatefulSet, as its slice declares it."""

from __future__ import annotations

from typing import Final

from app.api.statefulset import STATEFUL_SET
from app.slices import AdmissionContext, AdmissionPart, Decisions, Protected, Slice
from app.workloads.statefulset import admission
from app.workloads.statefulset.admission_lookups import ClusterLookups, StandaloneLookups


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    if context.client is None:
        return Decisions(admission.handlers(StandaloneLookups(context.enabled)))
    return Decisions(admission.handlers(ClusterLookups(context.client, context.enabled)))


SLICE: Final = Slice(
    name="statefulset",
    kinds=(STATEFUL_SET,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=("StatefulSetAutoDeletePVC", "StatefulSetAutoResizePVCGate", "TemplateNoDefaults"),
    protected=(Protected(STATEFUL_SET, cascading="replicas"),),
)
