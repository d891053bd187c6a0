"""The slice of Advanced DaemonSet."""

from __future__ import annotations

from typing import Final

from app.api.daemonset import DAEMON_SET
from app.slices import AdmissionContext, AdmissionPart, Decisions, Slice
from app.workloads.daemonset import admission


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    if context.client is None:
        return Decisions(admission.handlers(admission.StandaloneLookups()))
    return Decisions(admission.handlers(admission.ClusterLookups(context.client, context.own_namespace)))


SLICE: Final = Slice(
    name="daemonset",
    kinds=(DAEMON_SET,),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
)
