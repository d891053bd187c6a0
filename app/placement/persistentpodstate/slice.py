"""The slice of PersistentPodState."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.persistentpodstate import PERSISTENT_POD_STATE
from app.kube.admission import PolicyRule
from app.placement.persistentpodstate import admission
from app.placement.persistentpodstate.admission import ClusterLookups, StandaloneLookups
from app.placement.persistentpodstate.controller import FORGET_LOST, NAME, WATCHED, persistentpodstate_controller
from app.placement.persistentpodstate.plan.whitelist import parse_kinds
from app.placement.persistentpodstate.states import STATES
from app.placement.persistentpodstate.step import PersistentPodStateStep
from app.pods.customworkloads import ConfiguredList
from app.slices import CONFIGURATION, AdmissionContext, AdmissionPart, ControllerPart, Decisions, Slice
from app.slices.commands import Commands


def webhook(context: AdmissionContext) -> Decisions:
    """The handler of the kind's own webhook."""
    if context.client is not None:
        lookups: admission.StateLookups = ClusterLookups(context.client, context.own_namespace)
    else:
        lookups = StandaloneLookups(context.stores(STATES), context.stores(CONFIGURATION), context.own_namespace)
    return Decisions(admission.handlers(lookups))


def injection(context: AdmissionContext) -> Decisions:
    """The step of Pod creation. PPS-37: a list that cannot be read stops no Pod."""
    key = names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY
    listed = ConfiguredList(context.stores(CONFIGURATION), context.own_namespace, key, parse_kinds)
    return Decisions(steps=(PersistentPodStateStep(context.stores(STATES), listed),))


def commands() -> tuple[Commands, ...]:
    """What the command line knows of the kind."""
    from app.placement.persistentpodstate.commands import COMMANDS  # only when a command is given

    return (COMMANDS,)


SLICE: Final = Slice(
    name="persistentpodstate",
    kinds=(PERSISTENT_POD_STATE,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=persistentpodstate_controller,
            permissions=(
                PolicyRule(("create", "delete", "get", "patch"), (names.APPS_GROUP,), (PERSISTENT_POD_STATE.plural,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{PERSISTENT_POD_STATE.plural}/status",)),
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            workers_flag="persistentpodstate-workers",
        ),
    ),
    admission=(
        AdmissionPart(webhook, webhooks=admission.WEBHOOKS, files=(STATES, CONFIGURATION)),
        AdmissionPart(injection, watched=(STATES, CONFIGURATION)),
    ),
    gates=(FORGET_LOST,),
    commands=commands,
)
