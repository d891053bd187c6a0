"""Deadlines for waits on real processes, in seconds of an idle machine: a busy or slow one gets more time."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

#: CPU time of the calibration loop on a fast machine.
_REFERENCE: Final = 0.012
#: A second of waiting counts for at least this much, so every wait ends.
_LEAST: Final = 1 / 8


class Deadline:
    """``seconds`` from now on an idle machine; time during which processes queue for a CPU counts less."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._last = time.monotonic()

    def passed(self) -> bool:
        """Return whether it is over; call it once per poll."""
        now = time.monotonic()
        self._left -= (now - self._last) * max(_LEAST, 1 / slowness())
        self._last = now
        return self._left <= 0


def slowness() -> float:
    """Return how many times slower than on an idle, fast machine a process runs now; at least 1."""
    return cpu_slowness() * max(1.0, _running() / (os.cpu_count() or 1))


@cache
def cpu_slowness() -> float:
    """Return how many times more CPU time a computation takes than on a fast machine; at least 1."""
    began, total = time.process_time(), 0
    for number in range(200_000):
        total += number
    return max(1.0, (time.process_time() - began) / _REFERENCE)


def _running() -> int:
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            return int(next(line for line in stat if line.startswith("procs_running")).split()[1])
    except (OSError, StopIteration):
        return 1
