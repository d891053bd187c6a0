"""The transports with real HTTP servers on loopback."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias

import pytest
from aiohttp import web

from app.kube import http1
from app.kube.config import ClusterConfig
from app.kube.errors import ConfigError, TransportError
from app.kube.http1 import PlainTransport
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request, Transport
from tests.kit.certificates import self_signed
from tests.kit.transports import answering

Make: TypeAlias = Callable[..., Transport]
BOTH = (AiohttpTransport, PlainTransport)
#: A response with this status; its address must not be requested.
EMPTY = b"HTTP/1.1 %d x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(params=BOTH)
def make(request) -> Make:
    return request.param


def get(path: str, **query: str) -> Request:
    return Request("GET", path, query, {"User-Agent": "kruise-manager", "Accept": "application/json"})


@asynccontextmanager
async def serving(handler) -> AsyncIterator[str]:
    """Run a server with this handler and return its address."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def transport_to(make: Make, address: str | int | ClusterConfig, **options) -> AsyncIterator[Transport]:
    """Return a transport to a port of this host, an address, or with this configuration."""
    address = f"http://127.0.0.1:{address}" if isinstance(address, int) else address
    transport = make(ClusterConfig(address) if isinstance(address, str) else address, **options)
    try:
        yield transport
    finally:
        await transport.close()


async def test_requests_arrive_unchanged(make):
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        return web.Response(status=201, body=b'{"a":1}', headers={"Warning": "299 - w"})

    counted = []
    async with serving(handler) as host:
        config = ClusterConfig(f"{host}/cluster", authorization=lambda: asyncio.sleep(0, "Bearer t"))
        async with transport_to(make, config, on_response=lambda *args: counted.append(args)) as transport:
            headers = {"Content-Type": "application/json", "User-Agent": "kruise-manager/x"}
            query = {"fieldManager": "a b", "labelSelector": "x in (1,2)"}
            response = await transport.request(Request("POST", "/api/v1/a%2Fb", query, headers, b"{}"))
            await transport.request(Request("POST", "/api", {}, {}, b"{}"))
            async with transport.stream(get("/")) as stream:
                assert stream.status == 201
    assert (response.status, response.body, response.headers.get("Warning")) == (201, b'{"a":1}', "299 - w")
    method, path, received, body = seen[0]
    query_string = "fieldManager=a+b&labelSelector=x+in+%281%2C2%29"
    assert (method, path, body) == ("POST", f"/cluster/api/v1/a%2Fb?{query_string}", b"{}")
    assert received["Authorization"] == "Bearer t"
    assert received["User-Agent"] == "kruise-manager/x"
    assert received["Content-Type"] == "application/json"
    assert received["Accept-Encoding"] == "identity"
    assert "Content-Type" not in seen[1][2]
    assert counted == [("201", method, host.removeprefix("http://")) for method in ("POST", "POST", "GET")]


async def test_a_watch_outlives_the_time_limit_of_requests(make, monkeypatch):
    monkeypatch.setattr(sys.modules[make.__module__], "_REQUEST_SECONDS", 0.05)
    closed, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await go_on.wait()
        await response.write(b"two\n")
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return response

    async with serving(handler) as host, transport_to(make, host) as transport:
        async with transport.stream(get("/watch")) as stream:
            assert stream.status == 200
            assert await anext(stream.chunks) == b"one\n"
            with pytest.raises(TransportError, match=r"no response from .* in time"):
                await transport.request(get("/"))
            go_on.set()
            assert await anext(stream.chunks) == b"two\n"
        await asyncio.wait_for(closed.wait(), 120)


async def test_a_request_may_have_its_own_time_limit(make):
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handler) as host, transport_to(make, host) as transport, asyncio.timeout(30):
        with pytest.raises(TransportError, match=r"no response from .* in time"):
            await transport.request(replace(get("/"), timeout=0.05))


async def test_watches_do_not_wait_for_each_other(make):
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with serving(handler) as host, transport_to(make, host) as transport, AsyncExitStack() as watches:
        async with asyncio.timeout(120):
            for _ in range(101):
                await watches.enter_async_context(transport.stream(get("/watch")))


@pytest.mark.parametrize("first", ["stream", "request"])
async def test_threads_use_the_connections_of_the_first_event_loop(first):
    """Large reviews are decided in a thread, on an event loop of their own."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=request.path.encode())

    async with serving(handler) as host, transport_to(AiohttpTransport, host) as transport:
        if first == "stream":
            async with transport.stream(get("/watch")) as stream:
                assert b"".join([chunk async for chunk in stream.chunks]) == b"/watch"
        else:
            await transport.request(get("/list"))
        for path in ("/a", "/b"):
            response = await asyncio.to_thread(lambda path: asyncio.run(transport.request(get(path))), path)
            assert response.body == path.encode()


@pytest.mark.parametrize("watching", [False, True])
async def test_refused_credentials_are_renewed_once(make, watching):
    tokens = ["old"]

    async def authorization() -> str:
        return f"Bearer {tokens[-1]}"

    async def renew() -> None:
        tokens.append("new")

    async with answering(EMPTY % 401, EMPTY % 200) as (port, asked, _):
        config = ClusterConfig(f"http://127.0.0.1:{port}", authorization=authorization, renew=renew)
        async with transport_to(make, config) as transport:
            if watching:
                for status in (401, 200):  # the watch is retried by the reflector
                    async with transport.stream(get("/")) as stream:
                        assert stream.status == status
            else:
                assert (await transport.request(get("/"))).status == 200
    lines = [line.lower() for head in asked for line in head.split(b"\r\n")]
    sent = [line for line in lines if line.startswith(b"authorization:")]
    assert sent == [b"authorization: bearer old", b"authorization: bearer new"]
    assert len(asked) == 2


@pytest.mark.parametrize("status", [401, 302])
async def test_an_answer_that_no_retry_would_change_is_returned(make, status):
    """A redirect is not followed: the credentials are for this server alone."""
    async with answering(EMPTY % status) as (port, asked, _), transport_to(make, port) as transport:
        assert (await transport.request(get("/"))).status == status
        assert len(asked) == 1


async def test_a_proxy_is_used_if_configured():
    async with answering(EMPTY % 200) as (port, asked, _):
        config = ClusterConfig("http://k8s.invalid", proxy=f"http://127.0.0.1:{port}")
        async with transport_to(AiohttpTransport, config) as transport:
            await transport.request(get("/api"))
    assert asked[0].startswith(b"GET http://k8s.invalid/api HTTP/1.1\r\n")
    with pytest.raises(ConfigError, match="remove proxy-url"):
        PlainTransport(ClusterConfig("https://x", proxy="http://p"))


@pytest.mark.parametrize("host", ["ftp://x", "https://x:abc", "https://x:99999", "https://[::1"])
def test_an_invalid_address_is_refused(host):
    with pytest.raises(ConfigError, match="is not a valid API server address"):
        PlainTransport(ClusterConfig(host, source="test"))


async def test_a_refused_connection_is_reported_plainly(make, unused_tcp_port):
    counted = []
    config = ClusterConfig(f"http://127.0.0.1:{unused_tcp_port}", source="kubeconfig /etc/k")
    async with transport_to(make, config, on_response=lambda *args: counted.append(args)) as transport:
        with pytest.raises(TransportError) as caught:
            await transport.request(get("/api/v1/pods", limit="1"))
    assert str(caught.value) == (
        f"GET /api/v1/pods?limit=1: cannot connect to {config.host} (kubeconfig /etc/k): Connection refused; "
        "is the API server running?"
    )
    assert counted == [("<error>", "GET", f"127.0.0.1:{unused_tcp_port}")]


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "<error>"),
        (b"no http\r\n\r\n", "<error>"),
        (b"HTTP/1.1 abc\r\n\r\n", "<error>"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "<error>"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", "<error>"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "<error>"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nab", "200"),
        (CHUNKS + b"3\r\nabc\r\n", "200"),
        (CHUNKS + b"zz\r\n", "<error>"),
        (CHUNKS + b"-3\r\n", "<error>"),
        (CHUNKS + b"1\r\nabc\r\n", "<error>"),
    ],
)
@pytest.mark.parametrize("watching", [False, True])
async def test_an_invalid_or_interrupted_response_is_an_error(make, answer, code, watching):
    counted = []

    async def read(transport: Transport) -> None:
        if not watching:
            await transport.request(get("/x"))
        async with transport.stream(get("/x")) as stream:
            async for _ in stream.chunks:
                pass

    async with (
        answering(answer) as (port, _, _connections),
        transport_to(make, port, on_response=lambda *args: counted.append(args)) as transport,
    ):
        with pytest.raises(TransportError, match=r"^GET /x: connection to .*: "):
            await read(transport)
    assert [count[0] for count in counted] == [code]


def ok(body: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"Content-Length: %d" % len(body), b"", body])


OK = ok(b"ok")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body", "connections"),
    [
        (OK, b"ok", 1),
        (CHUNKED, b"abcde", 1),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok", 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", 1),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", b"", 2),
        (ok(b"ok", b"Connection: close"), b"ok", 2),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", b"until the end", 2),
        (OK + ok(b"unasked"), b"ok", 2),
        (OK + b"garbage", b"ok", 2),
    ],
    ids=["length", "chunks", "interim", "empty", "upgrade", "close", "no length", "a second answer", "garbage"],
)
async def test_a_connection_is_reused_unless_the_answer_forbids_it(answer, body, connections):
    async with answering(answer) as (port, asked, opened), transport_to(PlainTransport, port) as transport:
        for _ in range(2):
            response = await transport.request(Request("POST", "/x", {}, {}, b"sent"))
            assert (response.body, response.headers.get("Link")) == (body, None)
        assert len(opened) == connections
    assert asked[0].endswith(b"Content-Length: 4\r\n\r\nsent")


async def test_few_and_only_recent_connections_are_kept(monkeypatch):
    monkeypatch.setattr(http1, "_MAX_IDLE", 2)
    async with answering(OK) as (port, _, opened), transport_to(PlainTransport, port) as transport:
        for expected in (3, 4):
            await asyncio.gather(*(transport.request(get("/")) for _ in range(3)))
            assert len(opened) == expected
        monkeypatch.setattr(http1, "_IDLE_SECONDS", 0.0)
        await transport.request(get("/"))
        assert len(opened) == 5


async def test_a_closed_connection_is_reopened_for_reads_and_reported_for_writes():
    async with answering(OK, b"", OK, b"") as (port, asked, opened), transport_to(PlainTransport, port) as transport:
        for _ in range(2):
            assert (await transport.request(get("/"))).body == b"ok"
        assert (len(asked), len(opened)) == (3, 2)
        with pytest.raises(TransportError, match="closed before a response"):
            await transport.request(Request("PATCH", "/x", {}, {}, b""))
        assert len(asked) == 4
    async with answering(OK) as (port, asked, opened), transport_to(PlainTransport, port) as transport:
        await transport.request(get("/"))
        opened[0].close()
        async with asyncio.timeout(60):
            while not transport._idle[0].is_closed:
                await asyncio.sleep(0.01)
        await transport.request(Request("PATCH", "/x", {}, {}, b""))  # not on the closed connection
        assert asked[1].endswith(b"Content-Length: 0\r\n\r\n")


async def test_the_size_of_a_response_is_limited(monkeypatch):
    monkeypatch.setattr(http1, "MAX_BODY", 1)
    async with answering(OK) as (port, _, _opened), transport_to(PlainTransport, port) as transport:
        with pytest.raises(TransportError, match="the response is longer than 1 bytes"):
            await transport.request(get("/"))


async def test_tls_to_a_plain_server_is_an_error(make):
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    async with serving(handler) as host:
        config = ClusterConfig(host.replace("http", "https"), ssl_context=ssl.create_default_context())
        async with transport_to(make, config) as transport:
            with pytest.raises(TransportError, match=r"TLS|certificate"):
                await transport.request(get("/"))


async def test_only_a_server_with_a_trusted_certificate_is_asked(make, tmp_path):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    names, pem = [], tmp_path / "server.pem"
    pem.write_bytes(b"".join(self_signed()))
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    server_side.sni_callback = lambda _socket, name, _context: names.append(name)
    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=server_side) as server:
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ClusterConfig(address, ssl_context=ssl.create_default_context(), server_name="kubernetes")
        async with transport_to(make, config) as transport:
            with pytest.raises(TransportError, match=r"is not trusted: .*; check certificate-authority"):
                await transport.request(get("/"))
        trusting = ssl.create_default_context(cafile=pem)
        trusting.check_hostname = False
        async with transport_to(make, replace(config, ssl_context=trusting)) as transport:
            assert (await transport.request(get("/"))).body == b"ok"
    assert names == ["kubernetes"] * 2
