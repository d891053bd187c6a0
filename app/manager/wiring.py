"""Connects features to the manager: contexts for their controllers, tasks and admission handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    Answers,
    BackgroundPart,
    BackgroundTask,
    ControllerContext,
    ControllerPart,
    Provides,
)
from app.framework.watched import Watched
from app.kube.controller import Controller, Reconcile, Result
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.queue import RateLimits
from app.kube.resources import ObjectKey
from app.kube.selectors import Selector
from app.manager.features import features
from app.manager.limits import KnownCallers, RequestBudget
from app.manager.process import Process

T = TypeVar("T")

#: Seconds until a reconcile is retried while the CRD of a required kind is missing.
ABSENT_SECONDS: Final = 60.0
#: Seconds allowed for sending pending events when a process stops.
FLUSH_SECONDS: Final = 1.0


class Recorders:
    """Event recorders of a process, one per component."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._found: dict[str, EventRecorder] = {}
        self._started = False

    def of(self, component: str) -> EventRecorder:
        if component not in self._found:
            self._found[component] = EventRecorder(self._process.client.named("events"), component)
            if self._started:
                self._start(component)
        return self._found[component]

    def start(self) -> None:
        self._started = True
        for component in self._found:
            self._start(component)

    async def flush(self) -> None:
        """Wait until all events are sent, but at most FLUSH_SECONDS."""
        await asyncio.gather(*(recorder.flush(FLUSH_SECONDS) for recorder in self._found.values()))

    def _start(self, component: str) -> None:
        self._process.tasks.start(self._found[component].run(), f"events of {component}")


class ControllerMaker:
    """Creates the controllers and tasks of all features. ``leading`` returns whether controllers run here."""

    def __init__(
        self, process: Process, recorders: Recorders, reviewed: Selector | None, leading: Callable[[], bool]
    ) -> None:
        self._process = process
        self._recorders = recorders
        self._reviewed = reviewed
        self._leading = leading

    def controllers(self) -> Sequence[Controller]:
        """Create the enabled controllers, and the parts that features provide to each other."""
        provided = _Provided(self._context)
        enabled = self._process.settings.gates.enabled
        return [self._controller(part, provided) for one in features() for part in one.running(enabled)]

    def background(self) -> Mapping[str, BackgroundTask]:
        provided = _Provided(self._context)
        return {part.name: part.make(self._context(part, provided)) for one in features() for part in one.background}

    def _controller(self, part: ControllerPart, provided: _Provided) -> Controller:
        process = self._process
        metrics = process.metrics
        asked = _Asked(provided)
        made = part.make(self._context(part, asked))
        controller = Controller(
            part.name,
            process.clock,
            made.watches,
            waiting_for_definitions(made.reconcile, lambda: process.replica.absent),
            needs=[process.caches.stores(one) for one in (*part.watched, *asked.watched)],
            workers=self._workers(part),
            limits=self._limits,
            metrics=metrics.controllers,
            queue_metrics=metrics.queues,
        )
        metrics.queues.observe(controller.queue)
        return controller

    def register_metrics(self) -> None:
        """Create all metric series of the controllers that may run here."""
        enabled = self._process.settings.gates.enabled
        for part in (part for one in features() for part in one.running(enabled)):
            self._process.metrics.controllers.registered(part.name, self._workers(part))

    def _workers(self, part: ControllerPart) -> int:
        flag = part.workers_flag
        return self._process.settings.flags.integer(flag) if flag else part.workers

    @property
    def _limits(self) -> RateLimits:
        """Return the retry limits shared by all controllers. [CS-44, PM-172]"""
        flags = self._process.settings.flags
        return RateLimits(
            base_delay=flags.seconds("rate-limiter-base-delay"),
            max_delay=flags.seconds("rate-limiter-max-delay"),
            qps=float(flags.integer("rate-limiter-qps")),
            burst=flags.integer("rate-limiter-bucket-size"),
        )

    def _context(self, part: ControllerPart | BackgroundPart | Provides, provided: Answers) -> ControllerContext:
        process = self._process
        settings = process.settings
        name = part.protocol.__name__ if isinstance(part, Provides) else part.name
        return ControllerContext(
            client=process.client.named(name),
            stores=process.caches.stores,
            events=self._recorders.of(part.event_source or name),
            rng=process.rng,
            own_namespace=settings.own_namespace,
            enabled=settings.gates.enabled,
            flags=settings.flags,
            counters=process.metrics.of,
            provided=provided,
            leading=self._leading,
            reviewed_namespaces=self._reviewed,
        )


def waiting_for_definitions(reconcile: Reconcile, absent: Callable[[], Collection[str]]) -> Reconcile:
    """Wrap a reconcile function: while the CRD of a kind it needs is missing, requeue keys without recording errors."""

    async def waiting(key: ObjectKey) -> Result | None:
        try:
            return await reconcile(key)
        except NotFound as error:
            if _definition_of(error.request.path) not in absent():
                raise
            return Result(requeue_after=ABSENT_SECONDS)

    return waiting


def _definition_of(path: str) -> str:
    """Return the CRD name of a resource path such as ``/apis/GROUP/VERSION/namespaces/NS/PLURAL``."""
    parts = path.partition("?")[0].split("/")[2:]
    if len(parts) > 4 and parts[2] == "namespaces":
        parts[2:4] = []
    return f"{parts[2]}.{parts[0]}" if len(parts) > 2 else ""


class _Asked:
    """Resolves provided parts and collects the watches they need, which must be synced before the parts are used."""

    def __init__(self, provided: Answers) -> None:
        self._provided = provided
        self.watched: list[Watched[Any]] = []

    def __call__(self, protocol: type[T]) -> Sequence[T]:
        parts = (part for one in features() for part in one.provides if part.protocol is protocol)
        self.watched += (one for part in parts for one in part.watched)
        return self._provided(protocol)


class _Provided:
    """Parts that features provide to each other, created on demand."""

    def __init__(
        self, context: Callable[[ControllerPart | BackgroundPart | Provides, _Provided], ControllerContext]
    ) -> None:
        self._context = context
        self._made: dict[type[Any], Sequence[Any]] = {}

    def __call__(self, protocol: type[Any]) -> Sequence[Any]:
        if protocol not in self._made:
            found = (part for one in features() for part in one.provides if part.protocol is protocol)
            self._made[protocol] = tuple(part.make(self._context(part, self)) for part in found)
        return self._made[protocol]


def admission_context(
    process: Process, recorders: Recorders, callers: KnownCallers
) -> Callable[[AdmissionPart], AdmissionContext]:
    """Return a function that builds the context of each admission part."""
    settings = process.settings
    # Reviews are urgent, so requests made for them have a separate budget, which forged reviews must not exhaust.
    asking = process.client.named("admission", limiter=RequestBudget(process.clock, callers))

    def context(part: AdmissionPart) -> AdmissionContext:
        return AdmissionContext(
            client=asking,
            stores=process.caches.stores,
            events=recorders.of(part.event_source) if part.event_source else None,
            clock=process.clock,
            rng=process.rng,
            own_namespace=settings.own_namespace,
            enabled=settings.gates.enabled,
            flags=settings.flags,
            counters=process.metrics.of,
            policies=settings.policies,
        )

    return context
