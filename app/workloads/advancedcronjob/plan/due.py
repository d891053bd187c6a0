"""What is due (ACJ-15, ACJ-16, ACJ-22)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from app.api.cron import Every, Schedule, ScheduleError, latest_until, load_zone, parse

#: More missed runs than these are worth a warning.
MANY: Final = 100
#: A longer deadline in seconds says no more than this one: three hundred years.
_LONGEST: Final = 10**10


@dataclass(frozen=True, slots=True)
class Due:
    """What the clock says. ``run``: the latest time that is due; None if nothing is."""

    run: datetime | None
    #: Seconds until the next time; None if there is none.
    wait: float | None
    #: Whether so many runs were missed that something must be wrong.
    many: bool = False
    #: The latest time that was due and is too late now.
    late: datetime | None = None
    #: The next time; None if there is none.
    following: datetime | None = None


def schedule_of(text: str, zone: str | None) -> Schedule:
    """ACJ-12: a text that names a zone is taken as it is; a zone that cannot be loaded any more is UTC.

    Raises ScheduleError for a text that is no schedule.
    """
    if zone and "TZ" not in text:
        try:
            load_zone(zone)
        except ScheduleError:
            zone = ""
        return parse(text, zone)
    return parse(text)


def what_is_due(schedule: Schedule, since: datetime, now: datetime, deadline: int | None) -> Due:
    """``since``: when the last run was due, or the object was created; ``deadline``: how late a run may be, in
    seconds. Times that follow each other by a duration count from ``since``, whatever the deadline."""
    run = latest_until(schedule, since, now)
    steady = isinstance(schedule, Every)
    following = schedule.next(run or (since if steady else now))
    wait = (following - now.astimezone(UTC)).total_seconds() if following is not None else None
    if run is None:
        return Due(None, wait, following=following)
    earliest = since if deadline is None else max(since, _before(now, deadline))
    if run <= earliest:
        return Due(None, wait, late=run, following=following)
    return Due(run, wait, many=_are_many(schedule, since, earliest, run), following=following)


def _before(now: datetime, seconds: int) -> datetime:
    return now - timedelta(seconds=min(max(seconds, 0), _LONGEST))


def _are_many(schedule: Schedule, since: datetime, earliest: datetime, run: datetime) -> bool:
    """Whether more runs than :data:`MANY` lie after ``earliest``, up to ``run``."""
    if isinstance(schedule, Every):
        return run - max(earliest, since.replace(microsecond=0)) > MANY * schedule.delay
    at: datetime | None = earliest
    for _ in range(MANY + 1):
        at = schedule.next(at) if at is not None else None
        if at is None or at > run:
            return False
    return True
