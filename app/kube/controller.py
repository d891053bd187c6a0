"""Controller: maps changes in stores to keys and queues the keys; a few workers reconcile them.

    controller = Controller("sidecarset", clock, [Watch(sets, to_self), Watch(pods, pod_to_sets)], reconcile, workers=3)
    await controller.run()

``reconcile(key)`` brings one object to its desired state and returns when to run again. It may be called at any time
and any number of times, but never concurrently for one key. Exceptions are logged with the key and retried with
back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from app.kube.clock import Clock
from app.kube.errors import Conflict, KubeError, is_namespace_ending
from app.kube.objects import Object, ObjectMeta
from app.kube.queue import QueueMetrics, QueueShutDown, RateLimits, WorkQueue
from app.kube.resources import ObjectKey, Resource
from app.kube.store import Change, Store, key_of

logger = logging.getLogger(__name__)

#: Default number of keys that a controller processes concurrently.
DEFAULT_WORKERS: Final = 3

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a reconcile. ``requeue_after`` is in seconds; zero means to wait for the next change. If ``requeue`` is
    set too, the earlier time applies."""

    requeue_after: float = 0.0
    #: Requeue with the key's back-off, without counting an error.
    requeue: bool = False


DONE = Result()

Reconcile: TypeAlias = Callable[[ObjectKey], Awaitable[Result | None]]
#: Returns the keys to reconcile after a change.
Keys: TypeAlias = Callable[[Change[T]], Iterable[ObjectKey]]


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """Maps changes in ``store`` to keys, which are enqueued after ``delay`` seconds."""

    store: Store[T]
    keys: Keys[T]
    delay: float | Callable[[Change[T], ObjectKey], float] = 0.0


def to_self(change: Change[Any]) -> Iterable[ObjectKey]:
    """Return the key of the changed object."""
    return (key_of(change.object),)


def to_controller(owner: Resource) -> Keys[Any]:
    """Map a change to the keys of the object's old and new controllers of this kind (in any version)."""

    def keys(change: Change[Any]) -> Iterable[ObjectKey]:
        found: dict[ObjectKey, None] = {}
        for obj in (change.old, change.new):
            metadata: ObjectMeta | None = obj.metadata if obj is not None else None
            reference = metadata.controller if metadata is not None else None
            if metadata is None or reference is None or (reference.kind, reference.group) != (owner.kind, owner.group):
                continue
            found[ObjectKey(metadata.namespace if owner.namespaced else "", reference.name)] = None
        return found

    return keys


class ControllerMetrics:
    """Hooks for the ``controller_runtime_*`` metrics. This base class does nothing. ``result`` is success, requeue,
    requeue_after or error."""

    def reconciled(self, controller: str, result: str, seconds: float) -> None: ...
    def active_workers(self, controller: str, workers: int) -> None: ...
    def panicked(self, controller: str) -> None: ...


class Controller:
    """The reconcile loop of one kind. Other code may add keys to ``queue``.

    It starts once the stores of its watches, and those in ``needs`` (read but not watched), have synced. One namespace
    can occupy all workers but one, so a tenant with thousands of slow keys delays only itself.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        watches: Sequence[Watch[Any]],
        reconcile: Reconcile,
        *,
        workers: int = DEFAULT_WORKERS,
        needs: Sequence[Store[Any]] = (),
        sync_timeout: float = 120.0,
        limits: RateLimits | None = None,
        metrics: ControllerMetrics | None = None,
        queue_metrics: QueueMetrics | None = None,
    ) -> None:
        self.name = name
        self.workers = workers
        self.queue: WorkQueue[ObjectKey] = WorkQueue(name, clock, limits, queue_metrics, max(1, workers - 1))
        self._clock = clock
        self._watches = watches
        self._needs = needs
        self._reconcile = reconcile
        self._sync_timeout = sync_timeout
        self._metrics = metrics if metrics is not None else ControllerMetrics()
        self._active = 0

    async def run(self) -> None:
        """Run until ``stop`` is called (keys that are ready are still processed) or the task is canceled.

        Raises ``TimeoutError`` if the stores do not sync in time: a controller must not act on incomplete data.
        """
        await self._wait_until_ready()
        subscriptions = [watch.store.subscribe(self._handler(watch)) for watch in self._watches]
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(self.workers):
                    tasks.create_task(self._work(), name=f"{self.name} worker {number}")
        finally:
            for unsubscribe in subscriptions:
                unsubscribe()
            self.queue.shut_down()

    def stop(self) -> None:
        """Accept no more keys. ``run`` returns when those that are ready have been processed."""
        self.queue.shut_down()

    async def _wait_until_ready(self) -> None:
        async def all_ready() -> None:
            for store in (*(watch.store for watch in self._watches), *self._needs):
                await store.wait_until_ready()

        try:
            await self._clock.wait_for(all_ready(), self._sync_timeout)
        except TimeoutError:
            message = f"controller {self.name}: caches did not sync within {self._sync_timeout:.0f} s"
            raise TimeoutError(message) from None

    def _handler(self, watch: Watch[T]) -> Callable[[Change[T]], None]:
        def handle(change: Change[T]) -> None:
            try:
                for key in watch.keys(change):
                    self.queue.add_after(key, watch.delay(change, key) if callable(watch.delay) else watch.delay)
            except Exception:
                # An error in handling one object must not stop the reflector.
                self._metrics.panicked(self.name)
                logger.exception("%s: failed to map a change to %s to keys", self.name, key_of(change.object))

        return handle

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            self._active += 1
            self._metrics.active_workers(self.name, self._active)
            try:
                await self._reconcile_one(key)
            finally:
                self.queue.done(key)
                self._active -= 1
                self._metrics.active_workers(self.name, self._active)

    async def _reconcile_one(self, key: ObjectKey) -> None:
        started = self._clock.monotonic()
        try:
            outcome = self._requeue(key, await self._reconcile(key) or DONE)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the reconcile awaited was canceled, not this worker, so only this key failed.
            outcome = self._failed(key, error, self._clock.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - the worker must survive; _log reports the error
            outcome = self._failed(key, error, self._clock.monotonic() - started)
        self._metrics.reconciled(self.name, outcome, self._clock.monotonic() - started)

    def _requeue(self, key: ObjectKey, result: Result) -> str:
        """Requeue the key as requested and return the result label for metrics."""
        if not result.requeue:
            self.queue.forget(key)
        if result.requeue_after > 0:
            self.queue.add_after(key, result.requeue_after)
        if result.requeue:
            self.queue.add_rate_limited(key)
            return "requeue"
        return "requeue_after" if result.requeue_after > 0 else "success"

    def _failed(self, key: ObjectKey, error: BaseException, took: float) -> str:
        held = error.retry_in if isinstance(error, KubeError) else 0.0
        self._log(key, error, took, self.queue.add_rate_limited(key, held))
        return "error"

    def _log(self, key: ObjectKey, error: BaseException, took: float, delay: float) -> None:
        """Log a failed reconcile. Conflicts are common, and API errors need only their message; bugs need a stack
        trace.

        The duration is logged because it adds to the time between two retries.
        """
        if isinstance(error, Conflict):
            logger.info("%s: %s has changed, retrying in %.3f s: %s", self.name, key, delay, error)
            return
        if isinstance(error, KubeError) and is_namespace_ending(error):
            logger.debug("%s: %s: its namespace is being terminated: %s", self.name, key, error)
            return
        said = (self.name, key, took, delay)
        if isinstance(error, KubeError | TimeoutError):
            logger.warning("%s: reconciling %s failed after %.3f s, retrying in %.3f s: %s", *said, error)
        else:
            self._metrics.panicked(self.name)
            logger.error("%s: reconciling %s failed after %.3f s, retrying in %.3f s", *said, exc_info=error)
