"""The part that reconciles: controllers behind leader election."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from app.admission.configurations import Endpoint
from app.admission.policies import WebhookPolicies, apply_policies, load_policies
from app.admission.registry import served
from app.certs.issue import CertificateError
from app.certs.sources import (
    CertificateSource,
    ExternalFolder,
    ExternalSecret,
    FileCertificates,
    SecretCertificates,
    SecretReader,
)
from app.framework.policies import PolicyError
from app.kube.admission import Webhook
from app.kube.clock import Backoff
from app.kube.concurrency import cancel
from app.kube.controller import Controller
from app.kube.errors import KubeError
from app.kube.leases import LeaderElector, LeaderMetrics, LeadershipLost, LeaseTimes, identity
from app.kube.objects import Lease, ObjectReference, decode_lease
from app.kube.reflector import Reflector, watch_of_one
from app.kube.resources import LEASES
from app.kube.store import Change
from app.manager.features import features, kinds
from app.manager.follower import Follower
from app.manager.health import cache_lines, endpoint_fault, queue_lines
from app.manager.limits import PAGES
from app.manager.process import Process, first_ended
from app.manager.rbac import Rights, rules_of
from app.manager.registration import Registration
from app.manager.serving import Server, StartError, bind_address
from app.manager.settings import Settings
from app.manager.webhook_handlers import declarations, reviewed_namespaces
from app.manager.wiring import ControllerMaker, Recorders

# Leadership: one of several replicas reconciles, and all of them serve reviews. If one process does everything, it
# stops reconciling when it loses the Lease, keeps serving reviews, and becomes a candidate again. If reconciling has
# its own process, the process exits and a new one becomes a candidate, so that no state of the old term survives.
# [MGR-22]

logger = logging.getLogger(__name__)


class Work(Protocol):
    """A controller that runs until stopped, then processes the keys that are ready and returns."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Reconciling:
    """Runs controllers, which are created for each term of leadership. Without an ``elector``, the term never ends.

    ``took_over`` is called when a term begins. With ``one_term``, losing the Lease raises ``LeadershipLost``.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Work]],
        elector: LeaderElector | None,
        took_over: Callable[[], None] = lambda: None,
        *,
        one_term: bool = False,
    ) -> None:
        self._make = make
        self._elector = elector
        self._took_over = took_over
        self._one_term = one_term
        self._stopping = asyncio.Event()
        self._at_work: Sequence[Work] = ()

    async def run(self) -> None:
        """Reconcile while leading, until ``stop`` is called. Release the Lease when all work has ended."""
        while not self._stopping.is_set():
            try:
                await (self._term() if self._elector is None else self._stand(self._elector))
            except LeadershipLost as lost:
                if self._one_term:
                    raise
                logger.warning("no longer leading, still serving reviews: %s", lost)

    def stop(self) -> None:
        """Accept no more work; ``run`` returns once the remaining work is done."""
        self._stopping.set()
        for controller in self._at_work:
            controller.stop()

    async def _stand(self, elector: LeaderElector) -> None:
        async with first_ended(elector.run(self._term), self._stopping.wait()) as (candidacy, _):
            if candidacy.done() or elector.leading:
                await candidacy

    async def _term(self) -> None:
        self._took_over()
        self._at_work = controllers = self._make()
        if self._stopping.is_set():
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for controller in controllers:
                    tasks.create_task(_patiently(controller))
        finally:
            self._at_work = ()


async def _patiently(controller: Work) -> None:
    """Run a controller. If its caches do not fill (a permission may be missing), keep waiting while others run."""
    while True:
        try:
            return await controller.run()
        except TimeoutError as error:
            logger.error("%s; still waiting", error)  # noqa: TRY400 - the message suffices


# The part of a replica that writes to the cluster; each replica runs one. In every replica with controllers, it manages
# certificates and registration, so that a replica without the Lease is a complete admission service. While it holds the
# Lease, it runs the controllers. When the Lease is lost, the process exits and the supervisor starts a new candidate;
# admission is not affected. A replica without controllers follows the certificate (follower.py).

#: Seconds that keys in progress get at shutdown before the Lease is released.
FINISH_SECONDS: Final = 2.0
#: Seconds between checks, before webhooks are registered, whether a replica serves reviews.
ANSWER_CHECK_SECONDS: Final = 1.0


class Reconciler(LeaderMetrics):
    """The reconciling part. It registers the webhooks once all ``webhook_processes`` can serve reviews.

    With ``single``, admission also runs in this process, so losing the Lease must not end the process.
    """

    def __init__(
        self, process: Process, endpoint: Endpoint, webhook_processes: tuple[str, ...], *, single: bool = False
    ) -> None:
        self._process = process
        self._webhook_processes = webhook_processes
        settings, client = process.settings, process.client
        webhooks = declared_webhooks(settings)
        self._recorders = Recorders(process)
        reviewed = reviewed_namespaces(webhooks)
        self._maker = ControllerMaker(process, self._recorders, reviewed, lambda: bool(self._controllers))
        #: If false, this replica only serves reviews, and needs only the permissions for that. [MGR-146]
        self._reconciles = settings.flags.boolean("controllers")
        self._background = self._maker.background() if self._reconciles else {}
        self._endpoint = endpoint
        certificates = certificate_source(process)
        self._registration: Registration | Follower
        if self._reconciles:
            self._registration = Registration(
                client.named("registration"),
                certificates,
                endpoint,
                webhooks,
                kinds(),
                process.metrics,
                process.rng,
                process.replica.certificate,
                leading=lambda: process.state.leading,
                may_have_been_away=self._webhooks_registered,
                absent_changed=process.replica.set_absent,
            )
        else:
            ours = {kind.crd_name for kind in kinds()}
            read = {resource.definition_name for resource in process.caches.resources_for_admission}
            self._registration = Follower(
                client.named("registration"),
                certificates,
                sorted(ours & read),
                process.metrics,
                process.rng,
                process.replica.certificate,
                absent_changed=process.replica.set_absent,
            )
        self._rights = Rights(
            client.named("rights"), settings.own_namespace, rules_of(settings, webhooks), process.metrics
        )
        self._controllers: Sequence[Controller] = ()
        times = settings.election if self._reconciles else None
        self._elector = self._candidate(times) if times is not None else None
        self._lease_events = self._recorders.of(
            self._elector.identity if self._elector is not None else "kruise-manager"
        )
        self._reconciling = Reconciling(self._make_term, self._elector, self._took_over, one_term=not single)
        self._work: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    # ---- lifecycle

    async def start(self) -> None:
        """Obtain the certificate, register the webhooks, and then compete for the Lease."""
        process, tasks, registration = self._process, self._process.tasks, self._registration
        await self._take_certificate()
        tasks.start(registration.run(), "registration")
        tasks.start(self._rights.run(), "rights")
        for reflector in registration.watches(process.metrics.reflectors, self._watched_secret()):
            tasks.start(reflector.run(), f"watch of {reflector.resource.kind}")
        self._recorders.start()
        for name, task in self._background.items():
            tasks.start(task.run(), name)
        if isinstance(registration, Follower):
            # The replicas with controllers register the webhooks once this replica responds.
            process.update_state(defined=True, registered=True)
            self._serve_dashboard()
            return
        await registration.defined.wait()
        process.update_state(defined=True)
        await process.until(
            lambda: (
                all(process.replica.state(name).ready for name in self._webhook_processes) or process.replica.was_ready
            )
        )
        if not process.settings.flags.boolean("webhooks"):
            await self._answering()
        registration.allow_registration()
        self._serve_dashboard()
        await registration.registered.wait()
        process.update_state(registered=True)
        logger.info("webhooks registered")
        # The controllers start after registration, so that their writes pass admission. [MGR-2]
        self._maker.register_metrics()
        if self._elector is not None:
            watch = self._watched_lease(self._elector)
            self._watching = asyncio.create_task(watch.run(), name="watch of the Lease")
        self._work = tasks.start(self._reconciling.run(), "controllers")

    async def _answering(self) -> None:
        """Wait until a replica serves reviews: without one, the webhooks would reject every Pod."""
        process, said = self._process, ""
        certificate = process.replica.certificate
        while fault := await endpoint_fault(self._endpoint, certificate.read()):
            if fault != said:
                logger.warning("webhooks are not registered yet, because no replica serves reviews: %s", fault)
                said = fault
            await process.clock.sleep(ANSWER_CHECK_SECONDS)

    def _serve_dashboard(self) -> None:
        """Serve the dashboard, if enabled, to local clients. The dashboard has its own caches."""
        process = self._process
        listener = bind_address(process.settings.flags.text("dashboard-addr"), "--dashboard-addr")
        if listener is None:
            return
        from app.dashboard.board import board_of
        from app.dashboard.pages import create_dashboard

        board = board_of(process.client.named("dashboard"), features(), process.rng)
        server = Server(create_dashboard(board), grace_seconds=1, limits=PAGES, port="dashboard")
        process.tasks.start(board.run(), "dashboard")
        process.tasks.start(server.serve([listener]), "dashboard server", finish=server.stop)

    async def stop(self) -> None:
        """Let the controllers finish their keys, then release the Lease. [MGR-124]"""
        self._reconciling.stop()
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=FINISH_SECONDS)
            await cancel(self._work)
        self._stop_watching()
        await self._recorders.flush()

    def _webhooks_registered(self, since: datetime) -> None:
        for task in self._background.values():
            task.webhooks_registered(since)

    def debug_pages(self) -> Mapping[str, list[str]]:
        process = self._process
        queues = queue_lines(self._controllers, process.clock.monotonic())
        if not self._controllers:
            queues = ["no controllers run in this replica: it does not hold the Lease"]
        stores = process.caches.by_name if self._controllers else {}
        return {"queues": queues, "caches": cache_lines(process.name, stores)}

    # ---- certificates

    async def _take_certificate(self) -> None:
        """Obtain the certificate. Raises StartError if there is none in time. [MGR-1]"""
        clock = self._process.clock
        seconds = self._process.settings.flags.seconds("webhook-initialize-timeout")
        deadline = clock.monotonic() + seconds
        backoff = Backoff(self._process.rng, base=0.5, cap=5.0)
        while True:
            try:
                await self._registration.use_certificate()
            except (KubeError, CertificateError) as error:
                settings = self._process.settings
                own_folder = settings.certificate_folder is not None and not settings.external_certificates
                if isinstance(error, CertificateError) and own_folder:
                    raise  # Retrying cannot fix an invalid folder.
                delay = backoff.next()
                if clock.monotonic() + delay > deadline:
                    raise StartError(f"no serving certificate within {seconds:g} s: {error}") from None
                logger.warning("no serving certificate yet: %s", error)
                await clock.sleep(delay)
            else:
                return

    def _watched_secret(self) -> tuple[str, str] | None:
        settings = self._process.settings
        return (settings.own_namespace, settings.secret_name) if settings.certificate_folder is None else None

    # ---- the Lease

    def _candidate(self, times: LeaseTimes) -> LeaderElector:
        flags, process = self._process.settings.flags, self._process
        given = "leader-election-namespace" in flags.given
        return LeaderElector(
            process.client.named("leader-election", limited=False),
            name=flags.text("leader-election-id"),
            namespace=flags.text("leader-election-namespace") if given else process.settings.own_namespace,
            identity=identity(process.rng),
            rng=process.rng,
            times=times,
            metrics=self,
        )

    def leader(self, name: str, leading: bool) -> None:
        """Record that the Lease was acquired or lost (a hook of the elector)."""
        self._process.metrics.leadership.leader(name, leading)
        self._process.update_state(leading=leading)
        self._registration.wake()

    def slow_path(self, name: str) -> None:
        """Count a slow renewal (a hook of the elector)."""
        self._process.metrics.leadership.slow_path(name)

    def _took_over(self) -> None:
        self._stop_watching()  # the leader need not watch its own Lease
        elector = self._elector
        if elector is None:
            self._process.update_state(leading=True)
            return
        lease = ObjectReference(
            api_version=LEASES.api_version, kind=LEASES.kind, namespace=elector.namespace, name=elector.name
        )
        self._lease_events.event(lease, "Normal", "LeaderElection", f"{elector.identity} became leader")  # [MGR-24]

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _watched_lease(self, elector: LeaderElector) -> Reflector[Lease]:
        """Watch the Lease, so that a candidate notices its release at once."""

        def changed(change: Change[Lease]) -> None:
            holder = change.new.spec.holder_identity if change.new is not None else ""
            self._process.update_state(leader=holder or "")
            if not holder:
                elector.wake()

        process, key = self._process, (elector.namespace, elector.name)
        client, metrics = process.client.named("leader-election"), process.metrics.reflectors
        return watch_of_one(client, LEASES, key, changed, process.rng, metrics, decode_lease)

    # ---- controllers

    def _make_term(self) -> Sequence[Controller]:
        """Create the controllers of a term. The first term also starts filling their caches."""
        process = self._process
        process.start_admission_caches()
        process.start_controller_caches()
        self._controllers = self._maker.controllers()
        process.tasks.start(self._freeze(), "freeze")
        return self._controllers

    async def _freeze(self) -> None:
        for store in self._process.caches.by_name.values():
            await store.wait_until_ready()
        self._process.freeze()


def declared_webhooks(settings: Settings) -> tuple[Webhook, ...]:
    """Return the webhooks this replica serves, with the operator's policies. Raises PolicyError."""
    policies = load_policies(settings.policies) if settings.policies is not None else WebhookPolicies()
    try:
        declared = apply_policies(declarations(settings.policies), policies, settings.own_namespace)
    except PolicyError as error:
        raise PolicyError(f"{settings.policies}/webhooks.yaml: {error}") from None
    return served(declared, settings.gates.enabled)


def certificate_source(process: Process) -> CertificateSource:
    """Return the source of this replica's certificates: external, folder or Secret."""
    settings, clock = process.settings, process.clock
    client = process.client.named("certificates")
    step = settings.flags.seconds("certificate-rotation-step")
    if settings.external_certificates and settings.certificate_folder is not None:
        return ExternalFolder(settings.certificate_folder, clock, step)
    where = {"namespace": settings.own_namespace, "name": settings.secret_name}
    if settings.external_certificates:
        return ExternalSecret(client, clock, **where, step_seconds=step)
    if settings.certificate_folder is not None:
        return FileCertificates(settings.certificate_folder, settings.certificate_hosts, clock, settings.renew_before)
    if not settings.flags.boolean("controllers"):
        return SecretReader(client, clock, **where, hosts=settings.certificate_hosts)
    return SecretCertificates(
        client,
        clock,
        **where,
        hosts=settings.certificate_hosts,
        renew_before=settings.renew_before,
        step_seconds=step,
    )
