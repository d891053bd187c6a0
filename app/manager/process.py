"""A process of the manager: its tasks and caches, and the parts it runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Protocol

import msgspec

from app.framework.feature import Feature
from app.framework.options import Enabled
from app.framework.watched import Scope, Stores, Watched, agents_namespace, merged
from app.kube.client import Client
from app.kube.clock import Clock, SystemClock, TokenBucket
from app.kube.concurrency import cancel, task_group
from app.kube.config import load_config
from app.kube.errors import KubeError
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import Resource
from app.kube.store import Store
from app.kube.transport import AiohttpTransport
from app.manager.features import features
from app.manager.metrics import ManagerMetrics
from app.manager.settings import Settings
from app.manager.shared_state import Counts, Replica, State

logger = logging.getLogger(__name__)


@asynccontextmanager
async def first_ended(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[Sequence[asyncio.Task[Any]]]:
    """Run coroutines until one of them ends. Yields their tasks; those still running are canceled on exit."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        await cancel(*tasks)


class Tasks:
    """Runs coroutines until ``stop`` is set. Sets ``stop`` if one of them fails."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[Any]] = []
        #: Task → function that asks the task to finish.
        self._finishing: dict[asyncio.Task[Any], Callable[[], None]] = {}
        self._failure: BaseException | None = None

    def start(
        self, coroutine: Coroutine[Any, Any, Any], name: str, *, finish: Callable[[], None] | None = None
    ) -> asyncio.Task[Any]:
        """Run a coroutine in the background. At shutdown, ``finish`` asks it to return; without ``finish``, the task
        is canceled."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        if finish is not None:
            self._finishing[task] = finish
        return task

    @property
    def all(self) -> tuple[asyncio.Task[Any], ...]:
        """All tasks that were started, including finished ones."""
        return tuple(self._tasks)

    async def until_stopped(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        """Run a coroutine in the foreground and propagate its exception. Returns False if ``stop`` was set first."""
        async with first_ended(coroutine, self._stop.wait()) as (work, _):
            if work.done():
                await work
            return work.done()

    async def end(self, grace_seconds: float) -> None:
        """Let tasks finish within the grace period, then cancel those still running."""
        self._stop.set()
        for finish in self._finishing.values():
            finish()
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=grace_seconds)
        await cancel(*self._tasks)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failure is None:
            self._failure = error
        if isinstance(error, KubeError):
            logger.error("%s ended: %s", task.get_name(), error)
        else:
            logger.error("%s failed", task.get_name(), exc_info=error)
        self._stop.set()


# Caches of a process: what its features watch, and the reflectors that fill them. Processes that serve reviews watch
# what admission needs; the process that writes to the cluster watches everything. A webhook process caches no Pods.


class Caches:
    """Stores and the reflectors that fill them.

    ``namespace`` limits namespaced watches to one namespace; empty means all.
    """

    def __init__(
        self,
        own_namespace: str,
        namespace: str = "",
        enabled: Enabled = lambda _gate: True,
        declared: Iterable[Feature] | None = None,
        absent: Callable[[], Container[str]] = tuple,
    ) -> None:
        """Create the stores. ``absent`` returns the names of the CustomResourceDefinitions that are not installed."""
        chosen = tuple(features() if declared is None else declared)
        self._own_namespace = own_namespace
        self._namespace = namespace
        self._absent = absent
        judging = [one for part in chosen for one in part.watched_for_admission(enabled)]
        controlling = [one for part in chosen for one in part.watched_for_controllers(enabled)]
        self.stores = Stores([*judging, *controlling])
        self._for_admission = merged(judging).keys()

    @property
    def by_name(self) -> Mapping[str, Store[Any]]:
        return self.stores.by_name

    @property
    def for_admission(self) -> Mapping[str, Store[Any]]:
        """Return, by display name, the stores that must be filled before reviews can be served."""
        declared = self.stores.declared
        return {declared[key].name: self.stores(declared[key]) for key in self._for_admission}

    @property
    def resources_for_admission(self) -> Sequence[Resource]:
        return [self.stores.declared[key].resource for key in self._for_admission]

    def admission_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """Return the reflectors of the stores that admission reads, to be run as tasks."""
        declared = self.stores.declared
        return [self._reflector(declared[key], client, rng, metrics) for key in self._for_admission]

    def controller_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        return [
            self._reflector(one, client, rng, metrics)
            for key, one in self.stores.declared.items()
            if key not in self._for_admission
        ]

    def _reflector(
        self, watched: Watched[Any], client: Client, rng: Random, metrics: ReflectorMetrics
    ) -> Reflector[Any]:
        places = {
            Scope.OWN: self._own_namespace,
            Scope.AGENTS: agents_namespace(),
            Scope.CLUSTER: "",
            Scope.WATCHED: self._namespace,
        }
        return Reflector(
            client,
            watched.resource,
            self.stores(watched),
            decode=watched.decode,
            rng=rng,
            namespace=places[watched.scope],
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
            keep=watched.keep,
            metrics=metrics,
            absent=lambda: watched.resource.definition_name in self._absent(),
            ends_when_restored=True,
        )


# One process of a replica: its event loop, client, heartbeat and parts. There are two parts: admission (admission.py)
# and reconciling (reconciler.py). A replica runs admission in several processes and reconciling in
# one; ``--webhook-processes=0`` runs both in one process. Parts communicate only through the replica's shared values.

#: Seconds that requests in flight get when the process stops (OpenKruise's Pods get 10 s in total).
GRACE_SECONDS: Final = 5.0
#: Seconds between heartbeats.
BEAT_SECONDS: Final = 1.0
#: Seconds between publications of metrics.
PUBLISH_SECONDS: Final = 5.0
#: Seconds between checks of shared values while the process starts, and while it runs.
START_CHECK_SECONDS: Final = 0.02
CHECK_SECONDS: Final = 0.5
#: Number of allocations after which the youngest generation is collected.
GC_THRESHOLD: Final = 5_000


class Part(Protocol):
    """A part of a process: admission or controllers."""

    async def start(self) -> None:
        """Start up and return when ready. Long-running work is added to the process's tasks."""
        ...

    async def stop(self) -> None:
        """Finish work in progress."""
        ...

    def debug_pages(self) -> Mapping[str, list[str]]:
        """Return the lines of each debug page."""
        ...


class Process:
    """One process of a replica. It calls ``make_parts`` in its event loop once the client exists."""

    def __init__(
        self,
        name: str,
        replica: Replica,
        settings: Settings,
        environ: Mapping[str, str],
        make_parts: Callable[[Process], Sequence[Part]],
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self.name = name
        self.replica = replica
        self.settings = settings
        self.metrics = ManagerMetrics()
        self.clock = clock if clock is not None else SystemClock()
        self.rng = rng if rng is not None else Random()
        self.stop = asyncio.Event()
        self.tasks = Tasks(self.stop)
        self.caches = Caches(
            settings.own_namespace,
            settings.flags.text("namespace"),
            settings.gates.enabled,
            absent=lambda: replica.absent,
        )
        self._environ = environ
        self._make_parts = make_parts
        self._parts: Sequence[Part] = ()
        self._admission_caches_started = False
        self._controller_caches_started = False
        self._parent = os.getppid()
        self._client: Client | None = None
        self.counts = Counts(replica, name, self.metrics.registry)
        # Once true, ``defined`` and ``registered`` remain true after a restart of the process.
        last = replica.state(name)
        self._state = State(pid=os.getpid(), defined=last.defined, registered=last.registered)

    # ---- used by parts

    @property
    def client(self) -> Client:
        if self._client is None:
            raise RuntimeError("the process is not running yet")
        return self._client

    @property
    def state(self) -> State:
        """The state that this process last published."""
        return self._state

    def update_state(self, **changes: object) -> None:
        """Publish changes to this process's state."""
        self._state = msgspec.structs.replace(self._state, **changes)
        self.replica.states[self.name].write(self._state)

    def need(self, what: str, why: str) -> None:
        """Make this process unready, for the reason ``why``, until ``done(what)`` is called."""
        self.update_state(missing={**self._state.missing, what: why})

    def done(self, what: str) -> None:
        self.update_state(missing={key: why for key, why in self._state.missing.items() if key != what})

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition on the replica's shared values is true."""
        while not condition():
            await self.clock.sleep(START_CHECK_SECONDS)

    def start_admission_caches(self) -> None:
        """Fill the caches that both parts read. A second call has no effect."""
        if not self._admission_caches_started:
            self._admission_caches_started = True
            self._start(self.caches.admission_reflectors(self.client, self.rng, self.metrics.reflectors))

    def start_controller_caches(self) -> None:
        """Fill the caches that only controllers read, Pods first. A second call has no effect."""
        if not self._controller_caches_started:
            self._controller_caches_started = True
            self._start(self.caches.controller_reflectors(self.client, self.rng, self.metrics.reflectors))

    def _start(self, reflectors: Iterable[Reflector[Any]]) -> None:
        for reflector in reflectors:
            self.tasks.start(reflector.run(), f"reflector of {reflector.resource.kind}")

    def freeze(self) -> None:
        """Exempt cached objects from garbage collection.

        They live as long as the process. Later objects rarely form cycles, and most are freed before a collection.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)

    # ---- lifecycle

    async def run(self) -> None:
        """Run until ``stop`` is set or a signal arrives. Raises the exception that made the process fail."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        self.need("start", "starting")
        self.tasks.start(self._live(), "heartbeat")
        self.replica.on_publication_request(self.name, self.publish)
        config = await load_config(self.settings.flags.text("kubeconfig"), environ=self._environ)
        transport = AiohttpTransport(config, on_response=self.metrics.responded)
        logger.info("%s: process %d, API server %s from %s", self.name, os.getpid(), config.host, config.source)
        try:
            await self.work(Client(transport, self.clock, limit=self._limiter))
        finally:
            await transport.close()
            self.publish()
        self.tasks.raise_failure()

    async def work(self, client: Client) -> None:
        """Run the parts against this API server until ``stop`` is set or one of their tasks fails."""
        self._client = client
        self._parts = self._make_parts(self)
        try:
            self.done("start")
            if await self.tasks.until_stopped(_all(part.start() for part in self._parts)):
                await self.stop.wait()
            self.update_state(stopping=True)
            await _all(part.stop() for part in self._parts)
        finally:
            self.update_state(stopping=True)
            await self.tasks.end(GRACE_SECONDS)

    def _limiter(self) -> TokenBucket | None:
        qps = self.settings.flags.seconds("rest-config-qps")
        burst = self.settings.flags.integer("rest-config-burst")
        return TokenBucket(self.clock, qps=qps, burst=burst) if qps > 0 and burst > 0 else None

    async def _live(self) -> None:
        publish_at = self.clock.monotonic()
        while True:
            self.replica.beat(self.name)
            if os.getppid() != self._parent:
                logger.error("%s: the supervisor has exited: stopping", self.name)
                self.stop.set()
            if (now := self.clock.monotonic()) >= publish_at:
                publish_at = now + PUBLISH_SECONDS
                self.publish()
            await self.clock.sleep(BEAT_SECONDS)

    def publish(self) -> None:
        """Publish metrics and debug pages for the other processes and for this process's successor."""
        pages: dict[str, list[str]] = {}
        for part in self._parts:
            for page, lines in part.debug_pages().items():
                pages[page] = pages.get(page, []) + lines
        self.counts.publish(pages)


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently. The first failure cancels the others and is raised unwrapped."""
    async with task_group() as group:
        for coroutine in coroutines:
            group.create_task(coroutine)
