"""The slice of BroadcastJob."""

from __future__ import annotations

from typing import Final

from app.api.broadcastjob import BROADCAST_JOB
from app.slices import AdmissionContext, AdmissionPart, Decisions, Slice
from app.workloads.broadcastjob import admission
from app.workloads.engine.job_templates import GATE, ClusterTemplates, StandaloneTemplates


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    if context.client is None:
        return Decisions(admission.handlers(StandaloneTemplates(context.enabled)))
    return Decisions(admission.handlers(ClusterTemplates(context.client, context.own_namespace, context.enabled)))


SLICE: Final = Slice(
    name="broadcastjob",
    kinds=(BROADCAST_JOB,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(GATE,),
)
