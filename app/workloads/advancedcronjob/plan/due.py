"""What is due (ACJ-15, ACJ-16, ACJ-22)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from app.api.cron import Schedule, ScheduleError, latest_until, load_zone, parse

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
    seconds."""
    following = schedule.next(now)
    wait = (following - now.astimezone(UTC)).total_seconds() if following is not None else None
    earliest = since
    if deadline is not None:
        earliest = max(since, _before(now, deadline))
    run = _missed(schedule, earliest, now)
    if run is None:
        late = latest_until(schedule, since, now) if earliest > since else None
        return Due(None, wait, late=late)
    return Due(run[0], wait, many=run[1])


def _before(now: datetime, seconds: int) -> datetime:
    return now - timedelta(seconds=min(max(seconds, 0), _LONGEST))


def _missed(schedule: Schedule, earliest: datetime, now: datetime) -> tuple[datetime, bool] | None:
    """The latest run after ``earliest`` up to ``now``, and whether there are too many of them."""
    found = None
    at: datetime | None = earliest
    for _ in range(MANY + 1):
        at = schedule.next(at) if at is not None else None
        if at is None or at > now:
            return (found, False) if found is not None else None
        found = at
    latest = latest_until(schedule, earliest, now)
    return (latest, True) if latest is not None else None
