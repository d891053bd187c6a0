"""Declaration of the CloneSet feature."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.cloneset import webhooks
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.reconcile import (
    CLONE_SETS,
    NAME,
    WATCHED,
    cloneset_controller,
    initial_metadata_of,
    least_available_of,
    update_order_of,
)
from app.features.cloneset.validation import GATE as STRICT_VALIDATION
from app.features.cloneset.webhooks import CloneSetLookups
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerPart,
    Decisions,
    Feature,
    Protected,
    Provides,
    lazily,
)
from app.framework.options import Gate
from app.kube.admission import PolicyRule
from app.pods.admission import GATE as MANAGED_FIELDS
from app.pods.disruption_budget import LeastAvailable
from app.pods.readiness import InitialMetadata
from app.pods.sorting import UpdateOrder
from app.workloads import controllers as engine


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    lookups = CloneSetLookups(context.enabled, context.client, context.own_namespace)
    return Decisions(webhooks.handlers(lookups))


FEATURE: Final = Feature(
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
                # The owner reference from a claim to its Pod sets blockOwnerDeletion. [CS-120]
                PolicyRule(("update",), ("",), ("pods/finalizers",)),
                # The deletion order depends on node labels. [CS-114]
                PolicyRule(("list",), ("",), ("nodes",)),
            ),
            workers_flag="cloneset-workers",
            counters=(engine.WorkloadCounters,),
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
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
        Gate(STRICT_VALIDATION, "Rejects CloneSets with likely mistakes that OpenKruise admits"),
        # The field ownership of these Pods is rarely used, and tracking it doubles the API server's work for each
        # write.
        Gate(MANAGED_FIELDS, "Keeps metadata.managedFields on the Pods of CloneSets, StatefulSets and DaemonSets"),
        # OpenKruise recreates one Pod for each surge Pod instead.
        Gate("CloneSetInPlaceSurge", "With maxSurge, updates Pods in place and then deletes the surge Pods"),
    ),
    flags=(engine.EXPECTATION_TIMEOUT, "cloneset-scaling-exclude-preparing-delete"),
    protected=(Protected(CLONE_SET, cascading="replicas"),),
    workloads=(CLONE_SET,),
    commands=lazily("app.features.cloneset.commands:COMMANDS"),
)
