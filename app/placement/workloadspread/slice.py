"""The slice of WorkloadSpread."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.workloadspread import WORKLOAD_SPREAD, WorkloadSpread
from app.kube.objects import decode_config_map
from app.kube.resources import CONFIGMAPS
from app.placement.workloadspread import admission
from app.placement.workloadspread.admission import GATE
from app.placement.workloadspread.admission_lookups import ClusterLookups, StandaloneLookups
from app.slices import AdmissionContext, AdmissionPart, Decisions, Scope, Slice, Watched

SPREADS: Final = Watched.kind(WORKLOAD_SPREAD, WorkloadSpread)
CONFIGURATION: Final = Watched(
    f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}",
    CONFIGMAPS,
    decode_config_map,
    Scope.OWN,
    field_selector=f"metadata.name={names.CONFIGURATION_CONFIG_MAP}",
)


def webhook(context: AdmissionContext) -> Decisions:
    """The handler of the kind's own webhook. WS-5: it answers whatever the gate."""
    if context.client is not None:
        lookups: admission.SpreadLookups = ClusterLookups(context.client, context.own_namespace)
    else:
        lookups = StandaloneLookups(context.stores(SPREADS), context.stores(CONFIGURATION), context.own_namespace)
    return Decisions(admission.handlers(lookups, enabled=context.enabled(GATE)))


SLICE: Final = Slice(
    name="workloadspread",
    kinds=(WORKLOAD_SPREAD,),
    admission=(AdmissionPart(webhook, webhooks=admission.WEBHOOKS, files=(SPREADS, CONFIGURATION)),),
    gates=(GATE,),
)
