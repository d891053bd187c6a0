"""Feature declaration of AdvancedCronJob."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.advancedcronjob import webhooks
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.reconcile import NAME, WATCHED, advancedcronjob_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.kube.admission import PolicyRule
from app.pods.template_check import GATE, TemplateLookups

_KIND: Final = ADVANCED_CRON_JOB.plural


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    lookups = TemplateLookups(context.enabled, context.client, context.own_namespace)
    return Decisions(webhooks.handlers(lookups, context.clock.now))


FEATURE: Final = Feature(
    name="advancedcronjob",
    kinds=(ADVANCED_CRON_JOB,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=advancedcronjob_controller,
            permissions=(
                PolicyRule(("get",), (names.APPS_GROUP,), (_KIND,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
                # Setting an owner reference with blockOwnerDeletion requires permission to update the owner's
                # finalizers.
                PolicyRule(("update",), (names.APPS_GROUP,), (f"{_KIND}/finalizers",)),
                PolicyRule(("create", "delete", "get"), ("batch",), ("jobs",)),
                PolicyRule(("create", "delete", "get"), (names.APPS_GROUP,), ("broadcastjobs", "imagelistpulljobs")),
            ),
            workers_flag="advancedcronjob-workers",
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(GATE,),
    commands=lazily("app.features.advancedcronjob.commands:COMMANDS"),
)
