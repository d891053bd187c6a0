"""A process of the manager: its tasks and caches, and the parts it runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

import msgspec

from app.framework.feature import Feature
from app.framework.options import Enabled
from app.framework.watched import Scope, Stores, Watched, agents_namespace, merged
from app.kube.client import Client
from app.kube.clock import Clock, SystemClock, TokenBucket
from app.kube.config import load_config
from app.kube.errors import KubeError
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import Resource
from app.kube.store import Store
from app.kube.transport import AiohttpTransport
from app.manager.features import features
from app.manager.metrics import ManagerMetrics
from app.manager.settings import Settings
from app.manager.shared import Counts, Replica, State

logger = logging.getLogger(__name__)


class Tasks:
    """Runs coroutines until ``stop`` is set; sets it itself when one of them fails."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[Any]] = []
        #: Tasks that end by themselves when asked, and how to ask.
        self._finishing: dict[asyncio.Task[Any], Callable[[], None]] = {}
        self._failure: BaseException | None = None

    def start(
        self, coroutine: Coroutine[Any, Any, Any], name: str, *, finish: Callable[[], None] | None = None
    ) -> asyncio.Task[Any]:
        """Run it in the background. ``finish`` asks it to end by itself; without, it is cancelled at the end."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        if finish is not None:
            self._finishing[task] = finish
        return task

    @property
    def all(self) -> tuple[asyncio.Task[Any], ...]:
        """Every task that was started, ended or not."""
        return tuple(self._tasks)

    async def until_stopped(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        """Run it in the foreground. True if it finished, False if the stop came first; raises what it raises."""
        work = asyncio.create_task(coroutine)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
                return True
            return False
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.gather(work, stopping, return_exceptions=True)

    async def end(self, grace_seconds: float) -> None:
        """Let finish what can, for so long; then cancel what still runs."""
        self._stop.set()
        for finish in self._finishing.values():
            finish()
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failure(self) -> None:
        """Raise what made a task fail, if one did."""
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failure is None:
            self._failure = error
        if isinstance(error, KubeError):  # it says what happened
            logger.error("%s ended: %s", task.get_name(), error)
        else:
            logger.error("%s failed", task.get_name(), exc_info=error)
        self._stop.set()


# The caches of a process: what the features that run here watch, and the reflectors that fill them.
#
# Processes that answer reviews watch what admission needs; the process that writes to the cluster watches everything.
# So a process that serves webhooks alone holds no Pods.


class Caches:
    """Stores and the reflectors that fill them.

    ``namespace``: the only one to watch where objects are watched at all, or empty for all.
    """

    def __init__(
        self,
        own_namespace: str,
        namespace: str = "",
        enabled: Enabled = lambda _gate: True,
        declared: Iterable[Feature] | None = None,
        absent: Callable[[], Container[str]] = tuple,
    ) -> None:
        """``absent`` returns the names of the CustomResourceDefinitions that are not installed."""
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
        """All stores, by what a person calls them."""
        return self.stores.by_name

    @property
    def for_admission(self) -> Mapping[str, Store[Any]]:
        """The stores that must be filled before a review can be judged, by what a person calls them."""
        declared = self.stores.declared
        return {declared[key].name: self.stores(declared[key]) for key in self._for_admission}

    @property
    def resources_for_admission(self) -> Sequence[Resource]:
        """The resources in the stores that admission reads."""
        return [self.stores.declared[key].resource for key in self._for_admission]

    def admission_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """What fills the stores that admission reads, to be run as tasks."""
        declared = self.stores.declared
        return [self._reflector(declared[key], client, rng, metrics) for key in self._for_admission]

    def controller_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """What fills the stores that only controllers read."""
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
        )


# One process of a replica: its loop, its client, its heartbeat, and the parts it runs.
#
# Two parts exist: admission (webhooks.py) and reconciling (reconciler.py). A replica has several processes of the
# first and one of the second; ``--webhook-processes=0`` puts both into one. Parts meet only in the replica's shared
# values, so they do not notice the difference.

#: How long what is in flight may take when the process ends (OpenKruise's Pods are given 10 s in all).
GRACE_SECONDS: Final = 5.0
#: How often a process shows that it is alive.
BEAT_SECONDS: Final = 1.0
#: How often it writes down what it counts, unasked.
PUBLISH_SECONDS: Final = 5.0
#: How often the values others share are checked while something is awaited, and when all runs.
START_CHECK_SECONDS: Final = 0.02
CHECK_SECONDS: Final = 0.5
#: Allocations before the youngest generation is collected.
GC_THRESHOLD: Final = 5_000


class Part(Protocol):
    """What a process does."""

    async def start(self) -> None:
        """Everything up to being ready. What lives on is handed to the process's tasks."""
        ...

    async def stop(self) -> None:
        """Finish what is begun."""
        ...

    def debug_pages(self) -> Mapping[str, list[str]]:
        """Lines for the debug pages, by page."""
        ...


class Process:
    """One process of a replica. ``make_parts`` is called in its loop, once it can reach the API server."""

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
        # What was in place once stays so when this process follows another.
        last = replica.state(name)
        self._state = State(pid=os.getpid(), defined=last.defined, registered=last.registered)

    # ---- what parts use

    @property
    def client(self) -> Client:
        """The API server."""
        if self._client is None:
            raise RuntimeError("the process does not run yet")
        return self._client

    @property
    def state(self) -> State:
        """What this process last told the others."""
        return self._state

    def update_state(self, **changes: object) -> None:
        """Tell the others how far this process is."""
        self._state = msgspec.structs.replace(self._state, **changes)
        self.replica.states[self.name].write(self._state)

    def need(self, what: str, why: str) -> None:
        """Not ready before ``done(what)``; ``why`` is shown meanwhile."""
        self.update_state(missing={**self._state.missing, what: why})

    def done(self, what: str) -> None:
        """This is in place."""
        self.update_state(missing={key: why for key, why in self._state.missing.items() if key != what})

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that other processes share."""
        while not condition():
            await self.clock.sleep(START_CHECK_SECONDS)

    def start_admission_caches(self) -> None:
        """Fill what both parts read; the second call does nothing."""
        if self._admission_caches_started:
            return
        self._admission_caches_started = True
        for reflector in self.caches.admission_reflectors(self.client, self.rng, self.metrics.reflectors):
            self.tasks.start(reflector.run(), f"reflector of {reflector.resource.kind}")

    def start_controller_caches(self) -> None:
        """Fill the caches that only controllers read, Pods first of all; the second call does nothing."""
        if self._controller_caches_started:
            return
        self._controller_caches_started = True
        for reflector in self.caches.controller_reflectors(self.client, self.rng, self.metrics.reflectors):
            self.tasks.start(reflector.run(), f"reflector of {reflector.resource.kind}")

    def freeze(self) -> None:
        """What was filled lives until the end: no collection need look at it again. What comes later hardly ever holds
        cycles, and most of it is gone before a collection could find it."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)

    # ---- the life of the process

    async def run(self) -> None:
        """Work until ``stop`` is set or a signal says so. Raises what made it fail."""
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
        """Run the parts against this API server until ``stop`` is set, or one of their tasks fails."""
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
                logger.error("%s: the supervisor is gone: ending too", self.name)
                self.stop.set()
            if (now := self.clock.monotonic()) >= publish_at:
                publish_at = now + PUBLISH_SECONDS
                self.publish()
            await self.clock.sleep(BEAT_SECONDS)

    def publish(self) -> None:
        """Write down what this process counts and what its debug pages show, for the others and its successor."""
        pages: dict[str, list[str]] = {}
        for part in self._parts:
            for page, lines in part.debug_pages().items():
                pages[page] = pages.get(page, []) + lines
        self.counts.publish(pages)


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run them together; the first that fails ends the others, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None


def first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the errors of a group."""
    found = failures.exceptions[0]
    return first_error(found) if isinstance(found, BaseExceptionGroup) else found
