"""Declaration of the Advanced DaemonSet feature."""

from __future__ import annotations

from typing import Final

from app.features.daemonset import webhooks
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.reconcile import (
    DAEMON_SETS,
    NAME,
    WATCHED,
    daemonset_controller,
    least_available_of,
    update_order_of,
)
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, Provides, lazily
from app.framework.options import Gate
from app.pods.disruption_budget import LeastAvailable
from app.pods.sorting import UpdateOrder
from app.pods.template_check import TemplateLookups
from app.workloads import controllers as engine


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    return Decisions(webhooks.handlers(TemplateLookups(context.enabled, context.client, context.own_namespace)))


FEATURE: Final = Feature(
    name="daemonset",
    kinds=(DAEMON_SET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=daemonset_controller,
            permissions=engine.permissions(DAEMON_SET),
            workers_flag="daemonset-workers",
            counters=(engine.WorkloadCounters,),
        ),
    ),
    provides=(
        Provides(LeastAvailable, least_available_of, watched=(DAEMON_SETS,)),
        Provides(UpdateOrder, update_order_of, watched=(DAEMON_SETS,)),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(
        *engine.GATES,
        "DaemonSetPruneIneligibleNodes",
        "PreDownloadImageForDaemonSetUpdate",
        # OpenKruise replaces all unavailable old Pods at once.
        Gate("DaemonSetStrictMaxUnavailable", "Counts unavailable old Pods of a DaemonSet against its maxUnavailable"),
    ),
    flags=(engine.EXPECTATION_TIMEOUT, "assign-pods-by-scheduler"),
    workloads=(DAEMON_SET,),
    commands=lazily("app.features.daemonset.commands:COMMANDS"),
)
