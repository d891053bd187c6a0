"""The agents of simulated nodes behave like those of nodes with real containers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import crd, names
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


async def running(one: Simulated, **metadata: Any) -> dict[str, Any]:
    env = [{"name": "COLOUR", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['colour']"}}}]
    metadata = {"name": "web", "labels": {"colour": "red"}, "annotations": {names.SIDECARSET_HASH: "{}"}, **metadata}
    containers = [{"name": "main", "image": "nginx:1", "env": env}, {"name": "side", "image": "side:1"}]
    spec = {"nodeName": "node1", "containers": containers}
    await one.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def look() -> Any:
        pod = await one.get(PODS, "web")
        statuses = pod.get("status", {}).get("containerStatuses", [])
        return pod if len(statuses) == 2 and all(status["ready"] for status in statuses) else None

    found: dict[str, Any] = await one.until(look)
    return found


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

    async def done() -> bool:
        listing = await one.client.list(NODE_IMAGES)
        counts = [(item.get("status") or {}) for item in listing.items]
        return all((each.get("succeeded"), each.get("failed")) == (2, 1) for each in counts)

    await one.until(done)
    status = (await one.client.get(NODE_IMAGES, "node7"))["status"]["imageStatuses"]["gone.invalid/app"]["tags"][0]
    assert "no such host" in status["message"]


@pytest.mark.behaviour("KD-64")
@in_simulated(2, agents=True)
async def test_containers_answer_probes(one: Simulated) -> None:
    await install(one)
    pod = await running(one)
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

    async def known() -> bool:
        return await states() == ["Succeeded", "Failed", "Succeeded", "Succeeded"]

    await one.until(known)
