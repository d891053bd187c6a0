"""The aiohttp transport with a real HTTP server on loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from app.kube.config import ClusterConfig
from app.kube.errors import TransportError
from app.kube.http1 import PlainTransport
from app.kube.transport import AiohttpTransport
from app.kube.wire import Request


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
async def transport_to(config: ClusterConfig, **options) -> AsyncIterator[AiohttpTransport]:
    transport = AiohttpTransport(config, **options)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def transport_to_answer(answer: bytes) -> AsyncIterator[AiohttpTransport]:
    """Return a transport to a server that sends these bytes and closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with transport_to(ClusterConfig(f"http://{host}:{port}")) as transport:
            yield transport


async def test_requests_arrive_unchanged():
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        return web.Response(status=201, body=b'{"a":1}', headers={"Warning": "299 - w"})

    counted = []
    async with serving(handler) as host:
        config = ClusterConfig(host, authorization=lambda: asyncio.sleep(0, "Bearer t"))
        async with transport_to(config, on_response=lambda *args: counted.append(args)) as transport:
            headers = {"Content-Type": "application/json", "User-Agent": "kruise-manager/x"}
            query = {"fieldManager": "a b", "labelSelector": "x in (1,2)"}
            response = await transport.request(Request("POST", "/api/v1/a%2Fb", query, headers, b"{}"))
    assert (response.status, response.body, response.headers["warning"]) == (201, b'{"a":1}', "299 - w")
    method, path, received, body = seen[0]
    assert (method, path, body) == ("POST", "/api/v1/a%2Fb?fieldManager=a+b&labelSelector=x+in+%281%2C2%29", b"{}")
    assert received["Authorization"] == "Bearer t"
    assert received["User-Agent"] == "kruise-manager/x"
    assert received["Content-Type"] == "application/json"
    assert received["Accept-Encoding"] == "identity"
    assert counted == [("201", "POST", host.removeprefix("http://"))]


async def test_a_body_without_a_content_type_is_sent_without_one():
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response()

    async with serving(handler) as host, transport_to(ClusterConfig(host)) as transport:
        await transport.request(Request("POST", "/api", {}, {}, b"{}"))
    assert "Content-Type" not in seen[0]


async def test_a_stream_yields_chunks_and_closes_its_connection():
    closed = asyncio.Event()
    go_on = asyncio.Event()

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

    async with serving(handler) as host, transport_to(ClusterConfig(host)) as transport:
        async with transport.stream(get("/watch")) as stream:
            assert stream.status == 200
            assert await anext(stream.chunks) == b"one\n"
            go_on.set()
            assert await anext(stream.chunks) == b"two\n"
        await asyncio.wait_for(closed.wait(), 120)


@pytest.mark.parametrize("first", ["stream", "request"])
async def test_threads_use_the_connections_of_the_first_event_loop(first):
    """Large reviews are decided in a thread, on an event loop of their own."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=request.path.encode())

    async with serving(handler) as host, transport_to(ClusterConfig(host)) as transport:
        if first == "stream":
            async with transport.stream(get("/watch")) as stream:
                assert b"".join([chunk async for chunk in stream.chunks]) == b"/watch"
        else:
            await transport.request(get("/list"))
        for path in ("/a", "/b"):
            response = await asyncio.to_thread(lambda path: asyncio.run(transport.request(get(path))), path)
            assert response.body == path.encode()


async def test_refused_credentials_are_renewed_once():
    tokens = ["old"]
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.headers["Authorization"])
        return web.Response(status=200 if asked[-1] == "Bearer new" else 401)

    async def authorization() -> str:
        return f"Bearer {tokens[-1]}"

    async def renew() -> None:
        tokens.append("new")

    async with (
        serving(handler) as host,
        transport_to(ClusterConfig(host, authorization=authorization, renew=renew)) as transport,
    ):
        assert (await transport.request(get("/"))).status == 200
    assert asked == ["Bearer old", "Bearer new"]


async def test_failed_renewals_are_not_retried():
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(1)
        return web.Response(status=401)

    async with serving(handler) as host, transport_to(ClusterConfig(host)) as transport:
        assert (await transport.request(get("/"))).status == 401
    assert asked == [1]


async def test_a_refused_connection_is_reported_plainly(unused_tcp_port):
    counted = []
    config = ClusterConfig(f"http://127.0.0.1:{unused_tcp_port}", source="kubeconfig /etc/k")
    async with transport_to(config, on_response=lambda *args: counted.append(args)) as transport:
        with pytest.raises(TransportError) as caught:
            await transport.request(get("/api/v1/pods", limit="1"))
    assert str(caught.value) == (
        f"GET /api/v1/pods?limit=1: cannot connect to {config.host} (kubeconfig /etc/k): Connection refused; "
        "is the API server running?"
    )
    assert counted == [("<error>", "GET", f"127.0.0.1:{unused_tcp_port}")]


async def test_a_timeout_is_an_error():
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handler) as host, transport_to(ClusterConfig(host), request_timeout=0.05) as transport:
        with pytest.raises(TransportError, match=r"no response from .* in time"):
            await transport.request(get("/"))


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"])
async def test_an_invalid_response_is_an_error_with_its_request(answer):
    async with transport_to_answer(answer) as transport:
        with pytest.raises(TransportError, match=r"^GET /x: connection to .* broke: "):
            await transport.request(get("/x"))


async def test_an_interrupted_stream_is_an_error():
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    async with transport_to_answer(answer) as transport:
        received = []

        async def read() -> None:
            async with transport.stream(get("/x")) as stream:
                async for chunk in stream.chunks:
                    received.append(chunk)

        with pytest.raises(TransportError):
            await read()
        assert received == [b"abc"]


async def test_tls_to_a_plain_server_is_an_error():
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    async with serving(handler) as host:
        config = ClusterConfig(host.replace("http", "https"), ssl_context=ssl.create_default_context())
        async with transport_to(config) as transport:
            with pytest.raises(TransportError, match=r"TLS|certificate"):
                await transport.request(get("/"))


async def test_an_untrusted_certificate_is_reported_plainly(tmp_path):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(self_signed(tmp_path))
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=server_side)
    async with server:
        port = server.sockets[0].getsockname()[1]
        config = ClusterConfig(f"https://127.0.0.1:{port}", ssl_context=ssl.create_default_context())
        async with transport_to(config) as transport:
            for one in (transport, PlainTransport(config)):
                with pytest.raises(TransportError, match=r"is not trusted: .*; check certificate-authority"):
                    await one.request(get("/"))


def self_signed(folder) -> str:
    """Return a certificate and its key in one PEM file."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return str(path)
