"""The slice of PersistentPodState."""

from __future__ import annotations

from typing import Final

from app.api.persistentpodstate import PERSISTENT_POD_STATE, PersistentPodState
from app.placement.persistentpodstate import admission
from app.placement.persistentpodstate.admission import ClusterLookups, StandaloneLookups
from app.slices import CONFIGURATION, AdmissionContext, AdmissionPart, Decisions, Slice, Watched

STATES: Final = Watched.kind(PERSISTENT_POD_STATE, PersistentPodState)


def webhook(context: AdmissionContext) -> Decisions:
    """The handler of the kind's own webhook."""
    if context.client is not None:
        lookups: admission.StateLookups = ClusterLookups(context.client, context.own_namespace)
    else:
        lookups = StandaloneLookups(context.stores(STATES), context.stores(CONFIGURATION), context.own_namespace)
    return Decisions(admission.handlers(lookups))


SLICE: Final = Slice(
    name="persistentpodstate",
    kinds=(PERSISTENT_POD_STATE,),
    admission=(AdmissionPart(webhook, webhooks=admission.WEBHOOKS, files=(STATES, CONFIGURATION)),),
)
