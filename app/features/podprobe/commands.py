"""Explain what a node agent probes."""

from __future__ import annotations

from collections.abc import Sequence

from app.features.podprobe.objects import NODE_POD_PROBES, NodePodProbe, decode_node_pod_probe
from app.framework.options import Enabled
from app.kube.client import Client, get_or_none
from app.kube.objects import Node


async def explain_node(client: Client, node: Node, enabled: Enabled) -> Sequence[str]:
    """Return the node's probes and their latest results, one per line."""
    if not (enabled("PodProbeMarkerGate") and enabled("KruiseDaemon")):
        return []
    found: NodePodProbe | None = await get_or_none(
        client, NODE_POD_PROBES, node.metadata.name, decode=decode_node_pod_probe
    )
    if found is None:
        return []
    states = {
        (status.uid, state.name): state.state
        for status in found.status.pod_probe_statuses
        for state in status.probe_states
    }
    return [
        f"probes: Pod {pod.namespace}/{pod.name}: {one.name} in {one.container_name}: "
        f"{states.get((pod.uid, one.name), 'no result yet')}"
        for pod in found.spec.pod_probes
        for one in pod.probes
    ]
