"""A virtual clock whose wall time can be set."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.kit.virtualtime import VirtualClock


class WallClock(VirtualClock):
    """The clock of a run."""

    #: Seconds by which the wall clock is ahead.
    ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)
