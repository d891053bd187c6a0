"""The agents of simulated nodes behave like those of nodes with real containers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import crd
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import NODE_IMAGE
from app.features.podprobe.kind import NODE_POD_PROBE
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, PODS
from tests.sandbox.cluster import Simulated, in_simulated


async def install(one: Simulated) -> None:
    for kind in (NODE_IMAGE, CONTAINER_RECREATE_REQUEST, NODE_POD_PROBE):
        manifest = crd.manifest(kind)
        manifest["spec"].pop("conversion", None)
        await one.client.create(CUSTOMRESOURCEDEFINITIONS, manifest)
    await one.client.clock.sleep(3)


@in_simulated(20, agents=True)
async def test_every_node_pulls_the_images_of_its_node_image(one: Simulated) -> None:
    await install(one)
    policy = {"timeoutSeconds": 10, "backoffLimit": 0, "ttlSecondsAfterFinished": 600}
    for number in range(20):
        tags = [{"tag": tag, "createdAt": "2030-01-01T00:00:00Z", "pullPolicy": policy} for tag in ("1", "2")]
        images = {"nginx": {"tags": tags}, "gone.invalid/app": {"tags": tags[:1]}}
        body = {"metadata": {"name": f"node{number + 1}"}, "spec": {"images": images}}
        kind = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage"}
        await one.client.create(NODE_IMAGES, {**kind, **body})
    for number in range(20):
        await one.status(NODE_IMAGES, f"node{number + 1}", succeeded=2, failed=1)
    status = (await one.client.get(NODE_IMAGES, "node7"))["status"]["imageStatuses"]["gone.invalid/app"]["tags"][0]
    assert "no such host" in status["message"]


@pytest.mark.behaviour("KD-64")
@in_simulated(2, agents=True)
async def test_containers_answer_probes(one: Simulated) -> None:
    await install(one)
    spec = {"nodeName": "node1", "containers": [{"name": "main", "image": "nginx:1"}]}
    pod = await one.create(PODS, {"metadata": {"name": "web"}, "spec": spec})
    await one.status(PODS, "web", phase="Running")
    actions: list[dict[str, Any]] = [
        {"exec": {"command": ["echo", "idle"]}},
        {"exec": {"command": ["cat", "/tmp/none"]}},
        {"httpGet": {"path": "/", "port": 80}},
        {"tcpSocket": {"port": 80}},
    ]
    probes = [
        {"name": f"ppm#{number}", "containerName": "main", "probe": {"periodSeconds": 5, **action}}
        for number, action in enumerate(actions)
    ]
    entry = {"name": "web", "namespace": "default", "uid": pod["metadata"]["uid"], "IP": "", "probes": probes}
    kind = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "NodePodProbe"}
    body = {**kind, "metadata": {"name": "node1"}, "spec": {"podProbes": [entry]}}
    await one.client.create(NODE_POD_PROBES, body)

    async def states() -> list[str]:
        status = (await one.client.get(NODE_POD_PROBES, "node1")).get("status", {})
        found = status.get("podProbeStatuses", [{}])[0].get("probeStates", [])
        return [state["state"] for state in found]

    await one.becomes(states, ["Succeeded", "Failed", "Succeeded", "Succeeded"])
