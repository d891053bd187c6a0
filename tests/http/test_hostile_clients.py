"""Limits on what callers can occupy, over real sockets: headers, bodies, connections, time."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from app.admission.metrics import AdmissionMetrics
from app.admission.registry import build_registry
from app.admission.requests import MAX_BODY_BYTES
from app.admission.server import create_app
from app.api.conversion import convert
from app.certs.issue import issue
from app.certs.tls import ServingContext
from app.kube.admission import STRANGER as ASKED_BY_STRANGER
from app.kube.admission import Allowed, Decide, Decision, Handler, Operation, Review, Rule, Webhook
from app.manager import limits, serving
from app.manager.limits import KnownCallers, Limits
from app.manager.protocol import BoundedProtocol
from app.manager.serving import Server, bind
from tests.admission.requests import review_of
from tests.kit.certificates import certificate, pem_of
from tests.kube.fakes import until

CERTIFICATES = issue(("127.0.0.1",), datetime.now(UTC))
MIB = 1024 * 1024
#: Timeout for waits that must succeed, also on a busy machine.
PATIENCE = 120


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_SECONDS", 0.02)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    came, message = 0, {"more_body": True}
    while message.get("more_body", False):
        message = await receive()
        came += len(message.get("body", b""))
    if scope["path"] == "/slow":
        await asyncio.sleep(0.05)
    size = 32 * MIB if scope["path"] == "/large" else 0
    body = b"%d" % came + b" " * size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def reviews(decide: Decide = lambda _: Allowed()) -> Any:
    rules = (Rule((Operation.CREATE,), ("",), ("v1",), ("pods",)),)
    webhook = Webhook(name="mpod.kb.io", path="/mutate-pod", mutating=True, rules=rules, summary="test")
    registry = build_registry([Handler(webhook, decide)], lambda _: True)
    return create_app(registry, convert, AdmissionMetrics())


class Port:
    def __init__(self, server: Server, address: tuple[str, int], tls: bool) -> None:
        self.server, self.address, self.connections = server, address, server.connections
        self._ssl = ssl.create_default_context(cadata=CERTIFICATES.ca_cert.decode()) if tls else None

    async def connect(self, address: str = "127.0.0.1") -> "Caller":
        return Caller(*await asyncio.open_connection(*self.address, ssl=self._ssl, local_addr=(address, 0)))

    def present(self, folder: Path, client: "ClientCertificate | None") -> None:
        if client is not None and self._ssl is not None:
            path = folder / "client.pem"
            path.write_bytes(client.pem)
            self._ssl.load_cert_chain(path)

    def ask_and_not_read(self, request: bytes) -> socket.socket:
        connection = socket.create_connection(self.address)
        if self._ssl is not None:
            connection = self._ssl.wrap_socket(connection, server_hostname="127.0.0.1")
        connection.sendall(request)
        return connection

    async def ask(self, request: bytes, address: str = "127.0.0.1") -> tuple[int, bytes]:
        """Send a request on a new connection and return the status and body of its answer."""
        return await (await self.connect(address)).ask(request)

    async def until(self, condition: Any) -> None:
        await until(condition)

    async def refuses(self, count: int, *reasons: str) -> None:
        """Wait until this many connections were refused for these reasons."""
        await self.until(lambda: sum(self.connections.refused.get(reason, 0) for reason in reasons) >= count)


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *parts: bytes) -> None:
        """Send the parts until the server stops reading, because it may reject a request before reading all of it."""
        with contextlib.suppress(OSError):
            for part in parts:
                self.writer.write(part)
                await self.writer.drain()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return the status and body of its answer."""
        await self.send(request)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            return int(head.split(b" ")[1]), await self.reader.readexactly(int(length.split(b":")[1]))

    async def closed(self) -> bool:
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except OSError:
                return True


@asynccontextmanager
async def port(
    app: Any = echo, tls: bool | ServingContext = True, callers: KnownCallers | None = None, **changes: Any
) -> AsyncIterator[Port]:
    listener = bind("127.0.0.1", 0, "--test")
    address = listener.getsockname()
    given = ServingContext(CERTIFICATES.cert, CERTIFICATES.key) if tls is True else tls or None
    server = Server(
        app,
        tls=given.listener if given else None,
        grace_seconds=1,
        limits=replace(Limits(linger_seconds=0.2), **changes),
        callers=callers,
    )
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield Port(server, address, bool(tls))
    finally:
        server.stop()
        await task


def post(body: bytes, path: str = "/") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


def chunks(size: int, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"%x\r\n%b\r\n" % (size, b"a" * size)


@pytest.mark.parametrize("tls", [False, True])
async def test_pipelined_requests_are_answered_in_order(tls: bool) -> None:
    async with port(tls=tls) as one:
        caller = await one.connect()
        for size in (0, 5, 3 * MIB, 7):
            assert await caller.ask(post(b"x" * size)) == (200, b"%d" % size)
        assert one.connections.held == 0


async def test_a_body_may_arrive_in_chunks() -> None:
    async with port() as one:
        caller = await one.connect()
        await caller.send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", *chunks(1000, 20), b"0\r\n\r\n")
        assert await caller.answer() == (200, b"20000")
        for byte in post(b"hello"):
            await caller.send(bytes([byte]))
        assert await caller.answer() == (200, b"5")


async def test_expect_continue_is_answered_at_once() -> None:
    async with port(body_bytes=1000) as one:
        caller = await one.connect()
        await caller.send(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await caller.ask(b"abc") == (200, b"3")
        large = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n"
        assert (await caller.ask(large))[0] == 200  # the application decides how to respond
        assert await caller.closed()


HEADS = {
    "one header of 64 MiB": ([b"GET / HTTP/1.1\r\nx: ", *[b"a" * MIB] * 64], 431),
    "headers without end": ([b"GET / HTTP/1.1\r\n", *[b"x: y\r\n" * 20_000] * 100], 431),
    "101 headers": ([b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 101, b"\r\n"], 431),
    "large headers": ([b"GET / HTTP/1.1\r\n", *[b"x: %b\r\n" % (b"a" * 8000)] * 5, b"\r\n"], 431),
    "a name of 64 MiB": ([b"GET / HTTP/1.1\r\n", *[b"a" * MIB] * 64], 431),
    "a URL of 9 KiB": ([b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 9 * 1024)], 414),
    "a URL of 64 MiB": ([b"GET /", *[b"a" * MIB] * 64], 414),
    "no HTTP": ([b"\x16\x03\x01" + b"\x00" * 500], 400),
    "not ASCII": ([b"GET /\xff\xfe HTTP/1.1\r\n\r\n"], 400),
    "no path": ([b"CONNECT x:80 HTTP/1.1\r\n\r\n"], 400),
    "another protocol": ([b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"], 400),
    "a length of 5,000 digits": ([b"POST / HTTP/1.1\r\ncontent-length: %b\r\n\r\n" % (b"9" * 5000)], 400),
    "two lengths": ([b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"], 400),
    "chunk extensions without end": (
        [b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", *[b"a" * MIB] * 64],
        400,
    ),
    "a trailer of 64 MiB": (
        [b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", *[b"a" * MIB] * 64],
        400,
    ),
    "trailers": ([b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n"], 431),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("tls", [False, True])
async def test_oversized_headers_are_refused_while_they_arrive(name: str, tls: bool) -> None:
    parts, status = HEADS[name]
    async with port(tls=tls) as one:
        caller = await one.connect()
        sending = asyncio.create_task(caller.send(*parts))
        assert (await caller.answer())[0] == status
        assert one.connections.held == 0
        assert await caller.closed()
        await sending
        await one.until(lambda: not one.connections.open)


@pytest.mark.parametrize("length", [True, False])
async def test_an_oversized_body_is_refused_under_its_uid_and_discarded(length: bool) -> None:
    review = review_of()
    async with port(reviews()) as one:
        caller = await one.connect()
        head = b"POST /mutate-pod HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        if length:
            parts = [head, b"content-length: %d\r\n\r\n" % (len(review) + 100 * MIB), review, *[b" " * MIB] * 100]
        else:
            parts = [head, b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(review), review)]
            parts += chunks(MIB, 100)
        sending = asyncio.create_task(caller.send(*parts))
        status, body = await caller.answer()
        assert status == 200
        assert b"larger than 7 MiB" in body
        assert b'"code":413' in body
        assert one.connections.held <= MAX_BODY_BYTES + MIB
        sending.cancel()


async def test_an_oversized_body_is_answered_once_if_more_of_it_has_arrived() -> None:
    async with port(tls=False, body_bytes=10) as one:
        head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        assert (await one.ask(head + b"".join(chunks(20, 3))))[0] == 200
        assert one.connections.refused == {"body_bytes": 1}


async def test_a_conversion_of_100_mebibytes_is_refused_and_discarded() -> None:
    app = reviews()
    async with port(app, bodies=app.body_limits) as one:
        caller = await one.connect()
        head = b"POST /convert HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        sending = asyncio.create_task(
            caller.send(head + b"content-length: %d\r\n\r\n" % (100 * MIB), *[b" " * MIB] * 100)
        )
        assert (await caller.answer())[0] == 413
        assert one.connections.held == 0
        sending.cancel()


@pytest.mark.behaviour("MGR-152")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_fast_sender_takes_turns_with_others(tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = [0]
    receive = BoundedProtocol.data_received

    def received(protocol: BoundedProtocol, data: bytes) -> None:
        turns[-1] += len(data)
        receive(protocol, data)

    async def count_turns() -> None:
        while True:
            if turns[-1]:
                turns.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(BoundedProtocol, "data_received", received)
    async with port(tls=tls, body_bytes=64 * MIB, complete_seconds=600.0) as there:
        body = b"x" * 24 * MIB
        counting = asyncio.create_task(count_turns())
        with await asyncio.to_thread(there.ask_and_not_read, post(body)) as connection:
            assert await asyncio.to_thread(connection.recv, 12) == b"HTTP/1.1 200"
        counting.cancel()
        assert sum(turns) > len(body)
        assert max(turns) < 2 * MIB


@pytest.mark.behaviour("MGR-152")
async def test_a_large_body_is_passed_on_in_its_original_chunks() -> None:
    parts: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = {"more_body": True}
        while message["more_body"]:
            message = await receive()
            parts.append(message["body"])
        await echo(scope, AsyncMock(return_value={}), send)

    body = os.urandom(3 * MIB)
    async with port(app) as there:
        caller = await there.connect()
        for sent in (body, body[:100]):
            parts.clear()
            assert (await caller.ask(post(sent)))[0] == 200
            assert b"".join(parts) == sent
            assert max(map(len, parts)) <= MIB


async def test_bodies_of_all_connections_share_one_limit() -> None:
    async with port(held_bytes=3 * MIB) as one:
        callers = [await one.connect() for _ in range(8)]
        for caller in callers:  # each announces 1 MiB and sends most of it
            await caller.send(post(b"x" * MIB)[:-1])
        await one.refuses(5, "held_bytes")
        assert one.connections.held <= 3 * MIB
        assert await one.ask(post(b"x" * 5000)) == (200, b"5000")


async def test_a_request_being_answered_is_not_dropped_for_another() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def holding(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await release.wait()
        await echo(scope, receive, send)

    async with port(holding, held_bytes=1000) as one:
        first, second = await one.connect(), await one.connect()
        await first.send(post(b"x" * 800))
        await begun.wait()
        assert (await second.ask(post(b"x" * 300)))[0] == 503
        release.set()
        assert await first.answer() == (200, b"800")


@pytest.mark.parametrize("tls", [False, True])
async def test_connections_with_unread_answers_are_closed(tls: bool) -> None:
    mute = []
    async with port(tls=tls, held_bytes=20 * MIB, read_seconds=0.1) as one:
        for _ in range(4):
            mute.append(await asyncio.to_thread(one.ask_and_not_read, post(b"", "/large")))
        await one.refuses(4, "slow_reader", "held_bytes")
        await one.until(lambda: not one.connections.open)
        assert one.connections.held == 0
    for connection in mute:
        connection.close()


@pytest.mark.parametrize("sent", [b"P", b"POST / HTTP/1.1\r\nhost: x\r\n", post(b"x" * 100)[:-1]])
async def test_an_incomplete_request_times_out(sent: bytes) -> None:
    async with port(complete_seconds=0.1) as one:
        caller = await one.connect()
        assert (await caller.ask(sent))[0] == 408
        assert await caller.closed()
        await one.until(lambda: not one.connections.open)


async def test_an_unknown_caller_has_less_time_to_begin_than_an_api_server() -> None:
    """An API server opens connections in advance. If one closes as it is first used, the review fails."""
    callers = KnownCallers()
    async with port(callers=callers, tls=False, complete_seconds=0.1) as one:
        known, stranger, late = await one.connect(), await one.connect(STRANGE), await one.connect("127.0.0.3")
        callers._addresses |= {"127.0.0.3"}  # its address becomes known after it has connected
        callers.asked_at = float("inf")
        assert await stranger.closed()
        assert (await late.ask(post(b"")))[0] == 200
        assert (await known.ask(post(b"")))[0] == 200


async def test_a_trickling_request_times_out() -> None:
    async with port(complete_seconds=0.3) as one:
        caller = await one.connect()
        await caller.send(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            while True:
                await caller.send(b"x: y\r\n")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert (await caller.answer())[0] == 408
        trickling.cancel()


@pytest.mark.parametrize("used", [True, False])
async def test_an_idle_connection_is_closed(used: bool) -> None:
    async with port(keep_alive_seconds=0.1) as one:
        caller = await one.connect()
        if used:
            assert (await caller.ask(post(b"")))[0] == 200
        assert await caller.closed()
        assert not one.connections.refused


async def test_a_pipelining_client_is_answered() -> None:
    async with port() as one:
        caller = await one.connect()
        await caller.send(post(b"", "/slow") * 10_000)
        assert await caller.answer() == (200, b"0")
        assert await caller.closed()


async def test_idle_connections_do_not_block_other_callers() -> None:
    async with port(connections=10) as one:
        used = await one.connect()
        assert await used.ask(post(b"1")) == (200, b"1")
        holders = [await one.connect() for _ in range(30)]
        for holder in holders:
            await holder.send(b"POST / HTTP/1.1\r\n")
        await one.until(lambda: len(one.connections.open) <= 10)
        assert await used.ask(post(b"22")) == (200, b"2")
        assert await one.ask(post(b"333")) == (200, b"3")


async def test_unfinished_handshakes_do_not_block_other_callers() -> None:
    async with port(connections=10) as one:
        with contextlib.ExitStack() as mute:
            for _ in range(30):
                mute.enter_context(socket.create_connection(one.address))
            await one.refuses(20, "handshakes")
            assert await one.ask(post(b"1")) == (200, b"1")


STRANGE = "127.0.0.2"


@pytest.mark.behaviour("MGR-154")
async def test_handshakes_of_unknown_callers_are_ended_before_those_of_known_callers() -> None:
    async with port(callers=KnownCallers(), connections=10) as one:
        with contextlib.ExitStack() as mute:
            known = mute.enter_context(socket.create_connection(one.address))
            known.setblocking(False)
            for _ in range(30):
                mute.enter_context(socket.create_connection(one.address, source_address=(STRANGE, 0)))
            await one.refuses(20, "handshakes")
            with pytest.raises(BlockingIOError):
                known.recv(1)


@pytest.mark.behaviour("MGR-154")
async def test_unknown_callers_yield_to_known_callers_only() -> None:
    release = asyncio.Event()
    begun: list[str] = []

    async def holding(scope: Any, receive: Any, send: Any) -> None:
        begun.append(ASKED_BY_STRANGER.get())
        if ASKED_BY_STRANGER.get():
            await release.wait()
        await echo(scope, receive, send)

    async with port(holding, callers=KnownCallers(), connections=2) as one:
        strangers = []
        for number in (1, 2):
            strangers.append(await one.connect(STRANGE))
            await strangers[-1].send(post(b"1"))
            await one.until(lambda number=number: begun == [STRANGE] * number)
        with pytest.raises(OSError):
            await one.connect(STRANGE)
        known = await one.connect()
        assert await known.ask(post(b"22")) == (200, b"2")
        assert begun == [STRANGE, STRANGE, ""]
        release.set()
        await one.until(lambda: len(one.connections.open) == 2)
        assert one.connections.strange == 2


@pytest.mark.behaviour("MGR-154")
async def test_bodies_of_unknown_callers_are_dropped_before_those_of_known_callers() -> None:
    async with port(callers=KnownCallers(), held_bytes=1000) as one:
        known, stranger = await one.connect(), await one.connect(STRANGE)
        begun = b"POST / HTTP/1.1\r\nContent-Length: 900\r\n\r\n"
        await stranger.send(begun, b"x" * 300)
        await one.until(lambda: one.connections.held == 300)
        await known.send(begun, b"x" * 800)
        assert await stranger.closed()
        assert await known.ask(b"x" * 100) == (200, b"900")


@pytest.mark.behaviour("MGR-154")
async def test_a_review_of_an_unknown_caller_reserves_nothing_while_known_callers_call() -> None:
    dry: list[bool] = []

    def decide(review: Review) -> Decision:
        dry.append(review.dry_run)
        return Allowed()

    body = review_of()
    request = b"POST /mutate-pod HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with port(reviews(decide), callers=KnownCallers()) as one:
        check = b"GET /healthz HTTP/1.1\r\n\r\n"  # our own readiness check is not a review of a known caller
        for address, sent in (
            ("127.0.0.1", check),
            (STRANGE, request + body),
            ("127.0.0.1", request + body),
            (STRANGE, request + body),
        ):
            assert (await one.ask(sent, address))[0] == 200
    assert dry == [False, False, True]


@pytest.mark.behaviour("MGR-154")
async def test_an_unknown_caller_that_never_gets_its_turn_is_refused() -> None:
    callers = KnownCallers()
    async with port(callers=callers, tls=False, complete_seconds=0.1) as one:
        callers.asked_at = float("inf")  # known callers are always active
        before = [asyncio.create_task(one.connections.turns.wait(f"10.0.0.{n}", seconds=1.0)) for n in range(100)]
        await before[0]
        assert (await one.ask(post(b"1"), STRANGE))[0] == 503
        for task in before:
            task.cancel()


async def test_handshakes_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_SECONDS", 0.05)
    async with port() as one:
        with socket.create_connection(one.address) as mute:
            mute.setblocking(False)
            await one.refuses(1, "handshake")
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(OSError):
                    assert await asyncio.get_running_loop().sock_recv(mute, 1) == b""


async def test_connections_never_exceed_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        raised = limits.within_descriptors(Limits(connections=10))
        assert raised.connections == 10
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 10 + limits.OTHER_DESCRIPTORS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_few_descriptors_limit_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (300, 300))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda *_: pytest.fail("no more may be had"))
    assert limits.within_descriptors(Limits(connections=1_000)).connections == 150
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1_000, 1_000))
    assert limits.within_descriptors(Limits(connections=1_000)).connections == 1_000 - limits.OTHER_DESCRIPTORS


async def test_shutdown_answers_running_requests() -> None:
    async with port() as one:
        caller = await one.connect()
        body = post(b"x" * 100)
        await caller.send(body[:-1])
        await one.until(lambda: one.connections.held)
        one.server.stop()
        await asyncio.sleep(0.1)
        assert await caller.ask(body[-1:]) == (200, b"100")
        assert await caller.closed()


ORGANIZATION = "system:masters"


class ClientCertificate:
    def __init__(self, name: str) -> None:
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self.ca = certificate(authority_key, "CN=clients", ca=True).public_bytes(Encoding.PEM)
        signed = certificate(key, f"O={ORGANIZATION},CN={name}", issuer="CN=clients", signer=authority_key)
        self.pem = signed.public_bytes(Encoding.PEM) + pem_of(key)


CLIENT = ClientCertificate("kube-apiserver")
STRANGER = ClientCertificate("kube-apiserver")


@pytest.mark.parametrize(
    ("client", "names", "status"),
    [
        (CLIENT, frozenset(), 200),
        (CLIENT, frozenset({"other", "kube-apiserver"}), 200),
        (CLIENT, frozenset({"other"}), 403),
        (CLIENT, frozenset({ORGANIZATION}), 403),
        (None, frozenset(), 403),
        (None, None, 200),
    ],
)
@pytest.mark.parametrize("renewed", [False, True])
async def test_with_a_client_authority_only_certified_clients_may_post(
    tmp_path: Path, client: ClientCertificate | None, names: frozenset[str] | None, status: int, renewed: bool
) -> None:
    authority = CLIENT.ca if names is not None else b""
    context = ServingContext(CERTIFICATES.cert, CERTIFICATES.key, authority)
    if renewed:
        context.replace(CERTIFICATES.cert, CERTIFICATES.key)
    async with port(tls=context, client_names=names) as one:
        one.present(tmp_path, client)
        caller = await one.connect()
        assert (await caller.ask(b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200  # the self-check sends no certificate
        assert (await caller.ask(post(b"{}", "/convert")))[0] == 200  # API servers have no certificate for conversion
        assert (await caller.ask(post(b"{}", "/mutate-pod")))[0] == status


async def test_a_foreign_client_certificate_ends_the_handshake(tmp_path: Path) -> None:
    context = ServingContext(CERTIFICATES.cert, CERTIFICATES.key, CLIENT.ca)
    async with port(tls=context, client_names=frozenset()) as one:
        one.present(tmp_path, STRANGER)
        try:
            caller = await one.connect()
            await caller.send(post(b"{}"))
            assert await caller.closed()
        except OSError:
            pass
        await one.refuses(1, "handshake")
