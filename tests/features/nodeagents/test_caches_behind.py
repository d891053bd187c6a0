"""Controllers with caches that do not show their own latest writes yet. The tests fill the stores themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from app.api.crd import manifest
from app.api.names import CONTAINER_PROBE_CONTEXT, CRR_ACTIVE, CRR_POD_UID, USING_ENHANCED_LIVENESS
from app.features.containerrecreate.feature import FEATURE as REQUESTS_SLICE
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.cache import NodeImages
from app.features.imagepull.feature import FEATURE as IMAGES_SLICE
from app.features.imagepull.kind import IMAGE_PULL_JOB, NODE_IMAGE
from app.features.podprobe.feature import FEATURE as PROBES_SLICE
from app.features.podprobe.kind import NODE_POD_PROBE, POD_PROBE_MARKER
from app.framework.watched import Scope
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import RequestInfo, TransportError
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, NODES, PODS, SECRETS, ObjectKey, Resource
from app.kube.store import Store
from app.kube.wire import Request, Response, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import api_server, served
from tests.kit.features import context, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual

Json = dict[str, Any]
SLICES = (IMAGES_SLICE, REQUESTS_SLICE, PROBES_SLICE)
JOBS, NODE_IMAGES = IMAGE_PULL_JOB.resource(), NODE_IMAGE.resource()
MARKERS, NODE_PROBES = POD_PROBE_MARKER.resource(), NODE_POD_PROBE.resource()
REQUESTS = CONTAINER_RECREATE_REQUEST.resource()
CONDITION = "example.com/who"
AGENTS = "kruise-daemon-config"


class Counted:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.conflicts = 0
        #: Called before each request.
        self.before: Callable[[Request], Awaitable[None]] | None = None
        self.stream, self.close = inner.stream, inner.close

    async def request(self, request: Request) -> Response:
        await asyncio.sleep(0)  # let other tasks run, as a real request would
        if self.before is not None:
            await self.before(request)
        response = await self._inner.request(request)
        self.conflicts += response.status == 409
        return response


class Behind:
    def __init__(self, api: ApiServer, clock: VirtualClock, name: str) -> None:
        self.transport = Counted(api.transport("manager"))
        self.client = Client(self.transport, clock)
        self._part = next(part for one in SLICES for part in one.controllers if part.name == name)
        self._stores = stores_of(self._part)
        made = self._part.make(context(self._part, self.client, self._stores, gates="ImagePullJobGate=true"))
        self.reconcile, self._watches = made.reconcile, made.watches
        for one in self._part.watched:
            self._store(one).replace([])

    def _store(self, watched: Any) -> Store[Any]:
        found: Store[Any] = self._stores(watched)
        return found

    async def look(self, *resources: Resource) -> None:
        """Update these objects, or all, in the cache."""
        for one in self._part.watched:
            if not resources or one.resource in resources:
                listing = await self.client.list(one.resource, AGENTS if one.scope is Scope.AGENTS else "")
                self._store(one).replace([one.decode(msgspec.json.encode(item)) for item in listing.items])


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[ApiServer, Client]]:
    async with api_server() as (client, api):
        kinds = [kind for one in SLICES for kind in one.kinds]
        for kind in kinds:
            await client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
        for kind in kinds:
            await served(client, kind.resource())
        await client.create(NAMESPACES, {"metadata": {"name": AGENTS}})
        await client.create(NODES, {"metadata": {"name": "n1"}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(NODES, "n1", {"status": ready}, subresource="status")
        yield api, client


async def create(client: Client, resource: Resource, body: Json, namespace: str = "") -> None:
    await client.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **body}, namespace)


async def pod(client: Client, name: str = "p1") -> Json:
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "i"}],
        "readinessGates": [{"conditionType": "KruisePodReady"}],
    }
    await client.create(PODS, {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}, "default")
    conditions = [{"type": type_, "status": "True"} for type_ in ("Initialized", "Ready", "KruisePodReady")]
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}
    return await client.patch(PODS, name, {"status": status}, "default", subresource="status")


async def marker(client: Client) -> None:
    probe = {"exec": {"command": ["who"]}, "periodSeconds": 1}
    asked = {"name": "who", "containerName": "main", "podConditionType": CONDITION, "probe": probe}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "probes": [asked]}
    await create(client, MARKERS, {"metadata": {"name": "ask"}, "spec": spec}, "default")


@pytest.mark.behaviour("PPM-23", "PPM-24", "PPM-26")
@virtual
async def test_a_returning_result_is_marked_after_a_write_without_response() -> None:
    async with cluster() as (api, client):
        there = Behind(api, client.clock, "nodepodprobe-controller")
        uid = (await pod(client))["metadata"]["uid"]
        await marker(client)
        probe = {"name": "ask#who", "containerName": "main", "probe": {"exec": {"command": ["who"]}}}
        asked = {"name": "p1", "namespace": "default", "uid": uid, "IP": "", "probes": [probe]}
        await create(client, NODE_PROBES, {"metadata": {"name": "n1"}, "spec": {"podProbes": [asked]}})

        async def result(state: str) -> None:
            states = [{"name": "ask#who", "state": state, "message": state}]
            entry = {"name": "p1", "namespace": "default", "uid": uid, "probeStates": states}
            await client.patch(NODE_PROBES, "n1", {"status": {"podProbeStatuses": [entry]}}, subresource="status")
            await there.look(NODE_PROBES)
            await there.reconcile(ObjectKey("", "n1"))

        async def marked() -> str:
            conditions = (await client.get(PODS, "p1", "default"))["status"]["conditions"]
            return next(one["status"] for one in conditions if one["type"] == CONDITION)

        await there.look()
        await result("Succeeded")
        await there.look()
        inner = there.transport.request

        async def lost(request: Request) -> Response:
            response = await inner(request)
            if request.method != "PATCH":
                return response
            return Response(500, response.headers, b"{}")

        there.client.transport.request = lost  # type: ignore[method-assign]
        with pytest.raises(Exception, match="500"):
            await result("Unknown")
        there.client.transport.request = inner  # type: ignore[method-assign]
        assert await marked() == "False"
        await result("Succeeded")
        assert await marked() == "True"


@pytest.mark.behaviour("IMG-90")
@virtual
async def test_jobs_change_a_node_image_in_turn() -> None:
    async with cluster() as (api, client):
        transport = Counted(api.transport("manager"))
        await create(client, NODE_IMAGES, {"metadata": {"name": "n1"}, "spec": {}})
        node_images = NodeImages(Client(transport, client.clock), Store())

        def add(image: str) -> Any:
            return lambda body: body.setdefault("spec", {}).setdefault("images", {}).update({image: {"tags": []}})

        await asyncio.gather(*(node_images.change("n1", add(f"image-{number}")) for number in range(3)))
        assert len((await client.get(NODE_IMAGES, "n1"))["spec"]["images"]) == 3
        assert transport.conflicts == 0


async def recreating(client: Client, uid: str) -> None:
    """Create two requests for the Pod, under way on its node."""
    for name in ("one", "two"):
        metadata = {"name": name, "labels": {CRR_POD_UID: uid, CRR_ACTIVE: "true"}}
        context_of = {"containerID": "x://1", "restartCount": 0}
        containers = [{"name": "main", "statusContext": context_of}]
        spec = {"podName": "p1", "containers": containers, "strategy": {"unreadyGracePeriodSeconds": 5}}
        await create(client, REQUESTS, {"metadata": metadata, "spec": spec}, "default")
        await client.patch(REQUESTS, name, {"status": {"phase": "Recreating"}}, "default", subresource="status")


@pytest.mark.behaviour("CRR-21", "CRR-22")
@pytest.mark.parametrize("at_once", [False, True])
@virtual
async def test_requests_take_a_pod_out_of_service_in_turn(at_once: bool) -> None:
    async with cluster() as (api, client):
        there = Behind(api, client.clock, "containerrecreaterequest-controller")
        uid = (await pod(client))["metadata"]["uid"]
        await recreating(client, uid)
        await there.look()
        if at_once:
            await asyncio.gather(*(there.reconcile(ObjectKey("default", name)) for name in ("one", "two")))
        else:
            for name in ("one", "two"):
                await there.reconcile(ObjectKey("default", name))
        conditions = (await client.get(PODS, "p1", "default"))["status"]["conditions"]
        message = next(one["message"] for one in conditions if one["type"] == "KruisePodReady")
        assert "default/one" in message
        assert "default/two" in message
        assert there.transport.conflicts == 0


@pytest.mark.behaviour("IMG-65")
@virtual
async def test_copies_of_a_job_that_the_cache_lacks_are_kept() -> None:
    async with cluster() as (api, client):
        data = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}
        await create(client, SECRETS, {"metadata": {"name": "key"}, **data}, "default")
        await create(client, NODE_IMAGES, {"metadata": {"name": "n1"}, "spec": {}})
        spec = {"image": "nginx:1", "pullSecrets": ["key"], "completionPolicy": {"type": "Never"}}
        await create(client, JOBS, {"metadata": {"name": "pull"}, "spec": spec}, "default")
        there = Behind(api, client.clock, "imagepulljob-controller")
        await there.look()
        await there.reconcile(ObjectKey("default", "pull"))
        copies = (await client.list(SECRETS, AGENTS)).items
        assert len(copies) == 1

        new = Behind(api, client.clock, "imagepulljob-controller")
        await new.look(SECRETS)
        await new.reconcile(ObjectKey("default", "pull"))
        assert (await client.list(SECRETS, AGENTS)).items == copies
        await client.delete(JOBS, "pull", "default")
        await client.patch(JOBS, "pull", {"metadata": {"finalizers": None}}, "default")
        await new.reconcile(ObjectKey("default", "pull"))
        assert (await client.list(SECRETS, AGENTS)).items == []


@pytest.mark.behaviour("PPM-52", "PPM-53")
@virtual
async def test_a_restart_whose_request_was_never_sent_is_requested_again() -> None:
    async with cluster() as (api, client):
        there, node = Behind(api, client.clock, "enhancedlivenessprobe-controller"), ObjectKey("", "n1")
        await create(client, NODE_PROBES, {"metadata": {"name": "n1"}, "spec": {}})
        uid = (await pod(client))["metadata"]["uid"]
        probe = {"exec": {"command": ["/alive"]}, "periodSeconds": 5}
        annotations = {
            CONTAINER_PROBE_CONTEXT: json.dumps([{"name": "main", "livenessProbe": probe}]),
            USING_ENHANCED_LIVENESS: "true",
        }
        state = {"running": {"startedAt": rfc3339(client.clock.now())}}
        container = {"name": "main", "image": "i", "imageID": "", "containerID": "x://1", "restartCount": 0}
        status = {"containerStatuses": [{**container, "ready": True, "started": True, "state": state}]}
        await client.patch(PODS, "p1", {"metadata": {"annotations": annotations}}, "default")
        await client.patch(PODS, "p1", {"status": status}, "default", subresource="status")
        await there.look()
        await there.reconcile(node)
        (entry,) = (await client.get(NODE_PROBES, "n1"))["spec"]["podProbes"]
        failed = {"name": entry["probes"][0]["name"], "state": "Failed", "lastProbeTime": "2100-01-01T00:00:00Z"}
        statuses = [{"name": "p1", "namespace": "default", "uid": uid, "probeStates": [failed]}]
        await client.patch(NODE_PROBES, "n1", {"status": {"podProbeStatuses": statuses}}, subresource="status")
        await there.look()

        async def is_lost(request: Request) -> None:
            if request.method == "POST":
                raise TransportError(RequestInfo(request.method, request.path), "the connection is closed")

        there.transport.before = is_lost
        with pytest.raises(TransportError):
            await there.reconcile(node)
        there.transport.before = None
        await there.reconcile(node)
        assert (await client.list(REQUESTS, "default")).items == []  # it may have been created
        await client.clock.sleep(31)
        await there.reconcile(node)
        assert len((await client.list(REQUESTS, "default")).items) == 1
