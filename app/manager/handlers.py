"""All admission handlers of this build, each joined with what it needs to decide.

The manager fills the lookups from caches and the API server, standalone mode from files.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from app.admission import pod
from app.kube.admission import Handler, Webhook
from app.kube.clock import Clock
from app.manager.gates import FeatureGates
from app.pods.readiness import ReadinessGateStep
from app.sidecars.launchpriority.step import LaunchPriorityStep
from app.sidecars.sidecarset import admission as sidecarset
from app.sidecars.sidecarset.selection import SidecarSetIndex
from app.sidecars.sidecarset.step import Lookups, RefusalReport, SidecarSetStep

#: Every declaration of this build, whatever the gates: what RBAC and the reference page are made from.
WEBHOOKS: Final[tuple[Webhook, ...]] = (*pod.WEBHOOKS, *sidecarset.WEBHOOKS)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decisions depend on beside the request."""

    gates: FeatureGates
    clock: Clock
    rng: Random
    index: SidecarSetIndex
    injection: Lookups
    sidecarsets: sidecarset.SidecarSetLookups
    #: Told of each Pod refused because of a SidecarSet.
    report_refusal: RefusalReport | None = None


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
    )
    return (pod.pod_handler(steps), *sidecarset.handlers(given.sidecarsets))
