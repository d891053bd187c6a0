"""All admission handlers of this build, each joined with what it needs to decide.

The manager fills the lookups from caches and the API server, standalone mode from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from app.admission import pod
from app.admission.merging import merged_handlers, merged_webhooks
from app.kube.admission import Handler, Webhook
from app.kube.clock import Clock
from app.manager.gates import FeatureGates
from app.pods.fieldtracking import FieldTrackingStep
from app.pods.readiness import ReadinessGateStep
from app.protection.deletion import admission as deletion
from app.protection.deletion.lookups import DeletionLookups, WithoutCluster
from app.protection.deletion.plan import CRD_GATE, PODS_GATE, Gates
from app.protection.deletion.table import ProtectedKind, load_table
from app.sidecars.launchpriority.step import LaunchPriorityStep
from app.sidecars.sidecarset import admission as sidecarset
from app.sidecars.sidecarset.selection import RecentSets, SidecarSetIndex
from app.sidecars.sidecarset.step import Lookups, RefusalReport, SidecarSetStep
from app.workloads.cloneset import admission as cloneset
from app.workloads.cloneset.admission_lookups import StandaloneLookups


def declarations(protected_kinds: Sequence[ProtectedKind]) -> tuple[Webhook, ...]:
    """What is registered for these protected kinds, in the order of ``build_handlers``, whatever the gates."""
    found = (*pod.WEBHOOKS, *sidecarset.WEBHOOKS, *cloneset.WEBHOOKS, *deletion.webhooks(protected_kinds))
    return merged_webhooks(found)


#: Every declaration of this build: what RBAC and the reference page are made from.
WEBHOOKS: Final[tuple[Webhook, ...]] = declarations(load_table())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decisions depend on beside the request."""

    gates: FeatureGates
    clock: Clock
    rng: Random
    index: SidecarSetIndex
    injection: Lookups
    sidecarsets: sidecarset.SidecarSetLookups
    #: SS-39: who remembers the sets let through; None where what is judged is never stored (standalone mode).
    recent_sets: RecentSets | None = None
    #: What CloneSet validation asks; None: there is no cluster.
    clonesets: cloneset.CloneSetLookups | None = None
    #: Told of each Pod refused because of a SidecarSet.
    report_refusal: RefusalReport | None = None
    #: Which kinds are protected from deletion, whom to ask what they hold, and who is told of refusals.
    protected_kinds: Sequence[ProtectedKind] = field(default_factory=load_table)
    deletion_lookups: DeletionLookups = field(default_factory=WithoutCluster)
    report_deletion: deletion.Refused = lambda *_: None


def build_handlers(given: Surroundings) -> tuple[Handler, ...]:
    """The handlers of all declarations."""
    steps = (
        ReadinessGateStep(given.gates.enabled("KruisePodReadinessGate")),
        SidecarSetStep(
            given.index,
            given.injection,
            given.clock,
            given.rng.random,
            sort_by_name=given.gates.enabled("EnableSortSidecarContainerByName"),
            report=given.report_refusal,
        ),
        LaunchPriorityStep(given.rng),
        FieldTrackingStep(),
    )
    found = (
        pod.pod_handler(steps),
        *sidecarset.handlers(given.sidecarsets, given.recent_sets),
        *cloneset.handlers(given.clonesets or StandaloneLookups(given.gates.enabled)),
        *deletion.handlers(
            given.protected_kinds,
            given.deletion_lookups,
            Gates(*map(given.gates.enabled, (deletion.GATE, CRD_GATE, PODS_GATE))),
            given.report_deletion,
        ),
    )
    return merged_handlers(found)
