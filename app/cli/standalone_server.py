"""The admission service without a cluster, which ``pykruise serve`` runs."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.admission.server import create_app
from app.api.conversion import convert
from app.certs.issue import CertificateSet
from app.certs.sources import CA_FILE, ensure_files
from app.certs.tls import ServingContext
from app.kube.clock import SystemClock
from app.manager.conversion_process import conversion_worker
from app.manager.gates import FeatureGates
from app.manager.health import metrics_app
from app.manager.limits import Limits
from app.manager.metrics import ManagerMetrics
from app.manager.process import BEAT_SECONDS, Tasks
from app.manager.serving import Server, bind
from app.manager.shared_state import Counts, Replica
from app.manager.standalone import Standalone
from app.manager.supervisor import Supervisor

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 5.0
#: How long before expiry generated certificates are renewed. This is later than in a cluster, because renewal replaces
#: the CA without announcing it, and clients must be given the new one.
RENEW_BEFORE: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Command-line options."""

    policies: Path
    host: str
    port: int
    workers: int
    certificates: Path
    gates: FeatureGates


def run(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT. Raises StartError or CertificateError if start-up fails."""
    hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", *([options.host] if options.host else []))))
    certificates = ensure_files(options.certificates, hosts, SystemClock().now(), RENEW_BEFORE)
    listener = bind(options.host, options.port, "--port (PORT= with make serve)")
    port = listener.getsockname()[1]
    logger.info(
        "serving https://%s:%d with objects from %s; clients trust %s",
        options.host or "localhost",
        port,
        options.policies,
        options.certificates / CA_FILE,
    )

    # The objects are loaded before the workers fork, so that the workers share the memory.
    standalone = Standalone(options.policies, options.gates, SystemClock(), Random())
    asyncio.run(standalone.reload())
    logger.info("loaded %s", standalone.summary)

    names = [f"worker {number}" for number in range(options.workers)]
    replica = Replica(names)
    works = {name: functools.partial(_in_loop, name, replica, standalone, certificates, listener) for name in names}
    return works[names[0]]() if options.workers == 1 else Supervisor(replica, works).run()


def _in_loop(
    name: str, replica: Replica, standalone: Standalone, certificates: CertificateSet, listener: socket.socket
) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(name, replica, standalone, certificates, listener))
    return 0


async def _serve(
    name: str, replica: Replica, standalone: Standalone, certificates: CertificateSet, listener: socket.socket
) -> None:
    metrics = ManagerMetrics()
    counts = Counts(replica, name, metrics.registry)
    app = create_app(standalone.registry, convert, metrics.admission, conversion_worker())
    app.router.routes.append(Route("/metrics", endpoint=_Metrics(counts.exposition)))
    from app.manager.apidocs import add_pages

    add_pages(app, standalone.registry)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tls = ServingContext(certificates.cert, certificates.key)
    server = Server(app, tls=tls.listener, grace_seconds=GRACE_SECONDS, limits=Limits(bodies=app.body_limits))
    metrics.registry.register(server.connections)
    tasks = Tasks(stop)
    tasks.start(standalone.watch(), "watching files")
    tasks.start(_live(name, replica, counts), "heartbeat")
    replica.on_publication_request(name, functools.partial(counts.publish, {}))
    tasks.start(server.serve([listener]), "server", finish=server.stop)
    await stop.wait()
    app.draining = True
    await tasks.end(GRACE_SECONDS)
    tasks.raise_failure()


async def _live(name: str, replica: Replica, counts: Counts) -> None:
    while True:
        replica.beat(name)
        counts.publish({})
        await asyncio.sleep(BEAT_SECONDS)


class _Metrics:
    """Serves ``/metrics`` of all workers on the same port."""

    def __init__(self, exposition: Callable[[], Awaitable[bytes]]) -> None:
        self._app = metrics_app(exposition)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
