"""Advanced StatefulSet, as its slice declares it."""

from __future__ import annotations

from typing import Final

from app.api.statefulset import STATEFUL_SET
from app.kube.admission import PolicyRule
from app.pods.budget import LeastAvailable
from app.pods.counters import WorkloadCounters
from app.pods.update_order import UpdateOrder
from app.slices import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Protected, Provides, Slice
from app.slices.commands import Commands
from app.workloads.engine import controllers as engine
from app.workloads.statefulset import admission
from app.workloads.statefulset.controller import (
    NAME,
    STATEFUL_SETS,
    WATCHED,
    WORKERS,
    least_available_of,
    statefulset_controller,
    update_order_of,
)


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    return Decisions(admission.handlers(admission.Lookups.of(context.enabled, context.client)))


def commands() -> tuple[Commands, ...]:
    """What the command line knows of StatefulSets."""
    from app.workloads.statefulset.commands import COMMANDS

    return (COMMANDS,)


SLICE: Final = Slice(
    name="statefulset",
    kinds=(STATEFUL_SET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=statefulset_controller,
            permissions=(
                *engine.permissions(STATEFUL_SET),
                PolicyRule(("create", "get", "patch"), ("",), ("persistentvolumeclaims",)),
                # AS-104
                PolicyRule(("list",), ("storage.k8s.io",), ("storageclasses",)),
            ),
            workers=WORKERS,
            workers_flag="statefulset-workers",
            counters=(WorkloadCounters,),
        ),
    ),
    provides=(
        Provides(LeastAvailable, least_available_of, watched=(STATEFUL_SETS,)),
        Provides(UpdateOrder, update_order_of, watched=(STATEFUL_SETS,)),
    ),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    gates=(
        *engine.GATES,
        "PodIndexLabel",
        "PreDownloadImageForInPlaceUpdate",
        "PreparingUpdateAsUpdate",
        "StatefulSetAutoDeletePVC",
        "StatefulSetAutoResizePVCGate",
        "StatefulSetStartOrdinal",
        "TemplateNoDefaults",
    ),
    flags=(engine.EXPECTATION_TIMEOUT,),
    protected=(Protected(STATEFUL_SET, cascading="replicas"),),
    workloads=(STATEFUL_SET,),
    commands=commands,
)
