"""Health, readiness and debug endpoints: ``/healthz``, ``/readyz``, ``/metrics`` and ``/debug/`` over plain HTTP.

Any webhook process can respond for the whole replica, because every process of the replica publishes its state.
"""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from app.admission.configurations import Endpoint, ServiceEndpoint
from app.admission.requests import is_local
from app.kube.controller import Controller
from app.kube.store import Store
from app.manager.limits import ONLY_STRANGERS
from app.manager.shared_state import CONTENT_TYPE, Certificate, Life, Replica

#: Timeout of the self-check. [MGR-121]
SELF_CHECK_SECONDS: Final = 2.0

#: Seconds after which a reconciler that keeps failing makes its replica unready.
FAILING_SECONDS: Final = 900.0

#: OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_FLAG_NO_CHECK_TIME.
_NOT_YET_VALID: Final = 9
_NO_CHECK_TIME: Final = 0x200000

#: Returns why the check failed, or an empty string.
Check: TypeAlias = Callable[[], Awaitable[str]]
_Answer: TypeAlias = tuple[int, bytes, str]
_TEXT: Final = "text/plain; charset=utf-8"


class Readiness:
    """Readiness of this replica, as reported by ``/readyz``."""

    def __init__(self, replica: Replica, own: str, webhook_processes: tuple[str, ...], reconciler: str) -> None:
        self._replica = replica
        self._own = own
        self._webhook_processes = webhook_processes
        self._reconciler = reconciler
        self.self_check: Check | None = None

    async def fault(self) -> str:
        """Return why the replica is not ready, or an empty string. [MGR-20]"""
        if self._replica.state(self._own).stopping:
            return "shutting down"
        # The restart of one process must not take the replica's other processes out of service.
        awaited = (self._own,) if self._replica.was_ready else self._webhook_processes
        for name in awaited:
            state = self._replica.state(name)
            if not state.ready:
                return f"{name}: {state.obstacle}"
        reconciler = self._replica.state(self._reconciler)
        if not reconciler.registered:
            return "webhooks: not registered yet"
        life = self._replica.lives[self._reconciler].read() or Life()
        if (seconds := life.failing_seconds(time.time())) > FAILING_SECONDS:
            # Reviews could still be answered, but only a reconciler repairs certificates and registration.
            return f"{self._reconciler}: has been restarting for {seconds / 60:.0f} minutes; see its log for the cause"
        self._replica.latch_ready()
        return await self.self_check() if self.self_check is not None else ""

    def lines(self) -> list[str]:
        """Return one line per process, per disabled kind and per warning, for ``/readyz?verbose``."""
        lines = []
        for name in self._webhook_processes:
            state = self._replica.state(name)
            lines.append(f"[+]{name} ok" if state.ready else f"[-]{name} not ready: {state.obstacle}")
        registered = self._replica.state(self._reconciler).registered
        lines.append("[+]webhooks ok" if registered else "[-]webhooks not registered yet")
        if any(self._replica.state(name).only_strangers for name in self._webhook_processes):
            lines.append(f"[-]callers: {ONLY_STRANGERS}")
        lines += [
            f"[-]{name} not installed, so only its kind is disabled; to enable it: kubectl apply -f deploy/crds/"
            for name in self._replica.absent
        ]
        return lines


def health_app(readiness: Readiness, debug: ASGIApp) -> ASGIApp:
    """Return the application that serves ``/healthz`` (whether the process runs), ``/readyz`` (whether the replica
    accepts reviews) and ``/debug/``."""

    async def answer(path: str, *, verbose: bool = False) -> _Answer:
        if path in ("/healthz", "/healthz/ping"):
            return 200, b"ok", _TEXT
        if path in ("/readyz", "/readyz/webhook-ready"):
            fault = await readiness.fault()
            text = f"not ready: {fault}\n" if fault else "ok"
            if verbose:
                end = text if fault else "readyz check passed\n"
                text = "\n".join([*readiness.lines(), end])
            return 503 if fault else 200, text.encode("utf-8", "replace"), _TEXT
        return 404, b"not found: use /healthz, /readyz or /debug/\n", _TEXT

    plain, detailed = _plain(answer), _plain(partial(answer, verbose=True))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inner = debug if scope["type"] == "http" and scope["path"].startswith("/debug") else plain
        if scope["type"] == "http" and b"verbose" in scope.get("query_string", b"").split(b"&"):
            inner = detailed if inner is plain else inner
        await inner(scope, receive, send)

    return app


def metrics_app(exposition: Callable[[], Awaitable[bytes]]) -> ASGIApp:
    """Return the application that serves ``/metrics``."""

    async def answer(path: str) -> _Answer:
        if path == "/metrics":
            return 200, await exposition(), CONTENT_TYPE
        return 404, b"not found: use /metrics\n", _TEXT

    return _plain(answer)


def loopback_only(page: Callable[[str], Awaitable[str | None]]) -> ASGIApp:
    """Return an application that serves plain text to local clients only, including ``kubectl port-forward``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(path: str) -> _Answer:
            if not is_local(scope):
                return 403, b"debug pages are served on loopback only: use kubectl port-forward\n", _TEXT
            text = await page(path)
            return (
                (404, b"not found: /debug/ lists the pages\n", _TEXT) if text is None else (200, text.encode(), _TEXT)
            )

        await _plain(answer)(scope, receive, send)

    return app


def _plain(answer: Callable[[str], Awaitable[_Answer]]) -> ASGIApp:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body, content_type = await answer(scope["path"])
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def self_check(address: tuple[str, int], ca_bundle: Callable[[], bytes]) -> Check:
    """Return a check that requests ``/healthz`` from our own admission port, trusting only the CAs we publish.

    ``address`` is the listener's address; the certificate is verified for ``localhost``. [MGR-30]
    """
    host = "127.0.0.1" if ipaddress.ip_address(address[0]).is_unspecified else address[0]
    port = address[1]

    async def check() -> str:
        fault = await _fault(host, port, "localhost", ca_bundle())
        return f"webhook-ready: {fault}" if fault else ""

    return check


async def endpoint_fault(endpoint: Endpoint, certificate: Certificate | None) -> str:
    """Return why the registered address of the webhooks does not respond, or an empty string."""
    if isinstance(endpoint, ServiceEndpoint):
        host, port = f"{endpoint.name}.{endpoint.namespace}.svc", endpoint.port
    else:
        host, port = endpoint.host, endpoint.port
    return await _fault(host, port, host, certificate.ca_bundle if certificate is not None else b"")


async def _fault(host: str, port: int, name: str, ca_bundle: bytes) -> str:
    where = f"https://{f'[{name}]' if ':' in name else name}:{port}/healthz"
    try:
        async with asyncio.timeout(SELF_CHECK_SECONDS):
            status = await _status(host, port, name, ca_bundle)
    except TimeoutError:
        return f"{where}: no answer within {SELF_CHECK_SECONDS:g} s"
    except (OSError, ValueError) as error:
        return f"{where}: {error}"
    return "" if status == b"200" else f"/healthz returned {status.decode('ascii', 'replace')}"


async def _status(host: str, port: int, name: str, ca_bundle: bytes) -> bytes:
    """Return the status code of a request to a webhook port. Raises OSError or ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca_bundle.decode("ascii", "replace"))
    try:
        return await _asked(host, port, name, context)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code != _NOT_YET_VALID:
            raise
    # Our clock is behind that of the replica that issued the certificate. Ignore the validity period, because only the
    # API server's clock matters.
    context.verify_flags |= _NO_CHECK_TIME
    return await _asked(host, port, name, context)


async def _asked(host: str, port: int, name: str, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        parts = line.split(b" ", 2)
        return parts[1] if len(parts) > 1 else b"nothing"
    finally:
        writer.close()


#: Maximum number of keys to show per queue.
_KEYS_SHOWN: Final = 20
PAGES: Final[Mapping[str, str]] = {
    "processes": "state of each process",
    "queues": "keys of each controller: waiting, in progress, failing",
    "caches": "number of objects in the caches of each process",
    "decisions": "latest decisions of each webhook process, oldest first",
}


def debug_page(path: str, replica: Replica) -> str | None:
    """Return the page at a path, or None if there is none."""
    name = path.removeprefix("/debug").strip("/")
    if not name:
        return "".join(f"/debug/{page:<12} {what}\n" for page, what in PAGES.items())
    if name == "processes":
        return "".join(f"{line}\n" for line in _process_lines(replica))
    if name not in PAGES:
        return None
    lines: list[str] = []
    for shared in replica.details.values():
        details = shared.read()
        lines += details.debug.get(name, []) if details is not None else []
    if name == "decisions":
        lines.sort()
    return "".join(f"{line}\n" for line in lines) or "nothing yet\n"


def cache_lines(process: str, stores: Mapping[str, Store[Any]]) -> list[str]:
    """Return one line per cache."""
    return [
        f"{process:<12} {what:<24} {len(store):>7} objects{'' if store.ready else ', not filled yet'}"
        for what, store in stores.items()
    ]


def queue_lines(controllers: Iterable[Controller], now: float) -> list[str]:
    """Return the state of each controller's queue."""
    lines = []
    for controller in controllers:
        queue = controller.queue
        working = queue.processing
        lines.append(f"{controller.name}: {len(queue)} waiting, {len(working)} of {controller.workers} workers busy")
        for key, since in list(working.items())[:_KEYS_SHOWN]:
            failures = queue.failures(key)
            note = f", after {failures} failures in a row" if failures else ""
            lines.append(f"  {key}: in progress for {now - since:.1f} s{note}")
        # A failing key spends most of its time waiting for its next attempt.
        waiting = ((times, due, key) for key, (times, due) in queue.failing.items() if key not in working)
        for times, due, key in heapq.nlargest(_KEYS_SHOWN, waiting, key=lambda failing: failing[0]):
            lines.append(f"  {key}: failed {times} times in a row, next attempt in {max(0.0, due - now):.1f} s")
    return lines


def _process_lines(replica: Replica) -> list[str]:
    lines = []
    now, monotonic = time.time(), time.monotonic()
    for name in replica.processes:
        life, state = replica.lives[name].read() or Life(), replica.state(name)
        parts = [f"process {state.pid or life.pid}", "ready" if state.ready else state.obstacle]
        if life.pid:
            parts.append(f"up {now - life.started:.0f} s, {life.restarts} restarts, {life.hangs} hangs")
        parts.append(f"last heartbeat {max(0.0, monotonic - replica.last_beat(name)):.1f} s ago")
        if state.leading:
            parts.append("leader")
        elif state.leader:
            parts.append(f"leader is {state.leader}")
        lines.append(f"{name:<12} {', '.join(parts)}")
    return lines
