"""What the log says of reviews without a line for each: a summary now and then, and the first few that went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from app.admission.metrics import PathStats

logger = logging.getLogger(__name__)

#: One line for all reviews of so long.
SUMMARY_SECONDS: Final = 60.0
#: Lines about single reviews in that time: a caller must not fill a disk.
SINGLE_LINES: Final = 30


class Summary:
    """Counts from one line to the next. ``last`` names the latest decision."""

    def __init__(self, paths: Iterable[PathStats], last: Callable[[], str]) -> None:
        self.paths = tuple(paths)
        self._last = last
        self._before: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lines = 0

    def begin(self) -> None:
        """A review came: there will be a line."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SUMMARY_SECONDS, self.end)

    def one_more_line(self) -> bool:
        """Whether a single review may have a line of its own at a level that is shown."""
        self._lines += 1
        return self._lines <= SINGLE_LINES

    def end(self) -> None:
        """Say what there was since the last line."""
        self._timer = None
        now = self._counted()
        new = {what: count - self._before.get(what, 0) for what, count in now.items()}
        unsaid = max(0, self._lines - SINGLE_LINES)
        self._before, self._lines = now, 0
        text = ", ".join(f"{what} {count}" for what, count in sorted(new.items()) if count)
        if text:
            logger.info("reviews of the last %d s: %s; the last: %s", int(SUMMARY_SECONDS), text, self._last())
        if unsaid:
            logger.warning("%d more refusals and failures had no line of their own", unsaid)

    def _counted(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for stats in self.paths:
            for (_, outcome), count in stats.decisions.items():
                counted[outcome] = counted.get(outcome, 0) + count
            for reason, count in stats.bad_requests.items():
                counted[reason] = counted.get(reason, 0) + count
        return counted
