"""Admission: the part of a process that serves reviews.

It serves the certificate from shared memory, listens, fills the caches that decisions need (they contain no Pods),
and becomes ready. Its only writes to the cluster are events about denials.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.admission.policies import WebhookPolicies, apply_to_handlers, load_policies
from app.admission.registry import Registry, build_registry
from app.admission.server import AdmissionApp, Decided, create_app
from app.api.conversion import convert
from app.certs.issue import CertificateError, expiry
from app.certs.tls import ServingContext
from app.manager.conversion_process import conversion_worker
from app.manager.health import Readiness, cache_lines, debug_page, health_app, loopback_only, metrics_app, self_check
from app.manager.limits import PAGES, KnownCallers, Limits
from app.manager.process import CHECK_SECONDS, GRACE_SECONDS, Process
from app.manager.serving import Server, StartError, client_names, read_client_ca
from app.manager.webhook_handlers import build_handlers
from app.manager.wiring import Recorders, admission_context

logger = logging.getLogger(__name__)

#: Seconds a replica keeps accepting reviews after it becomes unready, so that all API servers notice.
DRAIN_SECONDS: Final = 3.0
#: Extra seconds to wait for the reconciler's certificate, so that the reconciler reports a failure first.
_MARGIN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets of a replica, bound before its processes are forked. None means disabled."""

    webhook: socket.socket
    health: socket.socket | None
    metrics: socket.socket | None

    @property
    def webhook_port(self) -> int:
        """The port the admission service is bound to."""
        return int(self.webhook.getsockname()[1])


class Admission:
    """The part that serves reviews. Its readiness depends on ``webhook_processes`` and ``reconciler``."""

    def __init__(
        self, process: Process, listeners: Listeners, webhook_processes: tuple[str, ...], reconciler: str
    ) -> None:
        self._process = process
        self._listeners = listeners
        self._reconciler = reconciler
        self._recorders = Recorders(process)
        self._readiness = Readiness(process.replica, process.name, webhook_processes, reconciler)
        self._conversions = conversion_worker()
        self._callers = KnownCallers()
        self.app = self._build()
        self._server: Server | None = None
        self._context: ServingContext | None = None
        self._certificate_seen = 0
        self._client_ca = read_client_ca(process.settings.flags.text("client-ca-file"), "--client-ca-file")
        self._last_shown: Decided | None = None
        self._decision_lines: list[str] = []
        process.need("certificate", "there is none yet")
        process.need("caches", "not filled yet")

    async def start(self) -> None:
        """Listen as soon as there is a certificate, and become ready once reviews can be answered."""
        process, tasks = self._process, self._process.tasks
        self._serve_probes()
        self._recorders.start()
        if not self._client_ca:
            known = self._callers.watch(process.client.named("callers"), process.rng, process.metrics.reflectors)
            tasks.start(known.run(), "addresses of API servers")
            tasks.start(self._callers.report(process.clock, self._only_strangers), "callers")
        await self._first_certificate()
        tasks.start(self._follow_certificate(), "certificate")
        # A missing CRD may be installed later; the reconciler logs its name and the command. Stored objects of an
        # older version can be listed only while /convert is served, so listening comes first.
        await process.until(lambda: process.replica.state(self._reconciler).defined)
        process.start_admission_caches()
        await self._caches_filled()
        self.app.starting = ""
        self._readiness.self_check = self_check(self._listeners.webhook.getsockname(), self._ca_bundle)
        process.done("caches")
        process.freeze()
        logger.info("%s: ready to serve reviews on port %d", process.name, self._listeners.webhook_port)

    async def stop(self) -> None:
        """Become unready, wait until API servers have noticed, and finish requests in flight."""
        self.app.draining = True
        if self._server is None:
            return
        logger.info("%s: stopping: finishing requests in flight", self._process.name)
        if self._process.settings.among_others:
            await self._process.clock.sleep(DRAIN_SECONDS)
        self._server.stop()
        await self._recorders.flush()
        await self._conversions.close()
        self.app.aside.close()

    def debug_pages(self) -> Mapping[str, list[str]]:
        name = self._process.name
        last = self.app.decisions[-1] if self.app.decisions else None
        if last is not self._last_shown:
            self._last_shown = last
            self._decision_lines = [f"{decision.line()}  [{name}]" for decision in self.app.decisions]
        return {"caches": cache_lines(name, self._process.caches.for_admission), "decisions": self._decision_lines}

    def _only_strangers(self, only: bool) -> None:
        self._process.update_state(only_strangers=only)

    # ---- certificate

    async def _first_certificate(self) -> None:
        process = self._process
        seconds = process.settings.flags.seconds("webhook-initialize-timeout") + _MARGIN_SECONDS
        try:
            await process.clock.wait_for(process.until(lambda: process.replica.certificate.version), seconds)
        except TimeoutError:
            raise StartError(f"no serving certificate within {seconds:g} s") from None
        self._take_certificate()
        if self._context is None:
            raise StartError("the serving certificate cannot be used")
        self.listen(self._context)
        process.done("certificate")

    def listen(self, context: ServingContext) -> None:
        names = client_names(self._client_ca, self._process.settings.flags.text("client-allowed-names"))
        limits = Limits(bodies=self.app.body_limits, client_names=names)
        tls, callers = context.listener, self._callers
        self._server = Server(self.app, tls=tls, grace_seconds=GRACE_SECONDS, limits=limits, callers=callers)
        self._process.metrics.registry.register(self._server.connections)
        server = self._server.serve([self._listeners.webhook])
        self._process.tasks.start(server, "admission server", finish=self._server.stop)

    async def _follow_certificate(self) -> None:
        while True:
            await self.wait_for_check()
            if self._process.replica.certificate.version != self._certificate_seen:
                self._take_certificate()

    async def wait_for_check(self) -> None:
        """Wait until the published certificate must be checked again."""
        await self._process.clock.sleep(CHECK_SECONDS)

    def _take_certificate(self) -> None:
        """Serve the published certificate. Connections stay open. An invalid certificate is never used."""
        shared, metrics = self._process.replica.certificate, self._process.metrics
        self._certificate_seen = shared.version
        certificate = shared.read()
        if certificate is None:
            return
        try:
            if self._context is None:
                self._context = ServingContext(certificate.cert, certificate.key, self._client_ca)
            elif not self._context.serves(certificate.cert, certificate.key):
                self._context.replace(certificate.cert, certificate.key)
                logger.info("%s: serving a new certificate", self._process.name)
            else:
                return
        except OSError as error:  # Out of file descriptors: retry at the next check.
            self._certificate_seen = -1
            metrics.certificate_errors.inc()
            logger.error("%s: new certificate not served yet: %s", self._process.name, error)  # noqa: TRY400
            return
        except CertificateError as error:
            metrics.certificate_errors.inc()
            logger.error("%s: new certificate rejected: %s", self._process.name, error)  # noqa: TRY400
            return
        metrics.certificate_reads.inc()
        metrics.certificate_expiry.set(expiry(certificate.cert).timestamp())

    def _ca_bundle(self) -> bytes:
        certificate = self._process.replica.certificate.read()
        return certificate.ca_bundle if certificate is not None else b""

    # ---- caches, probes

    async def _caches_filled(self) -> None:
        process = self._process
        seconds = process.settings.flags.seconds("controller-cache-sync-timeout")
        for what, store in process.caches.for_admission.items():
            if not store.ready:
                process.need("caches", f"{what} are not filled yet")
            try:
                await process.clock.wait_for(store.wait_until_ready(), seconds)
            except TimeoutError:
                raise StartError(
                    f"cache of {what}: not filled within {seconds:g} s; see the log for the cause"
                ) from None

    def _serve_probes(self) -> None:
        process, listeners = self._process, self._listeners

        async def page(path: str) -> str | None:
            process.publish()
            await process.counts.gather()
            return debug_page(path, process.replica)

        debug = loopback_only(page)
        if listeners.health is not None:
            server = Server(health_app(self._readiness, debug), grace_seconds=1, limits=PAGES, port="health")
            process.tasks.start(server.serve([listeners.health]), "probes", finish=server.stop)
        if listeners.metrics is not None:
            app = metrics_app(process.counts.exposition)
            server = Server(app, grace_seconds=1, limits=PAGES, port="metrics")
            process.tasks.start(server.serve([listeners.metrics]), "metrics", finish=server.stop)

    def _build(self) -> AdmissionApp:
        process = self._process
        settings = process.settings
        handlers = build_handlers(admission_context(process, self._recorders, self._callers))
        policies = load_policies(settings.policies) if settings.policies is not None else WebhookPolicies()
        final = apply_to_handlers(handlers, policies, settings.own_namespace)
        registry: Registry = build_registry(final, settings.gates.enabled)
        app = create_app(registry, convert, process.metrics.admission, self._conversions)
        if settings.flags.boolean("webhook-docs"):
            from app.manager.apidocs import add_pages

            add_pages(app, registry, loopback_only=True)
        app.starting = "its caches are not filled yet"
        return app
