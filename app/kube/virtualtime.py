"""Virtual time: an event loop that jumps to its next timer instead of waiting for it.

Whenever nothing is left to do at this moment, the loop's clock is set to the earliest timer. An hour of back-off then
takes microseconds, always in the same order, and whatever waits with ``asyncio`` waits in virtual time too. Real I/O
still works (what is ready is handled before time jumps), but code that must stay deterministic has none.

    result = run(main(clock := VirtualClock()))
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

#: Where virtual time begins unless told otherwise: late enough for every date arithmetic, and clearly not today.
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Stalled(RuntimeError):
    """Every task waits, no timer is set and no I/O is pending: nothing would ever happen again."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never blocks: instead of waiting ``timeout`` seconds it lets them pass on the virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.own_files = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        foreign = len(self.get_map()) > self.own_files
        if foreign or timeout is None:  # else there is nothing to be seen, and looking costs more than the rest
            ready = super().select(0)
            if ready:
                return ready
        if timeout is not None and timeout <= 0:
            return []
        if timeout is not None:
            # Whole nanoseconds (the loop's resolution): sums of many sleeps stay exact.
            self.elapsed = round(self.elapsed + timeout, 9)
            return []
        if foreign:  # somebody waits for a socket: only real time can help
            return super().select(None)
        raise Stalled("every task is waiting and no timer is set")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``time()`` is virtual and starts at zero."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._jumping.own_files = len(self._jumping.get_map())  # the loop's own wake-up pipe

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.elapsed


class VirtualClock:
    """A ``Clock`` on the time of the loop it is used in (a :class:`VirtualLoop`)."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start

    def now(self) -> datetime:
        """``start`` plus what has passed on the loop."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """The loop's virtual seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(max(0.0, seconds))

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result, or ``TimeoutError`` when that much virtual time passes first."""
        async with asyncio.timeout(seconds):
            return await awaitable


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a new :class:`VirtualLoop`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
