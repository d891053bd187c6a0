"""The slice of Advanced DaemonSet."""

from __future__ import annotations

from typing import Final

from app.api.daemonset import DAEMON_SET
from app.pods.budget import LeastAvailable
from app.pods.counters import WorkloadCounters
from app.pods.update_order import UpdateOrder
from app.slices import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Gate, Provides, Slice
from app.slices.commands import Commands
from app.workloads.daemonset import admission
from app.workloads.daemonset.controller import (
    DAEMON_SETS,
    NAME,
    WATCHED,
    WORKERS,
    daemonset_controller,
    least_available_of,
    update_order_of,
)
from app.workloads.engine import controllers as engine
from app.workloads.engine.template_checks import ClusterTemplates, StandaloneTemplates


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    if context.client is None:
        return Decisions(admission.handlers(StandaloneTemplates()))
    return Decisions(admission.handlers(ClusterTemplates(context.client, context.own_namespace)))


def commands() -> tuple[Commands, ...]:
    """What the command line knows of DaemonSets."""
    from app.workloads.daemonset.commands import COMMANDS

    return (COMMANDS,)


SLICE: Final = Slice(
    name="daemonset",
    kinds=(DAEMON_SET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=daemonset_controller,
            permissions=engine.permissions(DAEMON_SET),
            workers=WORKERS,
            workers_flag="daemonset-workers",
            counters=(WorkloadCounters,),
        ),
    ),
    provides=(
        Provides(LeastAvailable, least_available_of, watched=(DAEMON_SETS,)),
        Provides(UpdateOrder, update_order_of, watched=(DAEMON_SETS,)),
    ),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(
        *engine.GATES,
        "DaemonSetPruneIneligibleNodes",
        "PreDownloadImageForDaemonSetUpdate",
        # OpenKruise replaces unavailable old Pods all at once.
        Gate("DaemonSetStrictMaxUnavailable", "old Pods of a DaemonSet that are unavailable use up its maxUnavailable"),
    ),
    flags=(engine.EXPECTATION_TIMEOUT, "assign-pods-by-scheduler"),
    workloads=(DAEMON_SET,),
    commands=commands,
)
