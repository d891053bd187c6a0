"""Reads that arrive together are one: whoever asks gets an answer that was read after asking.

    deployments = Coalesced(lambda key: client.get(DEPLOYMENTS, key.name, key.namespace))
    await deployments(key)

While a read is under way further ones for the same key wait for the next, so nobody gets an answer that is older than
the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Coalesced(Generic[K, V]):
    """``read`` gives the value of a key; what it raises is raised to all who asked together."""

    def __init__(self, read: Callable[[K], Awaitable[V]]) -> None:
        self._read = read
        self._next: dict[K, asyncio.Future[V]] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        #: How often it was asked, and read.
        self.asked = 0
        self.reads = 0

    async def __call__(self, key: K) -> V:
        """The value, read from now on."""
        self.asked += 1
        answer = self._next.get(key)
        if answer is None:
            answer = self._next[key] = asyncio.get_running_loop().create_future()
        if key not in self._tasks:
            # A task of its own: that one who asks gives up must not take the others with it.
            self._tasks[key] = asyncio.create_task(self._serve(key))
        return await asyncio.shield(answer)

    async def _serve(self, key: K) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                answer = self._next.pop(key, None)
                if answer is None:
                    return
                self.reads += 1
                try:
                    value = await self._read(key)
                except Exception as error:  # noqa: BLE001  # it is raised where it was asked
                    answer.set_exception(error)
                    answer.exception()
                except BaseException:
                    answer.cancel()
                    raise
                else:
                    answer.set_result(value)
        finally:
            del self._tasks[key]
            if (left := self._next.pop(key, None)) is not None:
                left.cancel()
