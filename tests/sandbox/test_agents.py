"""The agents of simulated nodes: what an agent does on a node with real containers, it does here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import crd, names
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES, RECREATE_REQUESTS
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import NODE_IMAGE
from app.features.podprobe.kind import NODE_POD_PROBE
from app.kube.objects import decode_pod
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, PODS
from app.pods.container_meta import is_env_current, is_image_current, runtime_meta
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


@pytest.mark.behaviour("CRR-37")
@in_simulated(2, agents=True)
async def test_a_request_restarts_one_container_of_a_pod(one: Simulated) -> None:
    await install(one)
    pod = await running(one)
    before = {status["name"]: status for status in pod["status"]["containerStatuses"]}
    context = {"containerID": before["main"]["containerID"], "restartCount": 0}
    labels = {names.CRR_ACTIVE: "true", names.CRR_NODE_NAME: "node1", names.CRR_POD_UID: pod["metadata"]["uid"]}
    spec = {"podName": "web", "containers": [{"name": "main", "statusContext": context}]}
    kind = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest"}
    await one.create(RECREATE_REQUESTS, {**kind, "metadata": {"name": "again", "labels": labels}, "spec": spec})

    async def restarted() -> Any:
        statuses = (await one.get(PODS, "web"))["status"]["containerStatuses"]
        after = {status["name"]: status for status in statuses}
        return after if after["main"]["restartCount"] == 1 and after["main"]["ready"] else None

    after = await one.until(restarted)
    assert after["side"]["containerID"] == before["side"]["containerID"]
    assert after["main"]["containerID"] != before["main"]["containerID"]
    fields = ("name", "ready", "restartCount", "containerID")
    snapshot = [{key: after["main"][key] for key in fields}]
    status = {"status": {"containerStatusSnapshot": snapshot}}
    await one.client.patch(RECREATE_REQUESTS, "again", status, "default", subresource="status")
    await one.status(RECREATE_REQUESTS, "again", phase="Completed")
    await one.client.clock.sleep(120)
    assert (await one.get(PODS, "web"))["status"]["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.behaviour("KD-70", "KD-74")
@in_simulated(2, agents=True)
async def test_changed_labels_reach_the_env_of_the_container_that_reads_them(one: Simulated) -> None:
    await install(one)
    await running(one)

    async def current() -> Any:
        pod = decode_pod(json.dumps(await one.get(PODS, "web")).encode())
        meta = runtime_meta(pod)
        fresh = meta is not None and is_env_current(pod, meta) and is_image_current(pod, meta)
        return pod if fresh and all(status.ready for status in pod.status.container_statuses) else None

    await one.patch(PODS, "web", {"metadata": {"labels": {"seen": "1"}}})
    await one.until(current)
    await one.patch(PODS, "web", {"metadata": {"labels": {"colour": "blue"}}})
    condition = {"type": names.IN_PLACE_UPDATE_READY, "status": "False"}
    body = {"status": {"conditions": [condition]}}
    await one.client.patch(PODS, "web", body, "default", subresource="status")
    assert await current() is None
    pod = await one.until(current, 120)
    assert {status.name: status.restart_count for status in pod.status.container_statuses} == {"main": 1, "side": 0}


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
