"""The agent's probes over HTTP and TCP, and the server of /healthz and /metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.daemon.flags import UsageError, address, features, gates, parser, without_effect
from app.daemon.main import _run, cluster_config, main
from app.daemon.metrics import MAX_CONNECTIONS, HealthServer
from app.daemon.objects import Handler, HttpGetAction, HttpHeader, TcpSocketAction
from app.daemon.probes_and_hooks import HookError, Network, ProbeError, run_hook
from app.kube import http1, logs
from app.kube.clock import SystemClock
from app.kube.config import ClusterConfig
from app.kube.errors import ConfigError
from app.kube.http1 import Connection, PlainTransport
from app.kube.logs import own_flags
from app.kube.wire import Request
from tests.kit import objects
from tests.kit.runtime import SimulatedRuntime, served
from tests.kit.transports import answering
from tests.kube.fakes import until


def transport(port: int) -> PlainTransport:
    return PlainTransport(ClusterConfig(f"http://127.0.0.1:{port}", source="test"))


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# --- Probes


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} x\r\n{lines}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.behaviour("KD-64")
@pytest.mark.parametrize(
    ("answers", "succeeded", "message"),
    [
        ([answer(200, b"fine")], True, "fine"),
        ([answer(399, b"odd")], True, "Probe terminated redirects, Response body: odd"),
        ([answer(404)], False, "HTTP probe failed with statuscode: 404"),
        ([answer(500)], False, "HTTP probe failed with statuscode: 500"),
        ([answer(302, Location="/there"), answer(200, b"there")], True, "there"),
        (
            [answer(302, b"moved", Location="http://other.invalid/")],
            True,
            "Probe terminated redirects, Response body: moved",
        ),
        ([answer(302, Location="/again")], False, "stopped after 10 redirects"),
        ([answer(302, Location="http://["), answer(200)], False, "redirected to an invalid URL: Invalid IPv6 URL"),
        (
            [answer(302, Location="http://127.0.0.1:99999/"), answer(200)],
            False,
            "redirected to an invalid URL: Port out of range 0-65535",
        ),
        ([answer(302, Location="file:///etc/passwd"), answer(200)], False, "redirected to unsupported protocol 'file'"),
        ([b""], False, "EOF"),
        ([answer(200, b"x" * 50_000)], True, "x" * 1024),
    ],
)
async def test_http_probes_follow_redirects_and_report_the_response(
    answers: list[bytes], succeeded: bool, message: str
) -> None:
    async with answering(*answers) as (port, asked, _):
        action = HttpGetAction(
            path="/a b?c=d",
            port=port,
            http_headers=(
                HttpHeader("Host", "web"),
                HttpHeader("X", "1"),
                *(HttpHeader("Y", f"1{end}Z: 1") for end in "\r\n"),
            ),
        )
        outcome = await Network().request(action, "127.0.0.1", 5)
        if not (succeeded or message.startswith("HTTP probe failed")):
            # The reason follows the request.
            message = f'Get "http://127.0.0.1:{port}/a%20b?c=d": {message}'
        assert (outcome.succeeded, outcome.message) == (succeeded, message)
        assert asked[0].startswith(b"GET /a%20b?c=d HTTP/1.1\r\nHost: web\r\nUser-Agent: kube-probe/")
        assert b"\r\nX: 1\r\n" in asked[0]
        assert b"Z: 1" not in asked[0]


@pytest.mark.behaviour("KD-64")
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/there", b"/there"),
        ("there?x=y", b"/a/there?x=y"),
        ("../there", b"/there"),
        ("?x=y", b"/a/b?x=y"),
        ("//127.0.0.1:{port}/there", b"/there"),
    ],
)
async def test_relative_redirects_are_followed(location: str, target: bytes) -> None:
    async with answering(answer(200)) as (port, there, _):
        redirect = answer(302, Location=location.format(port=port))
        async with answering(redirect, answer(200)) as (other, here, _connections):
            outcome = await Network().request(HttpGetAction(path="/a/b", port=other), "127.0.0.1", 5)
        assert outcome.succeeded
        assert (here + there)[1].startswith(b"GET " + target + b" ")


@pytest.mark.behaviour("KD-64")
@pytest.mark.parametrize("host", ["a..b", "x" * 70, "\x00", "é" * 80])
async def test_an_invalid_host_fails_the_probe(host: str) -> None:
    request = await Network().request(HttpGetAction(port=80, host=host), "127.0.0.1", 5)
    connection = await Network().connection(TcpSocketAction(port=80, host=host), "127.0.0.1", 5)
    assert not request.succeeded
    assert not connection.succeeded
    assert "is not a valid host name" in request.message
    assert connection.message.startswith("dial tcp ")


@pytest.mark.behaviour("KD-51")
@pytest.mark.parametrize(
    ("host", "answers", "why"),
    [
        ("a..b", [], "'a..b' is not a valid host name"),
        ("", [answer(302, Location="http://[")], "redirected to an invalid URL: Invalid IPv6 URL"),
        ("", [answer(500)], "the request failed with status code 500"),
    ],
)
async def test_a_failing_hook_does_not_delay_the_restart(host: str, answers: list[bytes], why: str) -> None:
    clock = SystemClock()
    async with answering(*answers) as (port, _, _connections):
        hook = Handler(http_get=HttpGetAction(port=port, host=host))
        with pytest.raises(HookError, match=re.escape(why)):
            await run_hook(SimulatedRuntime(clock), "c1", hook, (), "127.0.0.1", clock, Network())


@pytest.mark.behaviour("KD-105")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3000, "the response has more than 65536 bytes without content"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 50_000, ""),
    ],
    ids=["before", "after"],
)
async def test_an_endless_response_ends_the_probe(answer: bytes, why: str) -> None:
    async with answering(answer) as (port, _, _):
        async with asyncio.timeout(120):
            outcome = await Network().request(HttpGetAction(port=port), "127.0.0.1", 10**9)
    assert outcome.succeeded is (not why)
    assert outcome.message.endswith(why)


@pytest.mark.behaviour("KD-105")
async def test_a_pod_that_reads_nothing_holds_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[asyncio.Transport] = []
    connect = Connection.open

    async def noted(*args: Any) -> Connection:
        connection = await connect(*args)
        opened.append(connection._writer.transport)
        return connection

    monkeypatch.setattr(http1, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(Connection, "open", noted)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        headers = [HttpHeader("x", "y" * 16 * 1024 * 1024)]
        action = HttpGetAction(port=listening.getsockname()[1], http_headers=headers)
        probe = asyncio.create_task(Network().request(action, "127.0.0.1", 10**9))
        async with asyncio.timeout(120):
            while not opened or not opened[0].get_write_buffer_size():
                await asyncio.sleep(0.01)
            probe.cancel()
            await asyncio.wait((probe,))
            while opened[0].get_extra_info("socket").fileno() >= 0:
                await asyncio.sleep(0.01)


@pytest.mark.behaviour("KD-64")
async def test_a_tcp_probe_succeeds_if_the_port_accepts_a_connection() -> None:
    async with answering(OK) as (port, _, _connections):
        assert (await Network().connection(TcpSocketAction(port=port), "127.0.0.1", 5)).succeeded
        assert (await Network().connection(TcpSocketAction(port=str(port)), "127.0.0.1", 5)).succeeded
    refused = await Network().connection(TcpSocketAction(port=port), "127.0.0.1", 5)
    why = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert (refused.succeeded, refused.message) == (False, why)
    request = await Network().request(HttpGetAction(port=port), "127.0.0.1", 5)
    assert (request.succeeded, request.message) == (False, f'Get "http://127.0.0.1:{port}/": {why}')


@pytest.mark.behaviour("KD-64")
async def test_a_probe_fails_after_its_timeout() -> None:
    """The kernel accepts the connection; no response comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        connection = await Network().connection(TcpSocketAction(port=port), "127.0.0.1", 0)
        request = await Network().request(HttpGetAction(port=port), "127.0.0.1", 0)
    assert (connection.succeeded, connection.message) == (False, f"dial tcp 127.0.0.1:{port}: i/o timeout")
    why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    assert (request.succeeded, request.message) == (False, f'Get "http://127.0.0.1:{port}/": {why}')


@pytest.mark.behaviour("KD-69")
@pytest.mark.parametrize("port", ["http", "", "123456", "²", -1, 0, 65536])
async def test_a_probe_of_an_invalid_port_cannot_run(port: int | str) -> None:
    with pytest.raises(ProbeError):
        await Network().connection(TcpSocketAction(port=port), "127.0.0.1", 5)
    with pytest.raises(ProbeError):
        await Network().request(HttpGetAction(port=port), "127.0.0.1", 5)


@pytest.mark.behaviour("KD-64")
async def test_a_tls_probe_of_a_plain_server_fails() -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(complain, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        outcome = await Network().request(HttpGetAction(port=port, scheme="HTTPS"), "127.0.0.1", 5)
    assert not outcome.succeeded
    assert outcome.message.endswith("http: server gave HTTP response to HTTPS client")


# --- /healthz, /metrics and the command line


@pytest.mark.behaviour("KD-4")
async def test_health_and_metrics_are_served() -> None:
    wrong = ["crrInformerSynced has not synced yet"]
    health = HealthServer(lambda: wrong[0], lambda: b"up 1\n", "text/plain")
    unsynced = (500, "text/plain; charset=utf-8", b"crrInformerSynced has not synced yet\n")
    assert health.answer("GET", "/healthz") == unsynced
    wrong[0] = ""
    assert health.answer("GET", "/healthz?verbose")[::2] == (200, b"ok")
    assert health.answer("GET", "/metrics")[::2] == (200, b"up 1\n")
    assert health.answer("GET", "/other")[0] == 404
    assert health.answer("POST", "/healthz")[0] == 405
    listening = await health.start("127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    assert (await transport(port).request(Request("GET", "/healthz", {}, {}))).body == b"ok"
    assert (await answered(port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert await answered(port, b"GET /healthz HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * 10_000)) == b""
    listening.close()
    impatient = await HealthServer(lambda: "", lambda: b"", "text/plain", seconds=0).start("127.0.0.1", 0)
    silent = await answered(impatient.sockets[0].getsockname()[1], b"")
    assert silent == b"", "a client that sends nothing is disconnected"
    impatient.close()


async def answered(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.behaviour("KD-4")
def test_metrics_are_rendered_once_a_second_however_often_they_are_requested() -> None:
    now, rendered = [10.0], iter([b"first", b"second"])
    health = HealthServer(lambda: "", lambda: next(rendered), "text/plain", now=lambda: now[0])
    answers = []
    for now[0] in (10.0, 10.0, 10.9, 11.0, 11.5):
        answers.append(health.answer("GET", "/metrics")[2])
    assert answers == [b"first"] * 3 + [b"second"] * 2


@pytest.mark.behaviour("KD-4")
async def test_idle_connections_do_not_delay_the_kubelet() -> None:
    """The agent uses the host network: 16 connections from any Pod could fail its liveness probe."""
    health = HealthServer(lambda: "", lambda: b"", "text/plain", seconds=600)
    listening = await health.start("127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    kubelets, request = await asyncio.open_connection("127.0.0.1", port)
    held = []
    async with asyncio.timeout(60):
        for _ in range(MAX_CONNECTIONS + 20):
            held.append(await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)))
        # Each closed connection is seen to be closed, so all were accepted.
        for reader, _ in held[:21]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        request.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await kubelets.read()).startswith(b"HTTP/1.1 200 ")
        assert (await transport(port).request(Request("GET", "/healthz", {}, {}))).body == b"ok"
    for _, writer in (*held, (kubelets, request)):
        writer.close()
    listening.close()


@pytest.mark.behaviour("KD-2")
def test_logging_flags_of_existing_manifests_are_accepted() -> None:
    given = "--logtostderr=true --log_dir=/x --one_output -v=4 --zap-encoder json --rest-config-burst=7"
    options = parser().parse_args(own_flags(given.split()))
    assert (options.v, options.logging_format, options.rest_config_burst) == (4, "json", 7)
    assert without_effect(options) == ["--log-dir", "--logtostderr", "--one-output"]
    assert without_effect(parser().parse_args([])) == []


@pytest.mark.behaviour("KD-2", "KD-3")
def test_addresses_and_gates_are_parsed() -> None:
    assert address(":10221") == ("", 10221)
    assert address("127.0.0.1:1") == ("127.0.0.1", 1)
    assert address("[::1]:1") == ("::1", 1)
    for bad in ("10221", ":x", ":99999", ""):
        with pytest.raises(UsageError, match="--addr"):
            address(bad)
    assert gates("A=true, B=False,") == {"A": True, "B": False}
    repeated = parser().parse_args(["--feature-gates=A=true", "--feature-gates", "B=false"])
    assert gates(repeated.feature_gates) == {"A": True, "B": False}
    with pytest.raises(UsageError, match="'A' is not"):
        gates("A")
    off = features({"DaemonWatchingPod": False, "PodProbeMarkerGate": False})
    assert (off.pods, off.probes, off.env_from_metadata) == (False, False, False)
    group = features({"AllBeta": False, "DaemonWatchingPod": True})
    assert (group.pods, group.probes, group.env_from_metadata) == (True, False, False)


def kubeconfig(folder: Path, server: str) -> str:
    file = folder / server.rpartition("/")[2]
    file.write_text(json.dumps(objects.kubeconfig(server, token="t")))
    return str(file)


@pytest.mark.behaviour("KD-2")
async def test_the_flag_precedes_the_environment_and_both_the_service_account(tmp_path: Path) -> None:
    flag, variable = (kubeconfig(tmp_path, server) for server in ("http://flag", "http://variable"))
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert (await cluster_config(flag, {**environ, "KUBECONFIG": variable})).host == "http://flag"
    assert (await cluster_config("", {**environ, "KUBECONFIG": variable})).host == "http://variable"
    with pytest.raises(ConfigError, match="service account of this Pod"):
        await cluster_config("", environ)


@pytest.mark.behaviour("KD-2", "KD-3", "KD-4")
async def test_the_command_serves_its_health_and_ends_at_a_signal(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, path), answering(b"") as (api, asked, _connections):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        flags = {
            "kubeconfig": kubeconfig(tmp_path, f"http://127.0.0.1:{api}"),
            "addr": f"127.0.0.1:{port}",
            "socket-file": path,
            "feature-gates": "DaemonWatchingPod=false",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app.daemon.main", *(f"--{name}={value}" for name, value in flags.items())),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NODE_NAME": "node1"},
        )
        try:
            async with asyncio.timeout(120):
                assert process.stderr is not None
                while b"node agent started: node=node1" not in (line := await process.stderr.readline()):
                    assert line, "it has ended"
                health = await transport(port).request(Request("GET", "/healthz", {}, {}))
                assert (health.status, health.body) == (500, b"nodeImageInformerSynced has not synced yet\n")
                kinds = ("nodeimages", "containerrecreaterequests", "nodepodprobes")
                await until(lambda: all(f"/{kind}?".encode() in b"".join(asked) for kind in kinds))
                assert b"/pods?" not in b"".join(asked)
                process.terminate()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.behaviour("KD-2")
def test_without_the_name_of_its_node_the_command_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    assert main([], {}) == 2
    assert "environment variable NODE_NAME is required" in caplog.text


async def test_without_the_extra_the_agent_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.daemon.cri.client", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(UsageError, match=r"\(grpc\): pip install 'pykruise\[agent\]'"):
        await _run("node", parser().parse_args([]), {})
