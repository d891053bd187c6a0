"""How often reviews may ask the API server: forged ones must not make this process one more attacker.

Nearly all reviews are decided from caches. Those that are not wait here for their turn, no longer than their webhook's
time; a client certificate (``--client-ca-file``) keeps forged reviews away altogether.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Coroutine
from typing import Final, TypeVar

T = TypeVar("T")

#: Reviews of one process that may ask at once.
AT_ONCE: Final = 32
#: Reviews that may ask per second, and how many of them without a pause.
PER_SECOND: Final = 100.0
BURST: Final = 500


class AskingLimit:
    """One per process."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        #: When the review that is next to come would be on time at ``PER_SECOND``.
        self._due = -math.inf

    async def decide(self, decision: Awaitable[T], seconds: float) -> T:
        """Await a decision once it is its turn. Raises TimeoutError after so many seconds, waiting included."""
        begun = False
        try:
            async with asyncio.timeout(seconds), self._turns:
                loop = asyncio.get_running_loop()
                now = loop.time()
                self._due = max(self._due, now - BURST / PER_SECOND) + 1 / PER_SECOND
                if self._due > now:
                    await asyncio.sleep(self._due - now)
                begun = True
                return await decision
        finally:
            if not begun and isinstance(decision, Coroutine):
                decision.close()
