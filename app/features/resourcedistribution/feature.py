"""The feature of ResourceDistribution."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.resourcedistribution import webhooks
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.reconcile import NAME, WATCHED, resourcedistribution_controller
from app.features.resourcedistribution.webhooks import GATE, ClusterLookups, StandaloneLookups
from app.framework.commands import Commands
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature
from app.kube.admission import PolicyRule

_KIND = RESOURCE_DISTRIBUTION.plural


def decisions(context: AdmissionContext) -> Decisions:
    """The handler of the webhook."""
    lookups = (
        ClusterLookups(context.client, context.own_namespace) if context.client is not None else StandaloneLookups()
    )
    return Decisions(webhooks.handlers(lookups, enabled=context.enabled(GATE)))


def commands() -> tuple[Commands, ...]:
    """What the command line knows about it."""
    from app.features.resourcedistribution.commands import COMMANDS

    return (COMMANDS,)


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
                # An owner reference that blocks the owner's deletion may only be set by who may finalize the owner.
                PolicyRule(("update",), (names.APPS_GROUP,), (f"{_KIND}/finalizers",)),
                PolicyRule(("create", "delete", "get", "patch"), ("",), ("configmaps", "secrets")),
                # RD-15: the webhook's dry runs, under whichever identity it has.
                PolicyRule(("create",), ("",), ("configmaps", "secrets"), own_namespace=True),
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            gates=(GATE,),
            workers_flag="resourcedistribution-workers",
        ),
    ),
    # Served with the gate off too: it says so then (RD-10).
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(GATE,),
    commands=commands,
)
