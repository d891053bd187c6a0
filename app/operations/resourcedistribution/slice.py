"""The slice of ResourceDistribution."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.resourcedistribution import RESOURCE_DISTRIBUTION
from app.kube.admission import PolicyRule
from app.operations.resourcedistribution import admission
from app.operations.resourcedistribution.admission import GATE, ClusterLookups, StandaloneLookups
from app.operations.resourcedistribution.controller import NAME, WATCHED, resourcedistribution_controller
from app.slices import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Slice
from app.slices.commands import Commands

_KIND = RESOURCE_DISTRIBUTION.plural


def decisions(context: AdmissionContext) -> Decisions:
    """The handler of the webhook."""
    lookups = (
        ClusterLookups(context.client, context.own_namespace) if context.client is not None else StandaloneLookups()
    )
    return Decisions(admission.handlers(lookups, enabled=context.enabled(GATE)))


def commands() -> tuple[Commands, ...]:
    """What the command line knows about it."""
    from app.operations.resourcedistribution.commands import COMMANDS

    return (COMMANDS,)


SLICE: Final = Slice(
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
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(GATE,),
    commands=commands,
)
