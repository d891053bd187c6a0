"""Back-off: how long to wait before the next try, growing and jittered so that many clients do not return at once."""

from __future__ import annotations

from random import Random
from typing import Final

#: Tries of a write that meets a newer object each time; after the last the conflict is the caller's.
CONFLICT_ATTEMPTS: Final = 4


def conflict_wait(attempt: int) -> float:
    """Seconds to wait after such a try (0, 1, 2 …) that met a newer object, each time five times as long."""
    return 0.01 * 5.0**attempt


class Backoff:
    """Delays ``base``, ``base·2``, … up to ``cap``, each lengthened by up to ``jitter`` times itself."""

    def __init__(self, rng: Random, *, base: float = 0.8, cap: float = 30.0, jitter: float = 1.0) -> None:
        self._rng = rng
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._next = base

    def next(self) -> float:
        """Seconds to wait now; the following answer will be longer."""
        delay = self._next
        self._next = min(self._cap, delay * 2)
        return delay * (1 + self._rng.random() * self._jitter)

    def reset(self) -> None:
        """It worked: start over with ``base``."""
        self._next = self._base
