"""The image controllers, the sandbox's API server and simple node agents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.features.imagepull.defaults import job_with_defaults, list_job_with_defaults
from app.features.imagepull.feature import FEATURE
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.framework.feature import Feature
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.resources import NODES, PODS, SECRETS, Resource
from app.kube.wire import Request, Response, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit import cluster
from tests.kit.cluster import Json, scenarios
from tests.kit.transports import Connection
from tests.kube.fakes import json_response, running, status_body

JOBS, LISTS, NODE_IMAGES = IMAGE_PULL_JOB.resource(), IMAGE_LIST_PULL_JOB.resource(), NODE_IMAGE.resource()
AGENTS = "kruise-daemon-config"
BETA = "apps.kruise.io/v1beta1"


class Guarded(Connection):
    """A connection without permission to read Secrets of some namespaces."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.forbidden: set[str] = set()
        #: Secrets that were read by name outside the agents' namespace.
        self.asked: list[str] = []

    async def request(self, request: Request) -> Response:
        if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/secrets/([^/?]+).*", request.target):
            namespace, name = found.groups()
            if namespace != AGENTS:
                assert request.method == "GET"
                self.asked.append(name)
            if namespace in self.forbidden:
                return json_response(403, status_body(403, "Forbidden", f'secrets "{name}" is forbidden'))
        elif request.target.startswith("/api/v1/secrets"):
            raise AssertionError("Secrets of all namespaces were asked for")
        return await super().request(request)


class World(cluster.World):
    """A cluster whose node agents pull images."""

    def __init__(self, api: ApiServer, client: Client, manager: Guarded) -> None:
        super().__init__(api, client, manager)
        self.guarded = manager
        #: The final phase of a pull by node and image; None while it is in progress.
        self.pull: Callable[[str, str], str | None] = lambda node, image: "Succeeded"
        #: Namespaces whose Secrets the controllers may not read.
        self.forbidden = manager.forbidden
        #: Maximum number of nodes that pulled at the same time.
        self.most_at_once = 0
        self._written = asyncio.Event()

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        super().note(verb, resource, before, after)
        self._written.set()

    async def node(self, name: str, ready: bool = True, **labels: str) -> None:
        since = rfc3339(self.client.clock.now())
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        await self.client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")

    async def nodes(self, *names: str, **labels: str) -> None:
        for name in names:
            await self.node(name, **labels)
        for name in names:
            await self.until(lambda name=name: self.get(NODE_IMAGES, name), 60)

    async def endless_pulls(self, *secrets: str) -> None:
        """Add a node whose pulls never end, and these pull secrets."""
        await self.nodes("n1")
        self.pull = lambda node, image: None
        for name in secrets:
            await self.secret(name)

    async def full(self, node: str, **tag: Any) -> list[str]:
        """Fill the node's NodeImage with images that no job pulls. Return their names."""
        policy = {"ttlSecondsAfterFinished": 100_000}
        whole = {"tag": "1", "createdAt": "2030-01-01T00:00:00Z", "version": 0, "pullPolicy": policy, **tag}
        images = {f"i{number}": {"tags": [whole]} for number in range(256)}
        await self.change(NODE_IMAGES, node, {"spec": {"images": images}})
        await self.settled()
        return list(images)

    async def job(self, name: str = "warm", image: str = "nginx:1.27", **spec: Any) -> Json:
        body = {"spec": {"image": image, "completionPolicy": {}, **spec}}
        return await self.create(JOBS, name, job_with_defaults(body)["spec"])

    async def list_job(self, *images: str, **spec: Any) -> Json:
        body = {"spec": {"images": list(images), "completionPolicy": {}, **spec}}
        return await self.create(LISTS, "several", list_job_with_defaults(body)["spec"])

    async def pod(self, name: str, node: str, **labels: str) -> None:
        await self.create(PODS, name, {"containers": [{"name": "m", "image": "i"}], "nodeName": node}, labels=labels)

    async def secret(self, name: str, content: str = "e30=", namespace: str = "default") -> None:
        body = {
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": content},
        }
        await self.client.create(SECRETS, body, namespace)

    async def status(self, name: str = "warm", resource: Resource = JOBS) -> Json:
        return await self.status_of(resource, name)

    async def counts(self, name: str = "warm", resource: Resource = JOBS, **wanted: Any) -> Json:
        async def look() -> bool:
            status = await self.status(name, resource)
            return all(status.get(key) == value for key, value in wanted.items())

        await self.until(look)
        return await self.status(name, resource)

    async def tag(self, node: str, image: str = "nginx", tag: str = "1.27") -> Json | None:
        found = await self.get(NODE_IMAGES, node) or {}
        tags = found.get("spec", {}).get("images", {}).get(image, {}).get("tags", [])
        return next((one for one in tags if one["tag"] == tag), None)

    async def copies(self) -> list[Json]:
        return (await self.client.list(SECRETS, AGENTS)).items

    async def copied(self) -> list[Json]:
        return [one["data"] for one in await self.copies()]

    async def users(self) -> dict[str, str]:
        """Return the jobs named by each copy."""
        found = [one["metadata"] for one in await self.copies()]
        return {one["name"]: one["annotations"]["imagepulljobs.kruise.io/references"] for one in found}

    # ---- the agents

    async def agents(self) -> None:
        """Report pulls of NodeImages as agents do: 0.1 s after a write, then less and less often while one pulls."""
        seen, wait = -1, 0.1
        while True:
            wait = 0.1 if len(self.writes) != seen else min(2 * wait, 4.0)
            seen = len(self.writes)
            self._written.clear()
            node_images = (await self.client.list(NODE_IMAGES)).items
            pulling = 0
            for one in node_images:
                status = self._report(one)
                pulling += status["pulling"] > 0
                if status != one.get("status", {}) and (status["desired"] or one.get("status")):
                    name = one["metadata"]["name"]
                    await self.client.patch(NODE_IMAGES, name, {"status": status}, subresource="status")
            self.most_at_once = max(self.most_at_once, pulling)
            if not pulling:
                await self._written.wait()
            await self.client.clock.sleep(wait)

    def _report(self, node_image: Json) -> Json:
        node, now = node_image["metadata"]["name"], rfc3339(self.client.clock.now())
        former = node_image.get("status", {}).get("imageStatuses", {})
        statuses: Json = dict.fromkeys(former)
        phases = []
        for image, entry in node_image["spec"].get("images", {}).items():
            known = {one["tag"]: one for one in former.get(image, {}).get("tags", [])}
            tags = []
            for tag in entry["tags"]:
                status = known.get(tag["tag"], {})
                version = tag.get("version", 0)
                if status.get("version", 0) != version or not status:
                    status = {"tag": tag["tag"], "phase": "Pulling", "startTime": now, "version": version}
                elif status["phase"] == "Pulling" and (end := self.pull(node, f"{image}:{tag['tag']}")):
                    status = {**status, "phase": end, "completionTime": now}
                tags.append(status)
                phases.append(status["phase"])
            statuses[image] = {"tags": tags}
        counts = {key: phases.count(phase) for key, phase in (("succeeded", "Succeeded"), ("failed", "Failed"))}
        return {"desired": len(phases), "pulling": phases.count("Pulling"), **counts, "imageStatuses": statuses}


@asynccontextmanager
async def world(*, agents: bool = True, more: tuple[Feature, ...] = (), **options: Any) -> AsyncIterator[World]:
    """``more``: other features to run."""
    options |= {"namespaces": [AGENTS], "connection": Guarded, "gates": "ImagePullJobGate=true"}
    async with cluster.cluster(World, FEATURE, *more, **options) as there:
        if not agents:
            yield there
            return
        async with running(there.agents()):
            yield there


in_world = scenarios(world)
