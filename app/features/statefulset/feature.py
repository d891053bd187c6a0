"""Declaration of the Advanced StatefulSet feature."""

from __future__ import annotations

from typing import Final

from app.features.statefulset import webhooks
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.reconcile import (
    NAME,
    STATEFUL_SETS,
    WATCHED,
    least_available_of,
    statefulset_controller,
    update_order_of,
)
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
from app.kube.admission import PolicyRule
from app.pods.disruption_budget import LeastAvailable
from app.pods.sorting import UpdateOrder
from app.workloads import controllers as engine


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    return Decisions(webhooks.handlers(webhooks.Lookups(context.enabled, context.client)))


FEATURE: Final = Feature(
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
                # A claim may be expanded only if its storage class allows it. [AS-104]
                PolicyRule(("list",), ("storage.k8s.io",), ("storageclasses",)),
            ),
            workers_flag="statefulset-workers",
            counters=(engine.WorkloadCounters,),
        ),
    ),
    provides=(
        Provides(LeastAvailable, least_available_of, watched=(STATEFUL_SETS,)),
        Provides(UpdateOrder, update_order_of, watched=(STATEFUL_SETS,)),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
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
    commands=lazily("app.features.statefulset.commands:COMMANDS"),
)
