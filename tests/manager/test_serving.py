"""Listening, health and readiness over real sockets."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.admission.configurations import ServiceEndpoint, UrlEndpoint
from app.certs.issue import issue
from app.certs.tls import ServingContext
from app.kube.queue import WorkQueue
from app.manager.health import Readiness, endpoint_fault, health_app, loopback_only, metrics_app, self_check
from app.manager.limits import ONLY_STRANGERS
from app.manager.metrics import ManagerMetrics
from app.manager.process import Tasks
from app.manager.serving import Server, StartError, bind, bind_address
from app.manager.shared_state import Certificate, Life, Replica, State, families, of_supervisor, text
from tests.deploy.test_dashboard import filled_metrics
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual

CERTIFICATES = issue(("127.0.0.1",), datetime.now(UTC))


@asynccontextmanager
async def serving(app: object, tls: ServingContext | None = None) -> AsyncIterator[tuple[str, int]]:
    listener = bind("127.0.0.1", 0, "--test")
    address: tuple[str, int] = listener.getsockname()
    server = Server(app, tls=tls.listener if tls else None, grace_seconds=1)
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield address
    finally:
        server.stop()
        await task


@pytest.mark.parametrize("host", ["256.1.1.1", "no.such.host.invalid", "192.0.2.1"])
def test_a_foreign_address_is_refused_by_name(host: str) -> None:
    with pytest.raises(StartError, match=f"--test: cannot listen on {host}, port 0: "):
        bind(host, 0, "--test")


def test_addresses_parse_as_in_go() -> None:
    for address, family in (("127.0.0.1:0", socket.AF_INET), ("[::1]:0", socket.AF_INET6)):
        if family == socket.AF_INET6 and not socket.has_ipv6:
            continue
        listener = bind_address(address, "--x")
        assert listener.family == family
        listener.close()
    assert bind_address("0", "--x") is None
    assert bind_address("", "--x") is None


def a_replica(*, registered: bool = False) -> tuple[Replica, Readiness]:
    """Two webhook processes and a reconciler, seen from the first. ``registered``: all have started."""
    replica = Replica(("webhook-0", "webhook-1", "reconciler"))
    for name in replica.processes if registered else ():
        replica.states[name].write(State(pid=1, registered=True))
    return replica, Readiness(replica, "webhook-0", ("webhook-0", "webhook-1"), "reconciler")


def answering(status: Callable[[], int] = lambda: 200) -> ASGIApp:
    """An application that answers every request with a status and nothing else."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status(), "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return app


async def nothing(_path: str) -> str | None:
    return None


async def test_a_restarted_process_keeps_its_replica_ready() -> None:
    replica, readiness = a_replica(registered=True)
    assert await readiness.fault() == ""
    replica.states["webhook-1"].write(State(pid=4, missing={"caches": "not filled yet"}))
    replica.states["reconciler"].write(State(pid=5, missing={"start": "starting"}, registered=True))
    assert await readiness.fault() == ""
    replica.states["webhook-0"].write(State(pid=6, missing={"caches": "not filled yet"}))
    assert await readiness.fault() == "webhook-0: caches: not filled yet"
    replica.states["webhook-1"].write(State(pid=4, stopping=True))
    assert readiness.lines()[1].startswith("[-]webhook-1 not ready")


@pytest.mark.behaviour("MGR-20")
async def test_a_reconciler_that_never_starts_makes_the_manager_unready() -> None:
    replica, readiness = a_replica(registered=True)
    now = time.time()
    for failing_for, started_ago, fault in (
        (600, 5, ""),
        (1_000, 5, "reconciler: has been restarting for 17 minutes; see its log for the cause"),
        (1_000, 61, ""),  # it runs
        (0, 5, ""),
    ):
        since = now - failing_for if failing_for else 0.0
        life = Life(pid=7, restarts=40, started=now - started_ago, failing_since=since)
        replica.lives["reconciler"].write(life)
        assert await readiness.fault() == fault
        shown = {
            labels["process"]: value
            for family in of_supervisor(replica)
            if family.name == "kruise_process_failing_seconds"
            for _, labels, value in family.samples
        }
        assert shown["webhook-0"] == 0
        assert (shown["reconciler"] > 0) is (started_ago < 60 and failing_for > 0)


@pytest.mark.behaviour("MGR-20", "MGR-52", "MGR-163")
async def test_readyz_lists_checks_and_disabled_kinds_on_request() -> None:
    replica, readiness = a_replica(registered=True)
    replica.states["webhook-1"].write(State(pid=1, only_strangers=True))
    replica.set_absent({"sidecarsets.apps.kruise.io"})
    async with serving(health_app(readiness, loopback_only(nothing))) as (host, port), httpx.AsyncClient() as http:
        plain, detailed = [await http.get(f"http://{host}:{port}/readyz{query}") for query in ("", "?verbose")]
    assert (plain.status_code, plain.text) == (200, "ok")
    assert detailed.status_code == 200
    assert detailed.text.splitlines() == [
        "[+]webhook-0 ok",
        "[+]webhook-1 ok",
        "[+]webhooks ok",
        f"[-]callers: {ONLY_STRANGERS}",
        "[-]sidecarsets.apps.kruise.io not installed, so only its kind is disabled; to enable it: kubectl apply -f"
        " deploy/crds/",
        "readyz check passed",
    ]


async def test_debug_pages_are_for_loopback_only() -> None:
    async def shown(path: str) -> str | None:
        return f"this is {path}\n" if path == "/debug/queues" else None

    page = loopback_only(shown)
    _, readiness = a_replica()
    async with serving(health_app(readiness, page)) as (host, port), httpx.AsyncClient() as http:
        base = f"http://{host}:{port}"
        assert (await http.get(f"{base}/debug/queues")).text == "this is /debug/queues\n"
        assert (await http.get(f"{base}/debug/other")).status_code == 404
        # A web page under a host name that resolves to this address.
        assert (await http.get(f"{base}/debug/queues", headers={"Host": "evil.example"})).status_code == 403
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    elsewhere = {"type": "http", "path": "/debug/queues", "client": ("192.0.2.7", 1), "headers": []}
    await page(elsewhere, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 403


@pytest.mark.behaviour("MGR-20")
async def test_healthz_is_ok_while_readyz_reports_missing_parts() -> None:
    replica, readiness = a_replica()
    replica.states["webhook-0"].write(State(pid=1))
    replica.states["webhook-1"].write(State(pid=2, missing={"caches": "not filled yet"}))
    async with serving(health_app(readiness, loopback_only(nothing))) as (host, port), httpx.AsyncClient() as http:
        base = f"http://{host}:{port}"
        for path in ("healthz", "healthz/ping"):
            assert (await http.get(f"{base}/{path}")).status_code == 200
        answer = await http.get(f"{base}/readyz")
        assert answer.status_code == 503
        assert answer.text == "not ready: webhook-1: caches: not filled yet\n"
        replica.states["webhook-1"].write(State(pid=2))
        assert (await http.get(f"{base}/readyz")).text == "not ready: webhooks: not registered yet\n"
        replica.states["reconciler"].write(State(pid=3, registered=True))
        for path in ("readyz", "readyz/webhook-ready"):
            assert (await http.get(f"{base}/{path}")).status_code == 200
        replica.states["webhook-0"].write(State(pid=1, stopping=True))
        assert (await http.get(f"{base}/readyz")).text == "not ready: shutting down\n"
        assert (await http.get(f"{base}/healthz")).status_code == 200
        assert (await http.get(f"{base}/other")).status_code == 404


@pytest.mark.behaviour("MGR-20", "MGR-121")
async def test_ready_means_the_port_answers_under_the_published_ca() -> None:
    status = 200
    _, readiness = a_replica(registered=True)
    async with serving(answering(lambda: status), ServingContext(CERTIFICATES.cert, CERTIFICATES.key)) as address:
        readiness.self_check = self_check(address, lambda: CERTIFICATES.ca_cert)
        assert await readiness.fault() == ""
        status = 500
        assert await readiness.fault() == "webhook-ready: /healthz returned 500"
        status = 200
        other = issue(("127.0.0.1",), datetime.now(UTC))
        readiness.self_check = self_check(address, lambda: other.ca_cert)
        assert "CERTIFICATE_VERIFY_FAILED" in await readiness.fault()
        readiness.self_check = self_check(address, lambda: b"")
        assert await readiness.fault() != ""
    readiness.self_check = self_check(address, lambda: CERTIFICATES.ca_cert)
    assert "webhook-ready: https://localhost:" in await readiness.fault()


@pytest.mark.behaviour("MGR-146")
async def test_webhooks_are_registered_once_their_address_answers() -> None:
    shared = Certificate(CERTIFICATES.cert, CERTIFICATES.key, CERTIFICATES.ca_cert)
    async with serving(answering(), ServingContext(CERTIFICATES.cert, CERTIFICATES.key)) as (host, port, *_):
        endpoint = UrlEndpoint(host, port)
        assert await endpoint_fault(endpoint, shared) == ""
        other = issue(("127.0.0.1",), datetime.now(UTC))
        assert "CERTIFICATE_VERIFY_FAILED" in await endpoint_fault(
            endpoint, Certificate(other.cert, other.key, other.ca_cert)
        )
    assert await endpoint_fault(endpoint, shared) != ""
    service = await endpoint_fault(ServiceEndpoint("no-service", "invalid"), shared)
    assert service.startswith("https://no-service.invalid.svc:443/healthz: ")


@pytest.mark.parametrize(("days", "fault"), [(2, ""), (-3652, "certificate has expired")], ids=["behind", "ahead"])
async def test_a_slow_clock_makes_no_replica_unready(days: int, fault: str) -> None:
    """Another replica created the certificate; only the API server's clock decides whether it is valid."""
    made = issue(("127.0.0.1",), datetime.now(UTC) + timedelta(days=days))
    async with serving(answering(), ServingContext(made.cert, made.key)) as address:
        found = await self_check(address, lambda: made.ca_cert)()
    assert fault in found if fault else found == ""


@pytest.mark.behaviour("MGR-121")
async def test_the_self_check_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.manager.health.SELF_CHECK_SECONDS", 0.05)

    over = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)  # does not speak TLS and never answers
    try:
        check = self_check(server.sockets[0].getsockname(), lambda: CERTIFICATES.ca_cert)
        assert (await check()).endswith("/healthz: no answer within 0.05 s")
    finally:
        over.set()
        server.close()


@pytest.mark.behaviour("MGR-25")
async def test_metrics_have_the_names_dashboards_expect() -> None:
    async def exposition() -> bytes:
        return text(families(filled_metrics().registry))

    async with serving(metrics_app(exposition)) as (host, port), httpx.AsyncClient() as http:
        found = (await http.get(f"http://{host}:{port}/metrics")).text
        assert (await http.get(f"http://{host}:{port}/")).status_code == 404
    for line in (
        "kruise_manager_is_leader 0.0",
        'rest_client_requests_total{code="200",host="127.0.0.1:6443",method="GET"} 1.0',
        'controller_runtime_reconcile_total{controller="sidecarset",result="error"} 1.0',
        'controller_runtime_reconcile_total{controller="sidecarset",result="success"} 0.0',
        'controller_runtime_reconcile_total{controller="sidecarset",result="requeue_after"} 0.0',
        'controller_runtime_reconcile_errors_total{controller="sidecarset"} 1.0',
        'controller_runtime_reconcile_panics_total{controller="sidecarset"} 1.0',
        'controller_runtime_terminal_reconcile_errors_total{controller="sidecarset"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="sidecarset"} 3.0',
        'controller_runtime_active_workers{controller="sidecarset"} 1.0',
        'workqueue_depth{name="sidecarset"} 2.0',
        'workqueue_adds_total{name="sidecarset"} 1.0',
        'workqueue_retries_total{name="sidecarset"} 1.0',
        'kruise_reflector_events_total{kind="Pod"} 2.0',
        'kruise_reflector_errors_total{kind="Pod",what="watch"} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in found


@virtual
@pytest.mark.behaviour("MGR-25")
async def test_work_in_progress_is_measured() -> None:
    clock, metrics = VirtualClock(), ManagerMetrics()
    queue: WorkQueue[str] = WorkQueue("q", clock)
    metrics.queues.observe(queue)

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"workqueue_{name}_seconds", {"name": "q"})

    assert (value("unfinished_work"), value("longest_running_processor")) == (0, 0)
    queue.add("one")
    queue.add("two")
    await queue.get()
    await clock.sleep(7)
    await queue.get()
    await clock.sleep(3)
    assert (value("unfinished_work"), value("longest_running_processor")) == (13, 10)


async def test_shutdown_finishes_running_requests() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def app(scope: dict, receive: object, send: object) -> None:
        asked.set()
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"done"})  # type: ignore[operator]

    listener = bind("127.0.0.1", 0, "--test")
    address = listener.getsockname()
    server = Server(app, grace_seconds=10)
    task = asyncio.create_task(server.serve([listener]))
    async with httpx.AsyncClient() as http:
        request = asyncio.create_task(http.get(f"http://{address[0]}:{address[1]}/"))
        await asked.wait()
        server.stop()
        may_answer.set()
        assert (await request).text == "done"
    await task


async def test_a_failing_task_stops_the_others_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()
    tasks = Tasks(stop)

    async def fails() -> None:
        raise RuntimeError("oops")

    async def endless() -> None:
        await asyncio.Event().wait()

    tasks.start(endless(), "endless")
    tasks.start(fails(), "the watcher")
    async with asyncio.timeout(120):
        await stop.wait()
        await tasks.end(1)
    assert "the watcher failed" in caplog.text
    with pytest.raises(RuntimeError, match="oops"):
        tasks.raise_failure()


async def test_the_foreground_ends_with_its_work_or_the_stop() -> None:
    stop = asyncio.Event()
    tasks = Tasks(stop)
    assert await tasks.until_stopped(asyncio.sleep(0)) is True
    asyncio.get_running_loop().call_soon(stop.set)
    async with asyncio.timeout(120):
        assert await tasks.until_stopped(asyncio.sleep(3600)) is False

    async def refuses() -> None:
        raise StartError("no")

    with pytest.raises(StartError):
        await Tasks(asyncio.Event()).until_stopped(refuses())
