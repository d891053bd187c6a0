"""A wall clock that may be set, and a monotonic clock for intervals."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.kit.virtualtime import VirtualClock


class WallClock(VirtualClock):
    """The clock of a run, the same for all who take part in it."""

    #: By how many seconds it was set forward.
    ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)
