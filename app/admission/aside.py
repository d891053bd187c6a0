"""Large reviews of our own kinds, decided beside the loop (MGR-149).

To judge 1.5 MB takes a third of a second, and no Pod shall wait for that. A thread of its own decides about one of them
after the other, with an event loop of its own for what it asks; while it works the interpreter goes back and forth
between it and the loop that answers all others. Namespaces take turns: whoever writes many large objects waits for
himself, and anybody else for one of his.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

from app.kube.admission import Decide, Decision, Review
from app.kube.callers import STRANGER

#: How long the loop waits at most, in seconds, until the thread lets it go on; Python's own is five times that.
SWITCH_SECONDS: Final = 0.001


class Aside:
    """The thread; it is there once it is needed."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._busy = False
        #: Who waits for the thread, by stranger and namespace; those whose turn is next come first.
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()

    async def decide(self, decide: Decide, review: Review, seconds: float) -> Decision:
        """The decision. Raises what ``decide`` raises, and ``TimeoutError``."""
        if self._thread is None:
            sys.setswitchinterval(SWITCH_SECONDS)
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large reviews")
        async with asyncio.timeout(seconds):
            # A stranger has one turn, whatever namespaces it names.
            await self._turn(STRANGER.get(), review.namespace)
            try:
                run = copy_context().run
                return await asyncio.get_running_loop().run_in_executor(self._thread, run, _decided, decide, review)
            finally:
                self._pass_on()

    async def _turn(self, stranger: str, namespace: str) -> None:
        """Wait until the thread is this review's."""
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(stranger, OrderedDict()).setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it came too late
            raise

    def _pass_on(self) -> None:
        """Give the thread to the next namespace. Who has given up waiting has no turn."""
        while self._waiting:
            stranger, namespaces = self._waiting.popitem(last=False)
            namespace, turns = namespaces.popitem(last=False)
            turn = turns.popleft()
            if turns:
                namespaces[namespace] = turns
            if namespaces:
                self._waiting[stranger] = namespaces
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        """End the thread when it is done with what it is at."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _decided(decide: Decide, review: Review) -> Decision:
    return asyncio.run(_awaited(decide, review))


async def _awaited(decide: Decide, review: Review) -> Decision:
    outcome = decide(review)
    return await outcome if isinstance(outcome, Awaitable) else outcome
