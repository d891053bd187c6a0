"""Feature declaration of PersistentPodState."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.persistentpodstate import webhooks
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import parse_kinds
from app.features.persistentpodstate.pod_admission import STATES, PersistentPodStateStep
from app.features.persistentpodstate.reconcile import FORGET_LOST, NAME, WATCHED, persistentpodstate_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.framework.live import LiveObjects
from app.framework.options import Gate
from app.framework.watched import CONFIGURATION
from app.kube.admission import PolicyRule
from app.pods.custom_workloads import ConfiguredList


def webhook(context: AdmissionContext) -> Decisions:
    """Return the handlers of the kind's own webhook."""
    return Decisions(webhooks.handlers(LiveObjects(context.client, context.stores), context.own_namespace))


def injection(context: AdmissionContext) -> Decisions:
    """Return the Pod creation step. An invalid list of custom kinds does not block Pods. [PPS-37]"""
    key = names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY
    listed = ConfiguredList(context.stores(CONFIGURATION), context.own_namespace, key, parse_kinds)
    return Decisions(steps=(PersistentPodStateStep(context.stores(STATES), listed),))


FEATURE: Final = Feature(
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
                PolicyRule(("get",), ("apps", names.APPS_GROUP), ("statefulsets",)),
            ),
            workers_flag="persistentpodstate-workers",
        ),
    ),
    admission=(
        AdmissionPart(webhook, webhooks=webhooks.WEBHOOKS, files=(STATES, CONFIGURATION)),
        AdmissionPart(injection, watched=(STATES, CONFIGURATION)),
    ),
    gates=(Gate(FORGET_LOST, "PersistentPodStates drop records that no longer match any node"),),
    commands=lazily("app.features.persistentpodstate.commands:COMMANDS"),
)
