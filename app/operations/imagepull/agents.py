"""Which nodes have an agent: what the agents leave on NodeImages and Pods, and their own Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.kube.objects import Pod
from app.kube.store import Store
from app.operations.imagepull.admission import DAEMON_GATE
from app.operations.imagepull.controllers import WATCHED_NODE_IMAGES
from app.operations.imagepull.objects import NodeImage
from app.pods.agents import NodeAgents, NoNodeAgents
from app.slices import PODS, ControllerContext, Watched

BY_AGENT_NODE: Final = "node with an agent"
#: Label and value of the agents' own Pods, in the manager's namespace.
_AGENT: Final = ("control-plane", "daemon")


def agent_nodes(pod: Pod) -> Sequence[str]:
    """Index: the node of a Pod that an agent reports on, or that is an agent."""
    agent = pod.metadata.labels.get(_AGENT[0]) == _AGENT[1]
    shown = agent or names.RUNTIME_CONTAINERS_META in pod.metadata.annotations
    return (pod.spec.node_name,) if shown and pod.spec.node_name else ()


AGENT_PODS: Final[Watched[Pod]] = PODS.indexed(**{BY_AGENT_NODE: agent_nodes})


def node_agents(context: ControllerContext) -> NodeAgents:
    """Make what workloads ask; without the gate there are no agents."""
    if not context.enabled(DAEMON_GATE):
        return NoNodeAgents()
    return KnownNodeAgents(context.stores(WATCHED_NODE_IMAGES), context.stores(AGENT_PODS), context.own_namespace)


class KnownNodeAgents:
    """Node agents as the caches show them. ``namespace`` is the manager's own."""

    def __init__(self, node_images: Store[NodeImage], pods: Store[Pod], namespace: str) -> None:
        self._node_images = node_images
        self._pods = pods
        self._namespace = namespace

    def runs_on(self, node: str) -> bool:
        """Return whether the NodeImage has a status, or a Pod on the node shows an agent."""
        image = self._node_images.get(node)
        if image is not None and image.status.image_statuses:
            return True
        return any(
            names.RUNTIME_CONTAINERS_META in pod.metadata.annotations
            or (pod.metadata.namespace == self._namespace and pod.metadata.deletion_timestamp is None)
            for pod in self._pods.by_index(BY_AGENT_NODE, node)
        )
