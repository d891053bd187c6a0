"""Feature declaration of BroadcastJob."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.broadcastjob import webhooks
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.reconcile import NAME, WATCHED, broadcastjob_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.kube.admission import PolicyRule
from app.pods.template_check import GATE, TemplateLookups

_KIND: Final = BROADCAST_JOB.plural


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    return Decisions(webhooks.handlers(TemplateLookups(context.enabled, context.client, context.own_namespace)))


FEATURE: Final = Feature(
    name="broadcastjob",
    kinds=(BROADCAST_JOB,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=broadcastjob_controller,
            permissions=(
                PolicyRule(("delete", "get", "patch"), (names.APPS_GROUP,), (_KIND,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
                # Setting an owner reference with blockOwnerDeletion requires permission to update the owner's
                # finalizers.
                PolicyRule(("update",), (names.APPS_GROUP,), (f"{_KIND}/finalizers",)),
                PolicyRule(("create", "delete", "get"), ("",), ("pods",)),
            ),
            workers_flag="broadcastjob-workers",
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(GATE,),
    flags=("expectation-timeout", "assign-bcj-pods-by-scheduler"),
    workloads=(BROADCAST_JOB,),
    commands=lazily("app.features.broadcastjob.commands:COMMANDS"),
)
