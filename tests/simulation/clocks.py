"""The clock on everybody's wall, which somebody may set; intervals are measured by another, which goes on evenly."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.kit.virtualtime import VirtualClock


class WallClock(VirtualClock):
    """The clock of a run, the same for all who take part in it."""

    #: By how many seconds it was set forward.
    ahead = 0.0

    def now(self) -> datetime:
        """The time that it shows."""
        return super().now() + timedelta(seconds=self.ahead)
