"""The slice of image pulling."""

from __future__ import annotations

from typing import Final

from app.api.imagepull import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.operations.imagepull import admission
from app.operations.imagepull.admission import DAEMON_GATE, JOB_GATE
from app.operations.imagepull.agents import AGENT_PODS, node_agents
from app.operations.imagepull.controllers import (
    FLAGS,
    IMAGE_LIST_PULL_JOB_CONTROLLER,
    IMAGE_PULL_JOB_CONTROLLER,
    NODE_IMAGE_CONTROLLER,
    WATCHED_NODE_IMAGES,
)
from app.pods.agents import NodeAgents
from app.slices import AdmissionContext, AdmissionPart, Decisions, Provides, Slice
from app.slices.commands import ExplainNode
from app.slices.verbs import LongVerb


def decisions(context: AdmissionContext) -> Decisions:
    """The handlers of the webhooks."""
    return Decisions(admission.handlers(context.clock, context.enabled))


def node() -> tuple[ExplainNode, ...]:
    """What the command line says of a node."""
    from app.operations.imagepull.commands import explain_node

    return (explain_node,)


def long_verbs() -> tuple[LongVerb, ...]:
    """``pykruise pull``."""
    from app.operations.imagepull.commands import PULL

    return (PULL,)


SLICE: Final = Slice(
    name="imagepull",
    kinds=(IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE),
    controllers=(NODE_IMAGE_CONTROLLER, IMAGE_PULL_JOB_CONTROLLER, IMAGE_LIST_PULL_JOB_CONTROLLER),
    # Served with the gates off too: it says so then (IMG-2).
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    provides=(Provides(NodeAgents, node_agents, watched=(WATCHED_NODE_IMAGES, AGENT_PODS)),),
    gates=(DAEMON_GATE, JOB_GATE),
    flags=FLAGS,
    explain_node=node,
    long_verbs=long_verbs,
)
