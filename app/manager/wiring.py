"""What features are given in the manager: the contexts of their controllers, tasks and admission handlers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
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
from app.kube.callers import STRANGER
from app.kube.clock import Clock, RejectingBucket
from app.kube.controller import Controller, Reconcile, Result
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.queue import RateLimits
from app.kube.resources import ObjectKey
from app.kube.selectors import Selector
from app.manager.callers import KnownCallers
from app.manager.features import features
from app.manager.process import Process

T = TypeVar("T")

#: How long a reconcile waits for the definition of a kind that it needs.
ABSENT_SECONDS: Final = 60.0
#: How long events may take to be sent when a process ends.
FLUSH_SECONDS: Final = 1.0
#: Requests that reviews of one process may make of the API server per second, and how many without a pause: as many
#: again for strangers where nobody else asks. Nearly all reviews are decided from caches.
ASKED_PER_SECOND: Final = 100.0
ASKED_BURST: Final = 500
#: The same for strangers while known callers ask.
STRANGERS_PER_SECOND: Final = 10.0
STRANGERS_BURST: Final = 20
#: How long an address counts among those that share, and how many may.
SHARING_SECONDS: Final = 10.0
MAX_STRANGERS: Final = 256
LONGEST_WAIT_SECONDS: Final = 3.0


class Recorders:
    """The event recorders of a process, one per component."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._found: dict[str, EventRecorder] = {}
        self._started = False

    def of(self, component: str) -> EventRecorder:
        """The recorder of a component."""
        if component not in self._found:
            self._found[component] = EventRecorder(self._process.client.named("events"), component)
            if self._started:
                self._start(component)
        return self._found[component]

    def start(self) -> None:
        """Send what they record, from now on."""
        self._started = True
        for component in self._found:
            self._start(component)

    async def flush(self) -> None:
        """Wait a moment until everything is sent."""
        await asyncio.gather(*(recorder.flush(FLUSH_SECONDS) for recorder in self._found.values()))

    def _start(self, component: str) -> None:
        self._process.tasks.start(self._found[component].run(), f"events of {component}")


class ControllerMaker:
    """Makes the controllers and tasks of all features. ``leading`` tells whether controllers run here."""

    def __init__(
        self, process: Process, recorders: Recorders, reviewed: Selector | None, leading: Callable[[], bool]
    ) -> None:
        self._process = process
        self._recorders = recorders
        self._reviewed = reviewed
        self._leading = leading

    def controllers(self) -> Sequence[Controller]:
        """New controllers, as the gates want them. What features provide for one another is made anew too."""
        provided = _Provided(self._context)
        enabled = self._process.settings.gates.enabled
        return [self._controller(part, provided) for one in features() for part in one.running(enabled)]

    def background(self) -> Mapping[str, BackgroundTask]:
        """The tasks that run beside controllers, by name."""
        provided = _Provided(self._context)
        return {part.name: part.make(self._context(part, provided)) for one in features() for part in one.background}

    def _controller(self, part: ControllerPart, provided: _Provided) -> Controller:
        process = self._process
        metrics = process.metrics
        asked = _Asked(provided)
        made = part.make(self._context(part, asked))
        return Controller(
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

    def register_metrics(self) -> None:
        """All series of the controllers that may run here exist from the start."""
        enabled = self._process.settings.gates.enabled
        for part in (part for one in features() for part in one.running(enabled)):
            self._process.metrics.controllers.registered(part.name, self._workers(part))

    def _workers(self, part: ControllerPart) -> int:
        flag = part.workers_flag
        return self._process.settings.flags.integer(flag) if flag else part.workers

    @property
    def _limits(self) -> RateLimits:
        """CS-44, PM-172: how often what failed is tried again, the same for all controllers."""
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
    """The reconcile function; a request about a kind that is off is no failure and is made again later."""

    async def waiting(key: ObjectKey) -> Result | None:
        try:
            return await reconcile(key)
        except NotFound as error:
            if _definition_of(error.request.path) not in absent():
                raise
            return Result(requeue_after=ABSENT_SECONDS)

    return waiting


def _definition_of(path: str) -> str:
    """The name of the definition of the resource at a path such as ``/apis/GROUP/VERSION/namespaces/NS/PLURAL``."""
    parts = path.partition("?")[0].split("/")[2:]
    if len(parts) > 4 and parts[2] == "namespaces":
        parts[2:4] = []
    return f"{parts[2]}.{parts[0]}" if len(parts) > 2 else ""


class _Asked:
    """Answers, and what is watched for them: what an answer reads must be there before it is believed."""

    def __init__(self, provided: Answers) -> None:
        self._provided = provided
        self.watched: list[Watched[Any]] = []

    def __call__(self, protocol: type[T]) -> Sequence[T]:
        """All that features provide of this protocol."""
        parts = (part for one in features() for part in one.provides if part.protocol is protocol)
        self.watched += (one for part in parts for one in part.watched)
        return self._provided(protocol)


class _Provided:
    """What features provide for others, made when somebody asks."""

    def __init__(
        self, context: Callable[[ControllerPart | BackgroundPart | Provides, _Provided], ControllerContext]
    ) -> None:
        self._context = context
        self._made: dict[type[Any], Sequence[Any]] = {}

    def __call__(self, protocol: type[Any]) -> Sequence[Any]:
        """All that features provide of this protocol."""
        if protocol not in self._made:
            found = (part for one in features() for part in one.provides if part.protocol is protocol)
            self._made[protocol] = tuple(part.make(self._context(part, self)) for part in found)
        return self._made[protocol]


class _BudgetPerCaller(RejectingBucket):
    """A budget for callers that are known, and one for all strangers, shared equally by their addresses. [MGR-154]"""

    def __init__(self, clock: Clock, callers: KnownCallers) -> None:
        super().__init__(clock, qps=ASKED_PER_SECOND, burst=ASKED_BURST, longest=LONGEST_WAIT_SECONDS)
        self._callers = callers
        self._lock = Lock()
        #: By address, when it last asked and what it has left; who asked last comes last.
        self._strangers: OrderedDict[str, tuple[float, RejectingBucket]] = OrderedDict()

    async def take(self) -> None:
        """Take a token of the caller's budget. Raises TimeoutError where that would take too long."""
        if not (stranger := STRANGER.get()):
            await super().take()
            return
        with self._lock:  # large reviews are decided in a thread
            share = self._share(stranger)
        await share.take()

    def _share(self, stranger: str) -> RejectingBucket:
        now = self._clock.monotonic()
        _, bucket = self._strangers.pop(stranger, (now, None))
        while self._strangers:
            address, (asked_at, _) = next(iter(self._strangers.items()))
            if now - asked_at < SHARING_SECONDS and len(self._strangers) < MAX_STRANGERS:
                break
            self._strangers.pop(address, None)
        among = len(self._strangers) + 1
        beside = self._callers.ask(now)
        qps = (STRANGERS_PER_SECOND if beside else ASKED_PER_SECOND) / among
        burst = max(1, (STRANGERS_BURST if beside else ASKED_BURST) // among)
        if bucket is None:
            bucket = RejectingBucket(self._clock, qps=qps, burst=burst, longest=LONGEST_WAIT_SECONDS)
        else:
            bucket.limit(qps=qps, burst=burst)
        self._strangers[stranger] = (now, bucket)
        return bucket


def admission_context(
    process: Process, recorders: Recorders, callers: KnownCallers
) -> Callable[[AdmissionPart], AdmissionContext]:
    """What the handlers of each part are made from."""
    settings = process.settings
    # A review is being waited for; but a forged one costs whoever sends it nothing.
    asking = process.client.named("admission", limiter=_BudgetPerCaller(process.clock, callers))

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
