"""Virtual time: an event loop that jumps to its next timer instead of waiting for it.

Whenever no callback is ready, the loop's clock is set to the earliest timer. An hour of back-off then takes
microseconds, and the order of callbacks is always the same. All code that waits with ``asyncio`` waits in virtual time.
Real I/O still works (ready files are handled before time jumps), but deterministic code must not use it.

    result = run(main(clock := VirtualClock()))
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: The start of virtual time: late enough for all date arithmetic, and clearly not today.
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Stalled(RuntimeError):
    """Every task waits, no timer is set and no I/O is pending, so nothing can ever happen."""


class _Handle(asyncio.Handle):
    """An asyncio handle created without asyncio's checks, because a simulation creates tens of thousands a second."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualLoop, context: Context | None
    ) -> None:
        self._context = context if context is not None else copy_context()
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _TimerHandle(_Handle, asyncio.TimerHandle):
    """The handle of a timer. ``waits``: whether it is one of the loop's timers."""

    __slots__ = ("waits",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = self.waits = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]  # as in asyncio: they may be large
            if self.waits:
                self._loop._timer_cancelled()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``time()`` is virtual and starts at zero. Simultaneous timers run in the order of creation.

    It replaces asyncio's step (``_run_once``, which ``run_forever`` calls) and timers, which would take a sixth of a
    simulation's time: they poll files between any two callbacks and compare timers in Python.
    """

    if TYPE_CHECKING:  # attributes of asyncio's loops
        _ready: deque[Any]
        _selector: Any
        _clock_resolution: float
        _closed: bool
        _stopping: bool

        def _check_closed(self) -> None: ...
        def _process_events(self, events: list[tuple[selectors.SelectorKey, int]]) -> None: ...

    def __init__(self) -> None:
        super().__init__()
        self._elapsed = 0.0
        #: Time, sequence number and handle.
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._files = self._selector._fd_to_key  # its public method is slower than the rest of a step
        self._own_files = len(self._files)  # the loop's own wake-up pipe

    def time(self) -> float:
        return self._elapsed

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()
        handle = _TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after this many virtual seconds."""
        return self.call_at(self._elapsed + delay, callback, *args, context=context)

    def _timer_cancelled(self) -> None:
        """Count a canceled timer. It stays in the heap until its time, or until most timers there are canceled."""
        self._timers_cancelled += 1
        if self._timers_cancelled > 100 and self._timers_cancelled * 2 > len(self._timers):
            self._timers[:] = [timer for timer in self._timers if not timer[2]._cancelled]
            heapify(self._timers)
            self._timers_cancelled = 0

    def _next_timer(self) -> _TimerHandle:
        self._timers_cancelled -= (timer := heappop(self._timers)[2])._cancelled
        timer.waits = False
        return timer

    def _run_once(self) -> None:
        """Run steps until the loop is stopped: ready handles and timers. If there are none, jump to the next timer."""
        ready, timers, files, own_files = self._ready, self._timers, self._files, self._own_files
        resolution = self._clock_resolution
        while True:
            while timers and timers[0][2]._cancelled:
                self._next_timer()
            foreign = len(files) > own_files
            if foreign or not (ready or timers):  # otherwise nothing can be ready, and select is the largest cost
                self._process_events(self._selector.select(0))
            if not ready and not self._stopping:
                if timers:
                    # Round to nanoseconds (the loop's resolution), so that sums of many sleeps stay exact.
                    self._elapsed = max(self._elapsed, round(timers[0][0], 9))
                elif foreign:  # a task waits for a socket, in real time
                    self._process_events(self._selector.select(None))
                else:
                    raise Stalled("every task is waiting and no timer is set")
            due = self._elapsed + resolution
            while timers and timers[0][0] < due:
                ready.append(self._next_timer())
            for _ in range(len(ready)):  # handles added by these run in the next step
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # what Handle._run does, without its frame
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001
                        self.call_exception_handler(
                            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
                        )
            if self._stopping:
                return


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class VirtualClock:
    """A ``Clock`` that reads the time of the running :class:`VirtualLoop`."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start

    def now(self) -> datetime:
        """Return ``start`` plus the time that has passed on the loop."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        # What asyncio.sleep does, in one coroutine instead of two.
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        timer = loop.call_later(seconds, _finish, done)
        try:
            await done
        except BaseException:
            timer.cancel()
            raise

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """Return the awaitable's result. Raises TimeoutError after ``seconds`` of virtual time."""
        # What asyncio.timeout does, without its frames, because this runs for each chunk of each watch.
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("wait_for outside of a task")
        before, late = task.cancelling(), False

        def expire() -> None:
            nonlocal late
            late = True
            task.cancel()

        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, expire) if seconds > 0 else loop.call_soon(expire)
        try:
            return await awaitable
        except asyncio.CancelledError as error:
            if late:
                late = False
                if task.uncancel() <= before:
                    raise TimeoutError from error
            raise
        finally:
            timer.cancel()
            if late:
                task.uncancel()


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
