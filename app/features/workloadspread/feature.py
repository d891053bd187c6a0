"""Feature declaration: webhook, Pod admission, commands and dashboard."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.workloadspread import webhooks
from app.features.workloadspread.index import SpreadIndex
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.placement import versioned_kinds
from app.features.workloadspread.pod_admission import Placer, WorkloadSpreadGuard, WorkloadSpreadStep, shared_statuses
from app.features.workloadspread.reconcile import NAME, VERSIONED_FLAG, WATCHED, workloadspread_controller
from app.features.workloadspread.targets import DirectTargets, LiveTargets, Targets
from app.features.workloadspread.types import WorkloadSpread
from app.features.workloadspread.webhooks import GATE, SPREADS, CustomWorkloads, SpreadLookups
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.framework.watched import CONFIGURATION
from app.kube.admission import PolicyRule
from app.kube.statuses import LocalStatuses, Statuses
from app.pods.admission import Guarded

#: Permissions to patch the status, and to read the object after a conflict.
_MAY_COUNT: Final = (
    PolicyRule(("get",), (names.APPS_GROUP,), (WORKLOAD_SPREAD.plural,)),
    PolicyRule(("patch",), (names.APPS_GROUP,), (f"{WORKLOAD_SPREAD.plural}/status",)),
)
#: Permissions to read the replicas and owners of targets. For other kinds, the operator must add an RBAC rule.
_MAY_READ_TARGETS: Final = (
    PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), ("batch",), ("jobs",)),
    PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
)


def webhook(context: AdmissionContext) -> Decisions:
    """Return the handlers of the kind's own webhook, which is served even if the gate is off. [WS-5]"""
    lookups = SpreadLookups(context.client, context.stores, context.own_namespace)
    return Decisions(webhooks.handlers(lookups, enabled=context.enabled(GATE)))


def placing(context: AdmissionContext) -> Decisions:
    """Return the Pod creation step and the Pod deletion guard."""
    spreads = context.stores(SPREADS)
    custom = CustomWorkloads(context.stores(CONFIGURATION), context.own_namespace)
    if context.client is None:
        targets: Targets = DirectTargets()
        statuses: Statuses[WorkloadSpread] = LocalStatuses(spreads)
    else:
        targets = LiveTargets(context.client, custom)
        statuses = shared_statuses(context.client, spreads, context.rng)
    versioned = versioned_kinds(context.flags.text(VERSIONED_FLAG))
    placer = Placer(SpreadIndex(spreads), statuses, targets, custom, context.clock, context.rng, versioned)
    return Decisions(steps=(WorkloadSpreadStep(placer),), guards=(WorkloadSpreadGuard(placer),))


GUARDED: Final = Guarded("WorkloadSpreads", (names.MATCHED_WORKLOAD_SPREAD,), removal_gate=GATE)

FEATURE: Final = Feature(
    name="workloadspread",
    kinds=(WORKLOAD_SPREAD,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=workloadspread_controller,
            permissions=(
                *_MAY_COUNT,
                *_MAY_READ_TARGETS,
                PolicyRule(("delete", "get", "patch"), ("",), ("pods",)),
            ),
            gates=(GATE,),
            workers_flag="workloadspread-workers",
        ),
    ),
    admission=(
        AdmissionPart(webhook, webhooks=webhooks.WEBHOOKS, files=(SPREADS, CONFIGURATION)),
        AdmissionPart(
            placing,
            watched=(SPREADS, CONFIGURATION),
            permissions=(*_MAY_COUNT, *_MAY_READ_TARGETS),
            gates=(GATE,),
            guarded=(GUARDED,),
        ),
    ),
    gates=(GATE,),
    flags=(VERSIONED_FLAG,),
    commands=lazily("app.features.workloadspread.commands:COMMANDS"),
    dashboard=lazily("app.features.workloadspread.commands:SECTION"),
)
