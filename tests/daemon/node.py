"""One node with its agent, for tests: the sandbox's API server with our kinds, a simulated runtime, virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from types import MappingProxyType
from typing import Any

from app.api import crd
from app.daemon.agent import Agent, Features
from app.daemon.cri.types import RESTART_COUNT
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES, RECREATE_REQUESTS, HttpGetAction, TcpSocketAction
from app.daemon.probes_and_hooks import PRE_STOP, Network, Outcome, ProbeError
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import NODE_IMAGE
from app.features.podprobe.kind import NODE_POD_PROBE
from app.kube.client import Client
from app.kube.errors import AlreadyExists, NotFound
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, PODS, SECRETS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import Waiting, scenarios
from tests.kit.runtime import SimulatedContainer, SimulatedRuntime
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running

NODE = "node1"
NAMESPACE = "shop"
UID = "11111111-1111-1111-1111-111111111111"


def request_body(
    pod: dict[str, Any],
    containers: Iterable[str],
    name: str,
    node: str = NODE,
    *,
    said: Mapping[str, Any] = MappingProxyType({}),
    **strategy: Any,
) -> dict[str, Any]:
    """Return a ContainerRecreateRequest as defaulted by the manager's webhook; ``said``: more about each container."""
    ids = {one["name"]: one for one in pod["status"]["containerStatuses"]}
    context = {one: {key: ids[one][key] for key in ("containerID", "restartCount")} for one in containers}
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ContainerRecreateRequest",
        "metadata": {
            "name": name,
            "labels": {
                "crr.apps.kruise.io/active": "true",
                "crr.apps.kruise.io/node-name": node,
                "crr.apps.kruise.io/pod-uid": pod["metadata"]["uid"],
            },
        },
        "spec": {
            "podName": pod["metadata"]["name"],
            "containers": [{"name": one, "statusContext": context[one], **said} for one in containers],
            "strategy": {"failurePolicy": "Fail", **strategy},
        },
    }


class Listening(Network):
    """Records the addresses of TCP probes, which have this answer, and of HTTP hooks, which succeed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Outcome | ProbeError = Outcome(succeeded=True)

    async def connection(self, action: TcpSocketAction, pod_ip: str, seconds: float) -> Outcome:
        self.asked.append(pod_ip)
        if isinstance(self.answer, ProbeError):
            raise self.answer
        return self.answer

    async def hook(self, action: HttpGetAction, host: str, port: int) -> int:
        self.asked.append(f"{host}:{port}")
        return 200


class Node(Waiting):
    def __init__(self, api: ApiServer, clock: VirtualClock) -> None:
        self.api = api
        self.clock = clock
        self.client = Client(api.transport(), clock)
        self.runtime = SimulatedRuntime(clock)

    def agent(self, *, features: Features | None = None, **more: Any) -> Agent:
        """Create an agent that has not listed anything yet."""
        return Agent(NODE, self.client, [self.runtime], Random(1), features=features, **more)

    async def node_image(self, **images: Any) -> dict[str, Any]:
        """Request exactly these images in the NodeImage; ``_`` in names stands for ``/``."""
        spec = {"images": {name.replace("_", "/"): entry for name, entry in images.items()}}
        try:
            known = await self.client.get(NODE_IMAGES, NODE)
        except NotFound:
            body = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": NODE}}
            return await self.client.create(NODE_IMAGES, {**body, "spec": spec})
        gone: dict[str, Any] = dict.fromkeys(known["spec"].get("images", {}))
        return await self.client.patch(NODE_IMAGES, NODE, {"spec": {"images": gone | spec["images"]}})

    async def status(self, resource: Resource, name: str = NODE) -> dict[str, Any]:
        found = await self.client.get(resource, name, NAMESPACE if resource.namespaced else "")
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def tags(self, image: str = "nginx") -> dict[str, dict[str, Any]]:
        status = await self.status(NODE_IMAGES)
        entries = status.get("imageStatuses", {}).get(image, {}).get("tags", [])
        return {entry["tag"]: entry for entry in entries}

    async def pulled(self, image: str = "nginx", **phases: str) -> dict[str, dict[str, Any]]:
        """Wait until the tags are in these phases; ``_`` in tags stands for ``.``."""

        async def look() -> dict[str, dict[str, Any]] | None:
            tags = await self.tags(image)
            wanted = {tag.replace("_", "."): phase for tag, phase in phases.items()}
            return tags if {tag: entry["phase"] for tag, entry in tags.items()} == wanted else None

        found: dict[str, dict[str, Any]] = await self.until(look, 2000)
        return found

    async def secret(
        self,
        name: str,
        data: dict[str, str],
        kind: str = "kubernetes.io/dockerconfigjson",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        body = {"metadata": {**(metadata or {}), "name": name}, "type": kind, "data": data}
        await self.client.create(SECRETS, body, NAMESPACE)

    async def pod(
        self,
        *containers: dict[str, Any],
        name: str = "web-0",
        namespace: str = NAMESPACE,
        restart_policy: str = "Always",
        **metadata: Any,
    ) -> dict[str, Any]:
        """Create a running Pod on the node and its containers in the runtime."""
        body = {
            "metadata": {"name": name, **metadata},
            "spec": {
                "nodeName": NODE,
                "restartPolicy": restart_policy,
                "terminationGracePeriodSeconds": 30,
                "containers": [{"image": "nginx:1", **one} for one in containers],
            },
        }
        created = await self.client.create(PODS, body, namespace)
        for one in containers:
            self.runtime.start(created["metadata"]["uid"], one["name"])
        return await self.report(name, namespace)

    async def report(self, name: str = "web-0", namespace: str = NAMESPACE, **status: Any) -> dict[str, Any]:
        found = await self.client.get(PODS, name, namespace)
        statuses = []
        for container in found["spec"]["containers"]:
            newest = self.newest(found["metadata"]["uid"], container["name"])
            count = int(newest.annotations.get(RESTART_COUNT) or "0")
            statuses.append(
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "x",
                    "containerID": f"containerd://{newest.id}",
                    "ready": newest.state == 1,
                    "restartCount": count,
                    "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}},
                }
            )
        body = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": statuses, **status}
        return await self.client.patch(PODS, name, {"status": body}, namespace, subresource="status")

    def newest(self, uid: str, name: str) -> SimulatedContainer:
        """Return the container started last."""
        found = [one for one in self.runtime.known.values() if (one.pod_uid, one.name) == (uid, name)]
        return max(found, key=lambda one: one.created_at)

    def restart(self, container: SimulatedContainer) -> SimulatedContainer:
        """Restart a container that has ended, as the kubelet does."""
        count = int(container.annotations.get(RESTART_COUNT, "0")) + 1
        annotations = {**container.annotations, RESTART_COUNT: str(count)}
        return self.runtime.start(container.pod_uid, container.name, annotations=annotations, env=dict(container.env))

    async def request(self, pod: dict[str, Any], *containers: str, name: str = "again", **spec: Any) -> dict[str, Any]:
        """Create a ContainerRecreateRequest as defaulted by the manager's webhook."""
        for one, hook in spec.pop("hooks", {}).items():
            self.newest(pod["metadata"]["uid"], one).annotations[PRE_STOP] = json.dumps(hook["preStop"])
        # Hooks and ports in the request are ignored.
        body = request_body(pod, containers, name, said=spec.pop("said", {}), **spec)
        return await self.client.create(RECREATE_REQUESTS, body, pod["metadata"]["namespace"])

    async def snapshot(self, pod_uid: str, *names: str, name: str = "again") -> None:
        entries = [
            {
                "name": one,
                "ready": True,
                "restartCount": 1,
                "containerID": f"containerd://{self.newest(pod_uid, one).id}",
            }
            for one in names
        ]
        body = {"status": {"containerStatusSnapshot": entries}}
        await self.client.patch(RECREATE_REQUESTS, name, body, NAMESPACE, subresource="status")

    async def probes(self, *pods: dict[str, Any]) -> None:
        """Request these probes in the NodePodProbe."""
        body = {
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "NodePodProbe",
            "metadata": {"name": NODE},
            "spec": {"podProbes": list(pods)},
        }
        try:
            await self.client.create(NODE_POD_PROBES, body)
        except AlreadyExists:
            await self.client.patch(NODE_POD_PROBES, NODE, {"spec": body["spec"]})

    async def events(self, reason: str = "") -> list[str]:
        """Return the events as ``reason: message``."""
        listing = await self.client.list(EVENTS)
        return [
            f"{event['reason']}: {event.get('message', '')}"
            for event in listing.items
            if not reason or event["reason"] == reason
        ]


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    clock = VirtualClock()
    api = ApiServer(clock=clock, rng=Random(1))
    found = Node(api, clock)
    for kind in (NODE_IMAGE, CONTAINER_RECREATE_REQUEST, NODE_POD_PROBE):
        manifest = crd.manifest(kind)
        manifest["spec"].pop("conversion", None)
        await found.client.create(CUSTOMRESOURCEDEFINITIONS, manifest)
    await found.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await clock.sleep(1)
    try:
        yield found
    finally:
        api.close()


@asynccontextmanager
async def node_with_agent(**options: Any) -> AsyncIterator[tuple[Node, Agent]]:
    async with node() as found:
        agent = found.agent(**options)
        async with running(agent.run()):
            yield found, agent


on_bare_node = scenarios(node)
on_node = scenarios(node_with_agent, arguments=2)


def tag(name: str, version: int = 0, **more: Any) -> dict[str, Any]:
    policy = {"timeoutSeconds": 100, "backoffLimit": 1, "ttlSecondsAfterFinished": 300, **more.pop("policy", {})}
    return {"tag": name, "version": version, "createdAt": "2030-01-01T00:00:00Z", "pullPolicy": policy, **more}


def pod_probe(pod: dict[str, Any], *probes: dict[str, Any], ip: str = "") -> dict[str, Any]:
    """Probes of a Pod, each of the container that it names, or else of ``main``."""
    metadata = pod["metadata"]
    identity = {key: metadata[key] for key in ("name", "namespace", "uid")}
    asked = [
        {"containerName": one.pop("container", "main"), "name": f"ppm#{number}", "probe": {"periodSeconds": 5, **one}}
        for number, one in enumerate(probes)
    ]
    return {**identity, "IP": ip, "probes": asked}
