"""The slice of CloneSet."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.cloneset import CLONE_SET
from app.kube.admission import PolicyRule
from app.pods.budget import LeastAvailable
from app.pods.counters import WorkloadCounters
from app.pods.fieldtracking import GATE as MANAGED_FIELDS
from app.pods.readiness.plan import InitialMetadata
from app.pods.update_order import UpdateOrder
from app.slices import (
    AdmissionContext,
    AdmissionPart,
    ControllerPart,
    Decisions,
    Gate,
    Protected,
    Provides,
    Slice,
)
from app.slices.commands import Commands
from app.workloads.cloneset import admission
from app.workloads.cloneset.admission_lookups import ClusterLookups, StandaloneLookups
from app.workloads.cloneset.controller import (
    CLONE_SETS,
    NAME,
    WATCHED,
    WORKERS,
    cloneset_controller,
    initial_metadata_of,
    least_available_of,
    update_order_of,
)
from app.workloads.cloneset.strict_validation import GATE as STRICT_VALIDATION
from app.workloads.engine import controllers as engine


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of both webhooks."""
    if context.client is None:
        return Decisions(admission.handlers(StandaloneLookups(context.enabled)))
    lookups = ClusterLookups(context.client, context.own_namespace, context.enabled)
    return Decisions(admission.handlers(lookups))


def commands() -> tuple[Commands, ...]:
    """What the command line knows of CloneSets."""
    from app.workloads.cloneset.commands import COMMANDS

    return (COMMANDS,)


SLICE: Final = Slice(
    name="cloneset",
    kinds=(CLONE_SET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=cloneset_controller,
            permissions=(
                *engine.permissions(CLONE_SET),
                PolicyRule(("patch",), (names.APPS_GROUP,), ("clonesets",)),
                PolicyRule(("create", "delete", "patch"), ("",), ("persistentvolumeclaims",)),
                # A claim that is given to its Pod must not be deleted before it (CS-120).
                PolicyRule(("update",), ("",), ("pods/finalizers",)),
                # CS-114
                PolicyRule(("list",), ("",), ("nodes",)),
            ),
            workers=WORKERS,
            workers_flag="cloneset-workers",
            counters=(WorkloadCounters,),
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    provides=(
        Provides(InitialMetadata, initial_metadata_of, watched=(CLONE_SETS,)),
        Provides(LeastAvailable, least_available_of, watched=(CLONE_SETS,)),
        Provides(UpdateOrder, update_order_of, watched=(CLONE_SETS,)),
    ),
    gates=(
        *engine.GATES,
        "CloneSetShortHash",
        "CloneSetPartitionRollback",
        "PreDownloadImageForInPlaceUpdate",
        "PreparingUpdateAsUpdate",
        "RecreatePodWhenChangeVCTInCloneSetGate",
        "TemplateNoDefaults",
        "DefaultHostNetworkHostPortsInPodTemplates",
        Gate(STRICT_VALIDATION, "CloneSets that OpenKruise admits with surely unmeant values are refused"),
        # Nobody asks who wrote which field of such a Pod, and an API server has twice the work with each write.
        Gate(MANAGED_FIELDS, "Pods of CloneSets and StatefulSets have metadata.managedFields"),
        # OpenKruise replaces as many Pods as the surge has.
        Gate("CloneSetInPlaceSurge", "with maxSurge a CloneSet updates in place and takes the surge away again"),
    ),
    flags=(engine.EXPECTATION_TIMEOUT, "cloneset-scaling-exclude-preparing-delete"),
    protected=(Protected(CLONE_SET, cascading="replicas"),),
    workloads=(CLONE_SET,),
    commands=commands,
)
