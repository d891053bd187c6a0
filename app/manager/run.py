"""``pykruise manager``: from flags to a running process, and down again.

Order of a start: bind the ports (a port in use is told at once), reach the API server, take the certificate, answer
``/convert`` (a stored old version needs it before anything can be listed), fill the caches, register the webhooks,
report ready, start the controllers. ``Manager`` holds the parts; the process that only serves webhooks and the one that
only reconciles will each start a part of them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from app.admission.policies import PolicyError, WebhookPolicies, apply_to_handlers, load_policies
from app.admission.registry import build_registry
from app.admission.server import AdmissionApp, create_app
from app.api.conversion import convert
from app.api.registry import KINDS
from app.certs.files import FileCertificates
from app.certs.issue import CertificateError
from app.certs.secret import SecretCertificates
from app.kube.backoff import Backoff
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.controller import Controller
from app.kube.errors import ConfigError, KubeError
from app.kube.events import EventRecorder
from app.kube.leases import LeaderElector, identity
from app.kube.objects import ObjectReference
from app.kube.ratelimit import TokenBucket
from app.kube.resources import LEASES
from app.kube.transport import AiohttpTransport
from app.manager import logging as manager_logging
from app.manager.caches import Caches, InjectionLookups
from app.manager.flags import FlagError, Flags, help_text, parse_flags
from app.manager.handlers import Surroundings, build_handlers
from app.manager.health import Readiness, health_app, metrics_app, self_check
from app.manager.leadership import Reconciling
from app.manager.metrics import CONTENT_TYPE, ManagerMetrics
from app.manager.registration import CertificateSource, Registration
from app.manager.serving import Server, StartError, bind, bind_address
from app.manager.settings import Settings, read_settings
from app.manager.tasks import Tasks
from app.pods.readiness.controller import pod_readiness_controller
from app.protection.deletion.lookups import LiveLookups
from app.protection.deletion.refusals import ProtectionLog, RefusalRecord
from app.protection.deletion.table import TableError, load_table
from app.sidecars.launchpriority import controller as launch_barrier
from app.sidecars.sidecarset.admission_lookups import ClusterLookups
from app.sidecars.sidecarset.controller import sidecarset_controller
from app.sidecars.sidecarset.reconcile import Caches as SidecarSetCaches
from app.sidecars.sidecarset.refusal_events import refusal_events

logger = logging.getLogger(__name__)

#: How long reviews are still taken after a replica said that it is not ready: until everybody has heard it.
DRAIN_SECONDS: Final = 3.0
#: How long what is in flight may take when the process ends (the grace period of its Pod is 10 s).
GRACE_SECONDS: Final = 5.0


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """The command. Returns the exit code; what keeps it from starting is one line on standard error."""
    if any(argument in ("-h", "--help") for argument in arguments):
        print(help_text())  # noqa: T201
        return 0
    try:
        flags = parse_flags(arguments)
        manager_logging.configure(flags.text("logging-format"), manager_logging.level_for(flags.integer("v")))
        _warn_of_flags(flags)
        settings = read_settings(flags, environ)
        _run_in_loop(_serve(settings, environ))
    except (FlagError, StartError, ConfigError, PolicyError, TableError, CertificateError) as error:
        manager_logging.fatal(str(error))
        return 1
    return 0


def _warn_of_flags(flags: Flags) -> None:
    if flags.without_meaning:
        logger.warning("accepted without effect: %s", ", ".join(f"--{name}" for name in flags.without_meaning))


def _run_in_loop(coroutine: Awaitable[None]) -> None:
    import uvloop

    async def run() -> None:
        await coroutine

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def _serve(settings: Settings, environ: Mapping[str, str]) -> None:
    manager = Manager(settings, environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    await manager.run()


class Manager:
    """One manager process: binds its ports when made, serves and reconciles in ``run``, until ``stop``."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], *, rng: Random | None = None) -> None:
        self.settings = settings
        self.metrics = ManagerMetrics()
        self.readiness = Readiness()
        self._environ = environ
        self._clock = SystemClock()
        self._rng = rng or Random()
        self._stop = asyncio.Event()
        self._caches = Caches(settings.own_namespace)
        flags = settings.flags
        self._webhook_socket = bind(settings.bind_host, settings.webhook_port, "--webhook-port")
        self._health_socket = bind_address(flags.text("health-probe-addr"), "--health-probe-addr")
        self._metrics_socket = bind_address(flags.text("metrics-addr"), "--metrics-addr")

    @property
    def webhook_port(self) -> int:
        """The port the admission service is bound to."""
        return int(self._webhook_socket.getsockname()[1])

    def stop(self) -> None:
        """End in good order: be not ready, finish what is in flight, return from ``run``."""
        self.readiness.stopping = True
        self._stop.set()

    async def run(self) -> None:
        """Serve and reconcile until ``stop``. Raises StartError, ConfigError or CertificateError."""
        self.readiness.need("configuration", "reading")
        side_servers = self._side_servers()
        config = await load_config(self.settings.flags.text("kubeconfig"), environ=self._environ)
        transport = AiohttpTransport(config, on_response=self.metrics.responded)
        logger.info("API server %s from %s", config.host, config.source)
        client = Client(transport, self._clock, limiter=self._limiter())
        try:
            await self._run(client, side_servers)
        finally:
            await transport.close()

    def _side_servers(self) -> list[tuple[Server, socket.socket]]:
        found = []
        if self._health_socket is not None:
            found.append((Server(health_app(self.readiness), grace_seconds=1), self._health_socket))
        if self._metrics_socket is not None:
            app = metrics_app(self.metrics.exposition, CONTENT_TYPE)
            found.append((Server(app, grace_seconds=1), self._metrics_socket))
        return found

    def _limiter(self) -> TokenBucket | None:
        qps = self.settings.flags.seconds("rest-config-qps")
        burst = self.settings.flags.integer("rest-config-burst")
        return TokenBucket(self._clock, qps=qps, burst=burst) if qps > 0 and burst > 0 else None

    async def _run(self, client: Client, side_servers: list[tuple[Server, socket.socket]]) -> None:
        events = EventRecorder(client.named("events"), "sidecarset-controller")
        app, registration = self._build(client, events)
        self.readiness.need("caches", "not filled yet")
        self.readiness.need("webhooks", "not registered yet")
        self.readiness.done("configuration")
        server: Server | None = None
        tasks = Tasks(self._stop)
        try:
            for side_server, listener in side_servers:
                tasks.start(side_server.serve([listener]), "probes and metrics", finish=side_server.stop)
            if await tasks.until_stopped(self._take_certificate(registration)):
                server = self._admission_server(app, registration)
                tasks.start(server.serve([self._webhook_socket]), "admission server", finish=server.stop)
                if await tasks.until_stopped(self._bring_up(client, app, registration, events, tasks)):
                    await self._stop.wait()
            await self._wind_down(app, server, events)
        finally:
            await tasks.end(GRACE_SECONDS)
        tasks.raise_failure()

    def _build(self, client: Client, events: EventRecorder) -> tuple[AdmissionApp, Registration]:
        settings = self.settings
        asking = client.named("admission")
        protection_log = ProtectionLog(Path(settings.flags.text("protection-log-path")))
        protection_log.check()
        handlers = build_handlers(
            Surroundings(
                gates=settings.gates,
                clock=self._clock,
                rng=self._rng,
                index=self._caches.index,
                injection=InjectionLookups(self._caches, asking),
                sidecarsets=ClusterLookups(
                    asking,
                    settings.own_namespace,
                    self._caches.sidecarsets.list,
                    defaults_allowed=settings.gates.enabled("SidecarSetPatchPodMetadataDefaultsAllowed"),
                ),
                report_refusal=refusal_events(events, self._caches.sidecarsets.get),
                protected_kinds=load_table(settings.policies),
                deletion_lookups=LiveLookups(asking),
                report_deletion=RefusalRecord(self.metrics.refused_deletions, protection_log),
            )
        )
        policies = load_policies(settings.policies) if settings.policies is not None else WebhookPolicies()
        try:
            handlers = apply_to_handlers(handlers, policies, settings.own_namespace)
        except PolicyError as error:
            raise PolicyError(f"{settings.policies}/webhooks.yaml: {error}") from None
        registry = build_registry(handlers, settings.gates.enabled)
        app = create_app(registry, convert, self.metrics.admission)
        app.starting = "its caches are not filled yet"
        registration = Registration(
            client.named("registration"),
            self._certificate_source(client),
            settings.endpoint(self.webhook_port),
            registry.webhooks,
            [kind for kind in KINDS if len(kind.versions) > 1],
            self.metrics,
            self._rng,
        )
        return app, registration

    def _certificate_source(self, client: Client) -> CertificateSource:
        settings = self.settings
        if settings.certificate_folder is not None:
            return FileCertificates(
                settings.certificate_folder, settings.certificate_hosts, self._clock, settings.renew_before
            )
        return SecretCertificates(
            client.named("certificates"),
            self._clock,
            namespace=settings.own_namespace,
            name=settings.secret_name,
            hosts=settings.certificate_hosts,
            renew_before=settings.renew_before,
        )

    async def _take_certificate(self, registration: Registration) -> None:
        """MGR-1: without a certificate in good time the process gives up."""
        seconds = self.settings.flags.seconds("webhook-initialize-timeout")
        deadline = self._clock.monotonic() + seconds
        backoff = Backoff(self._rng, base=0.5, cap=5.0)
        while True:
            try:
                await registration.use_certificate()
            except KubeError as error:
                delay = backoff.next()
                if self._clock.monotonic() + delay > deadline:
                    raise StartError(f"no serving certificate within {seconds:g} s: {error}") from None
                logger.warning("no serving certificate yet: %s", error)
                await self._clock.sleep(delay)
            else:
                return

    def _admission_server(self, app: AdmissionApp, registration: Registration) -> Server:
        if registration.context is None:
            raise StartError("there is no serving certificate")
        return Server(app, tls=registration.context.listener, grace_seconds=GRACE_SECONDS)

    async def _bring_up(
        self, client: Client, app: AdmissionApp, registration: Registration, events: EventRecorder, tasks: Tasks
    ) -> None:
        """Everything between a listening process and a ready one."""
        tasks.start(registration.run(), "registration")
        tasks.start(events.run(), "events")
        # A kind that is not installed yet may still come; the log says which, and how.
        await registration.defined.wait()
        reflectors = self._caches.reflectors(
            client, self._rng, self.metrics.reflectors, watched_namespace=self.settings.flags.text("namespace")
        )
        for reflector in reflectors:
            tasks.start(reflector.run(), f"reflector of {reflector.resource.kind}")
        await self._caches_filled()
        app.starting = ""
        self.readiness.done("caches")
        registration.allow_registration()
        await registration.registered.wait()
        self.readiness.self_check = self_check(self._webhook_socket.getsockname(), lambda: _ca_of(registration))
        self.readiness.done("webhooks")
        # What lives until the end need not be looked at by every collection.
        gc.collect()
        gc.freeze()
        logger.info("ready: admission on port %d, webhooks registered", self.webhook_port)
        # MGR-2: only now, so that what controllers write passes admission.
        launch_events = EventRecorder(client.named("events"), launch_barrier.NAME)
        tasks.start(launch_events.run(), "events of the launch barrier")
        reconciling = self._reconciling(client, launch_events, tasks)
        tasks.start(reconciling.run(), "controllers", finish=reconciling.stop)

    def _reconciling(self, client: Client, launch_events: EventRecorder, tasks: Tasks) -> Reconciling:
        def make() -> Sequence[Controller]:
            return self._controllers(client, launch_events)

        for controller in make():
            self.metrics.controllers.registered(controller.name, controller.workers)
        times = self.settings.election
        if times is None:
            return Reconciling(make, None)
        flags = self.settings.flags
        given = "leader-election-namespace" in flags.given
        elector = LeaderElector(
            client.named("leader-election"),
            name=flags.text("leader-election-id"),
            namespace=flags.text("leader-election-namespace") if given else self.settings.own_namespace,
            identity=identity(self._rng),
            rng=self._rng,
            times=times,
            metrics=self.metrics.leadership,
        )
        lease = ObjectReference(
            api_version=LEASES.api_version, kind=LEASES.kind, namespace=elector.namespace, name=elector.name
        )
        events = EventRecorder(client.named("events"), elector.identity)
        tasks.start(events.run(), "events of leader election")
        text = f"{elector.identity} became leader"  # MGR-24
        return Reconciling(make, elector, lambda: events.event(lease, "Normal", "LeaderElection", text))

    async def _caches_filled(self) -> None:
        seconds = self.settings.flags.seconds("controller-cache-sync-timeout")
        for what, store in self._caches.for_admission.items():
            try:
                await self._clock.wait_for(store.wait_until_ready(), seconds)
            except TimeoutError:
                raise StartError(f"cache of {what}: not filled within {seconds:g} s") from None

    def _controllers(self, client: Client, launch_events: EventRecorder) -> Sequence[Controller]:
        caches = self._caches
        metrics, queue_metrics = self.metrics.controllers, self.metrics.queues
        controllers = [
            sidecarset_controller(
                client,
                SidecarSetCaches(caches.sidecarsets, caches.pods, caches.namespaces, caches.revisions),
                self.settings.own_namespace,
                workers=self.settings.flags.integer("sidecarset-workers"),
                metrics=metrics,
                queue_metrics=queue_metrics,
            ),
            pod_readiness_controller(client, caches.pods, metrics=metrics, queue_metrics=queue_metrics),
        ]
        if self.settings.gates.enabled(launch_barrier.GATE):
            controllers.append(
                launch_barrier.launch_barrier_controller(
                    client, caches.pods, launch_events, metrics=metrics, queue_metrics=queue_metrics
                )
            )
        return controllers

    async def _wind_down(self, app: AdmissionApp, server: Server | None, events: EventRecorder) -> None:
        """Stop being ready, let everybody hear it, finish what is in flight."""
        self.readiness.stopping = True
        app.draining = True
        if server is None:
            return
        logger.info("stopping: finishing what is in flight")
        if not self.settings.webhook_host:  # the Service still sends reviews until it has heard
            await self._clock.sleep(DRAIN_SECONDS)
        server.stop()
        await events.flush(1.0)


def _ca_of(registration: Registration) -> bytes:
    return registration.current.ca_cert if registration.current is not None else b""
