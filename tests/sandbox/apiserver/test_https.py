"""The server over HTTPS: the same answers as in process, long watches, users from tokens, typed clients' protobuf."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import orjson
import pytest

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import NotFound
from app.kube.resources import CONFIGMAPS, DEPLOYMENTS, Resource
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request
from app.sandbox.apiserver.https import HttpsServer
from app.sandbox.apiserver.protobuf import ProtobufError, decode_object
from app.sandbox.apiserver.server import ApiServer

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


@asynccontextmanager
async def serving(folder: Path, user: str = "system:admin") -> AsyncIterator[Client]:
    api = ApiServer(clock=SystemClock(), rng=Random(1))
    async with HttpsServer.start(api) as server:
        path = folder / "kubeconfig"
        path.write_text(server.kubeconfig(user))
        transport = AiohttpTransport(await load_config(str(path)))
        try:
            yield Client(transport, SystemClock())
        finally:
            await transport.close()


async def test_objects_and_refusals_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
        assert (await client.get(CONFIGMAPS, "a", "default"))["data"] == {"k": "v"}
        with pytest.raises(NotFound, match='configmaps "none" not found'):
            await client.get(CONFIGMAPS, "none", "default")


async def test_a_watch_streams(tmp_path: Path) -> None:
    async with serving(tmp_path) as client, client.watch(CONFIGMAPS, "default", {}) as stream:
        chunks = aiter(stream.chunks)
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "default")
        async with asyncio.timeout(120):
            event = orjson.loads(await anext(chunks))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_a_token_names_its_user(tmp_path: Path) -> None:
    async with serving(tmp_path, "jane") as client:
        review = await client._send("POST", REVIEWS.path(), {}, None, {"kind": "SelfSubjectReview"})
        assert review["status"]["userInfo"]["username"] == "jane"


async def test_a_client_without_tls_is_logged_for_the_right_port(caplog: pytest.LogCaptureFixture) -> None:
    async with HttpsServer.start(ApiServer(clock=SystemClock(), rng=Random(1))) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(120):
            await reader.read()
        writer.close()
    assert "API server port: refused since the last report: handshake 1" in caplog.text


def field(number: int, value: bytes | int | str) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    raw = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(raw)]) + raw


def wrapped(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


DEPLOYMENT = wrapped(
    "apps/v1",
    "Deployment",
    field(1, field(1, "web") + field(11, field(1, "app") + field(2, "web")))
    + field(
        2,
        field(1, 3)
        + field(2, field(1, field(1, "app") + field(2, "web")))
        + field(
            3,
            field(1, field(11, field(1, "app") + field(2, "web")))
            + field(2, field(2, field(1, "main") + field(2, "nginx:1.25"))),
        ),
    ),
)


def test_protobuf_is_read() -> None:
    found = decode_object(DEPLOYMENT)
    assert found["metadata"] == {"name": "web", "labels": {"app": "web"}}
    assert found["spec"]["replicas"] == 3
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.25"


@pytest.mark.parametrize("body", [b"{}", b"k8s\x00\x0a\xff", wrapped("v1", "Nothing", b""), DEPLOYMENT[:-5]])
def test_invalid_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises((ProtobufError, struct.error)):
        decode_object(body)


async def test_a_typed_client_creates(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        headers = {"Content-Type": "application/vnd.kubernetes.protobuf",
                   "Accept": "application/vnd.kubernetes.protobuf,application/json"}  # fmt: skip
        request = Request("POST", DEPLOYMENTS.path("default"), {}, headers, DEPLOYMENT)
        answer = await client.transport.request(request)
        assert answer.status == 201
        assert orjson.loads(answer.body)["spec"]["strategy"]["type"] == "RollingUpdate"
