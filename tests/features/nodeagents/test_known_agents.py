"""Which nodes are known to have an agent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.api import names
from app.features.imagepull.feature import BY_AGENT_NODE, KnownNodeAgents, agent_nodes
from app.features.imagepull.objects import decode_node_image
from app.kube.objects import decode_pod
from app.kube.store import Store

REPORT = {names.RUNTIME_CONTAINERS_META: "{}"}
AGENT = {"control-plane": "daemon"}
PULLED = {"imageStatuses": {"nginx": {"tags": [{"tag": "1"}]}}}


@pytest.mark.behaviour("PM-140")
@pytest.mark.parametrize(
    ("pod", "status", "known"),
    [
        ({}, {}, False),
        ({"annotations": REPORT}, {}, True),
        ({"labels": AGENT, "namespace": "kruise-system"}, {}, True),
        ({"labels": AGENT, "namespace": "shop"}, {}, False),
        ({}, PULLED, True),
    ],
    ids=["nothing", "a Pod is reported", "the agent", "a Pod labeled like the agent", "an image was pulled"],
)
def test_an_agent_is_detected_by_pods_and_the_node_image(
    pod: dict[str, Any], status: dict[str, Any], known: bool
) -> None:
    pods, images = Store(indexes={BY_AGENT_NODE: agent_nodes}), Store()
    metadata = {"name": "p", "namespace": "shop", **pod}
    pods.replace([decode_pod(orjson.dumps({"metadata": metadata, "spec": {"nodeName": "n1"}}))])
    images.replace([decode_node_image(orjson.dumps({"metadata": {"name": "n1"}, "status": status}))])
    agents = KnownNodeAgents(images, pods, "kruise-system")
    assert (agents.runs_on("n1"), agents.runs_on("n2")) == (known, False)
