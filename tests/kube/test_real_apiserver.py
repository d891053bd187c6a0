"""The client and reflector with a real kube-apiserver."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config, load_kubeconfig
from app.kube.errors import Forbidden, NotFound, Unauthorized
from app.kube.events import EventRecorder, reference
from app.kube.objects import (
    ConfigMap,
    decode_config_map,
    decode_controller_revision,
    decode_namespace,
    decode_pod,
    decode_secret,
)
from app.kube.reflector import Reflector, ReflectorError
from app.kube.resources import (
    CONFIGMAPS,
    CONTROLLERREVISIONS,
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    Resource,
)
from app.kube.store import Store
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request
from tests.kit.objects import defined
from tests.kube.fakes import running, until
from tests.kube.test_reflector import Counting

pytestmark = pytest.mark.controlplane


@asynccontextmanager
async def connected(kubeconfig: str) -> AsyncIterator[Client]:
    transport = AiohttpTransport(await load_config(str(kubeconfig), environ={}))
    try:
        yield Client(transport, SystemClock())
    finally:
        await transport.close()


@pytest.fixture
async def cluster(control_plane, request):
    async with connected(control_plane.kubeconfig) as client:
        namespace = "kube-" + str(abs(hash(request.node.name)))[:10]
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield SimpleNamespace(client=client, namespace=namespace, control_plane=control_plane)
        await client.delete(NAMESPACES, namespace)


async def test_a_name_cannot_address_a_subresource(cluster):
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    await cluster.client.create(PODS, pod, cluster.namespace)
    config = await load_config(str(cluster.control_plane.kubeconfig), environ={})
    transport = AiohttpTransport(config)
    try:
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/web%2Fstatus"
        answer = await transport.request(Request("GET", path, {}, {"Accept": "application/json"}))
    finally:
        await transport.close()
    # The API server takes it for the subresource.
    assert answer.status == 200
    with pytest.raises(NotFound, match="no object can have this name"):
        await cluster.client.get(PODS, "web/status", cluster.namespace)


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name}, "data": data}


async def test_foreign_objects_are_decoded(cluster):
    client, ns = cluster.client, cluster.namespace
    namespace = await client.get(NAMESPACES, ns, decode=decode_namespace)
    assert namespace.metadata.labels == {"kubernetes.io/metadata.name": ns}
    data = {"data": {"k": base64.b64encode(b"v").decode()}}
    secret = await client.create(SECRETS, {"metadata": {"name": "s"}, **data}, ns, decode=decode_secret)
    assert (secret.type, secret.data) == ("Opaque", {"k": b"v"})
    body = {"metadata": {"name": "r"}, "revision": 3, "data": {"b": 1, "a": {"<": "&"}}}
    revision = await client.create(CONTROLLERREVISIONS, body, ns, decode=decode_controller_revision)
    assert revision.revision == 3
    assert bytes(revision.data) == rb'{"b":1,"a":{"\u003c":"\u0026"}}'
    pod = {
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            "readinessGates": [{"conditionType": "KruisePodReady"}],
            "containers": [{"name": "main", "image": "busybox"}],
        },
    }
    await until_ready(lambda: client.create(PODS, pod, ns, dry_run=True))  # the service account comes a little later
    read = await client.create(PODS, pod, ns, decode=decode_pod)
    assert read.spec.readiness_gates[0].condition_type == "KruisePodReady"
    assert read.spec.termination_grace_period_seconds == 30
    assert read.status.phase == "Pending"


async def until_ready(call) -> None:
    """Retry until the cluster's controllers have prepared the namespace."""
    async with asyncio.timeout(120):
        while True:
            try:
                await call()
            except (Forbidden, NotFound):
                await asyncio.sleep(0.1)
            else:
                return


class Line:
    """A TCP proxy to the API server whose connections a test can break."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition("://")[2].rpartition(":")
        self._port = int(port)
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Line":
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections as a crash would; new connections work."""
        while self._writers:
            self._writers.pop().transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, back]
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(2**16):
                target.write(data)
                await target.drain()
        target.close()


class Watching(AiohttpTransport):
    """Records watches, and can make the next one use an expired resource version."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.watches: list[dict] = []
        self.forget = False

    def stream(self, request: Request):
        query = dict(request.query)
        if self.forget and "resourceVersion" in query:
            self.forget = False
            query["resourceVersion"] = "1"
        self.watches.append(query)
        return super().stream(replace(request, query=query))


@asynccontextmanager
async def reflecting(cluster, resource=CONFIGMAPS, **options):
    """Run a reflector of objects labeled l=v in the test's namespace through a breakable connection."""
    config = await load_config(str(cluster.control_plane.kubeconfig), environ={})
    async with Line(config.host) as line:
        transport = Watching(replace(config, host=f"https://127.0.0.1:{line.port}"))
        store: Store[ConfigMap] = Store()
        metrics = Counting()
        reflector = Reflector(
            Client(transport, SystemClock()), resource, store, decode=decode_config_map, rng=Random(1),
            namespace=cluster.namespace, label_selector="l=v", metrics=metrics, **options,
        )  # fmt: skip
        async with running(reflector.run()):
            async with asyncio.timeout(120):
                await store.wait_until_ready()
            yield SimpleNamespace(transport=transport, store=store, metrics=metrics, line=line)
        await transport.close()


def labeled(name: str, **data: str) -> dict:
    return {"metadata": {"name": name, "labels": {"l": "v"}}, "data": data}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming list", "list and watch"])
async def test_a_store_follows_the_server(cluster, streaming):
    client, ns = cluster.client, cluster.namespace
    await client.create(CONFIGMAPS, labeled("a"), ns)
    await client.create(CONFIGMAPS, config_map("other"), ns)
    async with reflecting(cluster, streaming_list=streaming) as it:
        assert [c.metadata.name for c in it.store.list()] == ["a"]
        await client.create(CONFIGMAPS, labeled("b"), ns)
        await client.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, ns)
        await client.patch(CONFIGMAPS, "other", {"metadata": {"labels": {"l": "v"}}}, ns)
        await until(lambda: len(it.store) == 3, 20)
        await until(lambda: it.store.get("a", ns).data == {"x": "1"}, 20)
        await client.delete(CONFIGMAPS, "b", ns)
        await client.patch(CONFIGMAPS, "a", {"metadata": {"labels": None}}, ns)  # no longer selected
        await until(lambda: [c.metadata.name for c in it.store.list()] == ["other"], 20)
        assert len(it.transport.watches) == 1
        assert ("sendInitialEvents" in it.transport.watches[0]) is streaming
        assert it.metrics.errors == {}


THINGS = Resource("kube.example.com", "v1", "things", "Thing")


@pytest.fixture
async def things(cluster):
    """Create a kind after the cluster: the server has no earlier watch events for it."""
    await cluster.client.create(CUSTOMRESOURCEDEFINITIONS, defined(THINGS))
    await until_ready(lambda: cluster.client.create(THINGS, thing("first"), cluster.namespace))
    yield THINGS
    await cluster.client.delete(CUSTOMRESOURCEDEFINITIONS, "things.kube.example.com")


def thing(name: str) -> dict:
    return {"apiVersion": THINGS.api_version, "kind": THINGS.kind, **labeled(name)}


async def test_an_expired_version_causes_a_relist(cluster, things):
    client, ns = cluster.client, cluster.namespace
    async with client.watch(things, ns, {"resourceVersion": "1"}) as stream:
        assert b'"code":410' in await anext(stream.chunks)
    async with reflecting(cluster, things) as it:
        assert [c.metadata.name for c in it.store.list()] == ["first"]
        it.transport.forget = True
        it.line.cut()
        await client.delete(things, "first", ns)
        await client.create(things, thing("second"), ns)
        await until(lambda: [c.metadata.name for c in it.store.list()] == ["second"], 30)
        assert it.metrics.errors[ReflectorError.EXPIRED] == 1
        assert it.metrics.lists == [1, 1]


async def test_events_are_readable_in_kubectl(cluster):
    client, ns = cluster.client, cluster.namespace
    made = await client.create(CONFIGMAPS, config_map("a"), ns, decode=decode_config_map)
    recorder = EventRecorder(client, "sidecarset-controller")
    async with running(recorder.run()):
        for _ in range(3):
            recorder.event(reference(CONFIGMAPS, made), "Warning", "FailedThing", "it went wrong")
        assert await recorder.flush(30)
    columns = "TYPE:.type,REASON:.reason,COUNT:.count,FROM:.source.component,MESSAGE:.message,KIND:.involvedObject.kind"
    kubectl = cluster.control_plane.kubectl
    table = kubectl("-n", ns, "get", "events", "-o", f"custom-columns={columns}").stdout.splitlines()
    assert [line.split() for line in table[1:]] == [
        ["Warning", "FailedThing", "3", "sidecarset-controller", "it", "went", "wrong", "ConfigMap"]
    ]
    described = kubectl("-n", ns, "describe", "configmap", "a").stdout
    assert "FailedThing" in described
    assert "(x3 over" in described


async def test_missing_rights_differ_from_wrong_credentials(cluster, tmp_path):
    kubeconfig = cluster.control_plane.kubeconfig_for_service_account("kube-system", "default")
    async with connected(kubeconfig) as client:
        with pytest.raises(Forbidden, match='User "system:serviceaccount:kube-system:default" cannot list'):
            await client.list(SECRETS)
    config = await load_kubeconfig(str(cluster.control_plane.kubeconfig))
    transport = AiohttpTransport(replace(config, authorization=lambda: asyncio.sleep(0, "Bearer wrong")))
    with pytest.raises(Unauthorized):
        await Client(transport, SystemClock()).list(SECRETS)
    await transport.close()
