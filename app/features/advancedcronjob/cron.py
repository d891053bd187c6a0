"""Cron schedules in OpenKruise's syntax. [ACJ-9 … ACJ-12]

``parse(text, zone)`` returns a schedule or raises ``ScheduleError`` with the message of the Go library that OpenKruise
uses. The search for the next time is bounded: it goes day by day, at most five years ahead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from app.kube.fielderrors import quote, shortened

#: Maximum length of a schedule in characters.
LONGEST: Final = 4096
#: How far ahead to search for the next time. [ACJ-11]
YEARS_AHEAD: Final = 5
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_integer = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII).fullmatch
_duration_part = re.compile(r"([0-9]*(?:\.[0-9]*)?)([^0-9.]*)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ScheduleError(ValueError):
    """The text is not a valid schedule. The message says why."""


class Schedule(Protocol):
    """Computes the times of a schedule."""

    def next(self, after: datetime) -> datetime | None:
        """Return the first time strictly after ``after`` (in UTC, whole seconds), or None if there is none within five
        years."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Fires at a constant interval."""

    delay: timedelta

    def next(self, after: datetime) -> datetime | None:
        """Return ``after`` plus the delay, truncated to whole seconds."""
        try:
            return after.astimezone(UTC).replace(microsecond=0) + self.delay
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule of five fields. If either day field is a star, a day must match both; otherwise, it must match at
    least one. [ACJ-10]"""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool
    zone: tzinfo

    def matches(self, day: date) -> bool:
        """Return whether the schedule fires on this day."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day and by_weekday if self.both else by_day or by_weekday

    def next(self, after: datetime) -> datetime | None:
        """Search by day, then hour, then minute in the schedule's time zone. Local times that do not exist are skipped;
        ambiguous ones fire twice."""
        try:
            return self._next(after.astimezone(UTC))
        except OverflowError:
            return None

    def _next(self, after: datetime) -> datetime | None:
        if not (self.minutes and self.hours):
            return None
        found = after.replace(second=0, microsecond=0) + _MINUTE
        last = found.astimezone(self.zone).date() + timedelta(days=366 * YEARS_AHEAD)
        while True:
            local = found.astimezone(self.zone)
            if local.second:
                # Historical offsets (local mean time) include seconds.
                found += timedelta(seconds=60 - local.second)
            elif not self.matches(local.date()):
                day = local.date() + _DAY
                while not self.matches(day):
                    day += _DAY
                    if day > last:
                        return None
                found = max(self._later(found, local, 60 - local.minute), self._begin(day))
            elif local.hour not in self.hours:
                found = self._later(found, local, 60 - local.minute)
            elif local.minute not in self.minutes:
                found = self._later(found, local, _until(self.minutes, local.minute))
            else:
                return found

    def _later(self, found: datetime, local: datetime, minutes: int) -> datetime:
        """Advance by the given minutes, or by one minute if the zone's offset changes in between."""
        later = found + timedelta(minutes=minutes)
        return later if later.astimezone(self.zone).utcoffset() == local.utcoffset() else found + _MINUTE

    def _begin(self, day: date) -> datetime:
        """Return the start of the day, or a slightly earlier time if midnight does not exist."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        return min(midnight.astimezone(UTC), midnight.replace(fold=1).astimezone(UTC))


def _until(values: frozenset[int], now: int) -> int:
    return min((value for value in values if value > now), default=60) - now


def latest_until(schedule: Schedule, after: datetime, now: datetime) -> datetime | None:
    """Return the latest time in (after, now]. Bisects the interval, which may contain many times."""
    if (found := schedule.next(after)) is None or found > now:
        return None
    if isinstance(schedule, Every):
        return found + (now - found) // schedule.delay * schedule.delay
    low, high = int(found.timestamp()), int(now.timestamp())
    while low <= high:
        middle = (low + high) // 2
        later = schedule.next(datetime.fromtimestamp(middle, UTC))
        if later is not None and later <= now:
            found, low = later, int(later.timestamp())
        else:
            high = middle - 1
    return found


# ---- zones


def load_zone(name: str) -> tzinfo:
    """Load an IANA time zone; an empty name means UTC, as in Go. Raises ScheduleError."""
    if name in ("", "UTC", "Local"):
        # The container image's local time zone is UTC.
        return UTC
    if ".." in name or name.startswith(("/", "\\")):
        raise ScheduleError("time: invalid location name")
    if len(name) > 255 or not name.isascii():
        raise ScheduleError(f"unknown time zone {shortened(name)}")
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ScheduleError(f"unknown time zone {name}") from None


# ---- parsing


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: Mapping[str, int]


_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def parse(text: str, zone: str = "") -> Schedule:
    """Parse a schedule. A zone in the text overrides the argument. Raises ScheduleError. [ACJ-12]"""
    if not text:
        raise ScheduleError("empty spec string")
    if len(text) > LONGEST:
        raise ScheduleError(f"longer than {LONGEST} characters")
    location = load_zone(zone)
    if text.startswith(("TZ=", "CRON_TZ=")):
        named, space, rest = text.partition(" ")
        if not space:
            raise ScheduleError(f"invalid cron schedule: {text}")
        name = named.partition("=")[2]
        try:
            location = load_zone(name)
        except ScheduleError as error:
            raise ScheduleError(f"provided bad location {name}: {error}") from None
        text = rest.strip()
    if text.startswith("@"):
        if text.startswith("@every "):
            return _every(text.removeprefix("@every "))
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    read = [_field(field, bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = read
    return Cron(minutes, hours, days, months, weekdays, any_day or any_weekday, location)


def _field(text: str, bounds: _Bounds) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether it contains a star."""
    values: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        found, is_star = _range(part, bounds)
        values.update(found)
        star = star or is_star
    return frozenset(values), star


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    pieces = text.split("/")
    ends = pieces[0].split("-")
    star = ends[0] in ("*", "?")
    if star:
        start, end = bounds.low, bounds.high
    elif len(ends) > 2:
        _value(ends[0], bounds)
        raise ScheduleError(f"too many hyphens: {text}")
    else:
        start, end = _value(ends[0], bounds), _value(ends[-1], bounds)
    step = 1
    if len(pieces) > 2:
        raise ScheduleError(f"too many slashes: {text}")
    if len(pieces) == 2:
        step = _number(pieces[1])
        if len(ends) == 1:
            end = bounds.high
        star = star and step <= 1
    if start < bounds.low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.low}): {text}")
    if end > bounds.high:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), star


def _value(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    if not _integer(text):
        detail = f"strconv.Atoi: parsing {quote(text)}: invalid syntax"
        raise ScheduleError(f"failed to parse int from {text}: {detail}")
    number = int(text)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _every(text: str) -> Every:
    """Parse a Go duration of at least one second, truncated to whole seconds. [ACJ-9]"""
    try:
        seconds = _duration(text)
    except ScheduleError as error:
        raise ScheduleError(f"failed to parse duration @every {text}: time: {error}") from None
    return Every(timedelta(seconds=max(1, int(seconds))))


def _duration(text: str) -> float:
    sign, rest = 1, text
    if rest[:1] in ("+", "-"):
        sign, rest = (-1 if rest[0] == "-" else 1), rest[1:]
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest):
        part = _duration_part.match(rest, at)
        if part is None or part[1] in ("", "."):
            break
        if not part[2]:
            raise ScheduleError(f"missing unit in duration {quote(text)}")
        if part[2] not in _UNITS:
            raise ScheduleError(f"unknown unit {quote(part[2])} in duration {quote(text)}")
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    # Range of Go's time.Duration.
    if not rest or at < len(rest) or total > 2**63 / 1e9:
        raise ScheduleError(f"invalid duration {quote(text)}")
    return sign * total
