"""Feature declaration of ResourceDistribution."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.api import names
from app.features.resourcedistribution import webhooks
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.reconcile import NAME, WATCHED, resourcedistribution_controller
from app.features.resourcedistribution.webhooks import GATE, dry_run_error, structural_error
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.kube.admission import PolicyRule

_KIND = RESOURCE_DISTRIBUTION.plural


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    client = context.client
    check = partial(dry_run_error, client, context.own_namespace) if client is not None else structural_error
    return Decisions(webhooks.handlers(check, enabled=context.enabled(GATE)))


FEATURE: Final = Feature(
    name="resourcedistribution",
    kinds=(RESOURCE_DISTRIBUTION,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=resourcedistribution_controller,
            permissions=(
                PolicyRule(("get",), (names.APPS_GROUP,), (_KIND,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
                # Setting an owner reference with blockOwnerDeletion requires permission to update the owner's
                # finalizers.
                PolicyRule(("update",), (names.APPS_GROUP,), (f"{_KIND}/finalizers",)),
                PolicyRule(("create", "delete", "get", "patch"), ("",), ("configmaps", "secrets")),
                # For the webhook's dry runs. [RD-15]
                PolicyRule(("create",), ("",), ("configmaps", "secrets"), own_namespace=True, for_reviews=True),
            ),
            gates=(GATE,),
            workers_flag="resourcedistribution-workers",
        ),
    ),
    # Served even if the gate is off, so that requests are denied with an explanation. [RD-10]
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(GATE,),
    commands=lazily("app.features.resourcedistribution.commands:COMMANDS"),
)
