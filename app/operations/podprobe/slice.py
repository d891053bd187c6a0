"""The slice of probes in containers."""

from __future__ import annotations

from typing import Final

from app.api.podprobe import NODE_POD_PROBE, POD_PROBE_MARKER
from app.operations.podprobe import admission
from app.operations.podprobe.admission import (
    DAEMON_GATE,
    GATE,
    LIVENESS_GATE,
    SERVERLESS_GATE,
    ServerlessProbesStep,
)
from app.operations.podprobe.controllers import (
    LIVENESS_CONTROLLER,
    MARKER_CONTROLLER,
    MARKERS,
    NODE_CONTROLLER,
)
from app.operations.podprobe.liveness.step import LivenessStep
from app.slices import AdmissionContext, AdmissionPart, Decisions, Slice
from app.slices.commands import ExplainNode


def decisions(context: AdmissionContext) -> Decisions:
    """The handler of the webhook."""
    return Decisions(admission.handlers(context.enabled))


def serverless(context: AdmissionContext) -> Decisions:
    """The step of Pod creation."""
    return Decisions(steps=(ServerlessProbesStep(context.stores(MARKERS)),))


def liveness(_context: AdmissionContext) -> Decisions:
    """The step of Pod creation."""
    return Decisions(steps=(LivenessStep(),))


def node() -> tuple[ExplainNode, ...]:
    """What the command line says of a node."""
    from app.operations.podprobe.commands import explain_node

    return (explain_node,)


SLICE: Final = Slice(
    name="podprobe",
    kinds=(POD_PROBE_MARKER, NODE_POD_PROBE),
    controllers=(MARKER_CONTROLLER, NODE_CONTROLLER, LIVENESS_CONTROLLER),
    admission=(
        # Served with the gates off too: it says so then (IMG-2).
        AdmissionPart(decisions, webhooks=admission.WEBHOOKS),
        AdmissionPart(serverless, watched=(MARKERS,), gates=(SERVERLESS_GATE,)),
        AdmissionPart(liveness, gates=(LIVENESS_GATE,)),
    ),
    gates=(GATE, DAEMON_GATE, SERVERLESS_GATE, LIVENESS_GATE),
    explain_node=node,
)
