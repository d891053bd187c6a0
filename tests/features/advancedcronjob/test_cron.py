"""The grammar of schedules, and their next times (ACJ-9 … ACJ-12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.advancedcronjob.cron import Cron, ScheduleError, latest_until, parse


def following(text: str, zone: str, after: str) -> datetime | None:
    return parse(text, zone).next(datetime.fromisoformat(after))


@pytest.mark.behaviour("ACJ-11", "ACJ-12")
@pytest.mark.parametrize(
    ("text", "zone", "previous", "expected"),
    [
        ("0 10 * * ?", "", "2022-09-05T09:01:00+00:00", "2022-09-05T10:00:00+00:00"),
        ("0 10 * * ?", "", "2022-09-05T11:01:00+00:00", "2022-09-06T10:00:00+00:00"),
        ("0 10 * * ?", "Asia/Shanghai", "2022-09-05T09:01:00+00:00", "2022-09-06T02:00:00+00:00"),
        ("TZ=Asia/Shanghai 0 10 * * ?", "", "2022-09-06T01:01:00+00:00", "2022-09-06T02:00:00+00:00"),
        ("CRON_TZ=Asia/Shanghai 0 10 * * ?", "", "2022-09-06T01:01:00+00:00", "2022-09-06T02:00:00+00:00"),
        # A nonexistent and an ambiguous local time.
        ("0 2 * * *", "America/New_York", "2012-03-11T00:00:00-05:00", "2012-03-12T02:00:00-04:00"),
        ("0 1 * * *", "America/New_York", "2012-11-04T01:00:00-04:00", "2012-11-04T01:00:00-05:00"),
        ("0 * * * *", "America/New_York", "2012-03-11T01:00:00-05:00", "2012-03-11T03:00:00-04:00"),
        ("@hourly", "", "2022-09-05T09:01:00+00:00", "2022-09-05T10:00:00+00:00"),
        ("@weekly", "", "2022-09-05T09:01:00+00:00", "2022-09-11T00:00:00+00:00"),
        ("@monthly", "", "2022-09-05T09:01:00+00:00", "2022-10-01T00:00:00+00:00"),
        ("@yearly", "", "2022-09-05T09:01:00+00:00", "2023-01-01T00:00:00+00:00"),
        ("@every 1h30m", "", "2022-09-05T09:01:00.500+00:00", "2022-09-05T10:31:00+00:00"),
        ("@every 1ms", "", "2022-09-05T09:01:00+00:00", "2022-09-05T09:01:01+00:00"),
        ("5/20 * * * *", "", "2022-09-05T09:26:00+00:00", "2022-09-05T09:45:00+00:00"),
        ("0 0 * jan SUN", "", "2022-09-05T09:01:00+00:00", "2023-01-01T00:00:00+00:00"),
        ("0 0 29 2 *", "", "2021-03-01T00:00:00+00:00", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_a_schedule_has_the_same_next_time_as_in_openkruise(text: str, zone: str, previous: str, expected: str) -> None:
    assert following(text, zone, previous) == datetime.fromisoformat(expected)


@pytest.mark.behaviour("ACJ-10")
def test_a_step_in_a_day_field_limits_the_days_unlike_a_star() -> None:
    odd_days_or_mondays = parse("0 0 */2 * 1")
    assert isinstance(odd_days_or_mondays, Cron)
    begin = datetime(2022, 9, 1, tzinfo=UTC).date()
    days = [begin + timedelta(days=n) for n in range(30)]
    expected = [day.day % 2 == 1 or day.isoweekday() == 1 for day in days]
    assert [odd_days_or_mondays.matches(day) for day in days] == expected
    star = parse("0 0 */1 * 1")
    assert isinstance(star, Cron)
    assert [star.matches(day) for day in days] == [day.isoweekday() == 1 for day in days]


@pytest.mark.behaviour("ACJ-9")
@pytest.mark.parametrize(("text", "words"), [
    ("", "empty spec string"),
    ("bad", "expected exactly 5 fields, found 1: [bad]"),
    ("0 0 * * * *", "expected exactly 5 fields, found 6: [0 0 * * * *]"),
    ("60 * * * *", "end of range (60) above maximum (59): 60"),
    ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
    ("* * * * 7", "end of range (7) above maximum (6): 7"),
    ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
    ("*/0 * * * *", "step of range should be a positive number: */0"),
    ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
    ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
    ("1/2/3 * * * *", "too many slashes: 1/2/3"),
    ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
    ("@never", "unrecognized descriptor: @never"),
    ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
    ("@every -", 'failed to parse duration @every -: time: invalid duration "-"'),
    ("@every 1", 'failed to parse duration @every 1: time: missing unit in duration "1"'),
    ("@every 1h5d", 'failed to parse duration @every 1h5d: time: unknown unit "d" in duration "1h5d"'),
    ("TZ=UTC", "invalid cron schedule: TZ=UTC"),
    ("TZ=No/Where * * * * *", "provided bad location No/Where: unknown time zone No/Where"),
    ("TZ=../../etc/passwd * * * * *", "provided bad location ../../etc/passwd: time: invalid location name"),
    ("*" * 5000, "longer than 4096 characters"),
])  # fmt: skip
def test_invalid_schedules_are_refused(text: str, words: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse(text)
    assert words in str(error.value)


@pytest.mark.behaviour("ACJ-11", "ACJ-26")
@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4,6 *", ", * * * *"])
def test_impossible_schedules_never_fire(text: str) -> None:
    assert parse(text).next(datetime(2026, 1, 1, tzinfo=UTC)) is None


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/7", "15-20", "59", "5/25"]),
    st.sampled_from(["*", "0", "2", "1-3", "*/5", "23"]),
    st.sampled_from(["*", "1", "*/2", "29-31", "4,11"]),
    st.sampled_from(["*", "3", "11", "mar-apr", "oct,nov"]),
    st.sampled_from(["*", "0", "1-5", "sun,wed", "*/3"]),
)
ZONES = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"])


@given(FIELDS, ZONES, st.integers(min_value=0, max_value=60 * 24 * 366 * 2))
@pytest.mark.behaviour("ACJ-11")
def test_the_next_time_is_the_first_minute_that_matches(fields: tuple[str, ...], zone: str, minutes: int) -> None:
    """Compared with a search of every minute of the next three days."""
    schedule, begin = parse(" ".join(fields), zone), datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    assert isinstance(schedule, Cron)
    span = 60 * 24 * 3
    expected = None
    for minute in range(1, span + 1):
        local = (begin + timedelta(minutes=minute)).astimezone(ZoneInfo(zone))
        if local.minute in schedule.minutes and local.hour in schedule.hours and schedule.matches(local.date()):
            expected = begin + timedelta(minutes=minute)
            break
    found = schedule.next(begin)
    if expected is None:
        assert found is None or found > begin + timedelta(minutes=span)
    else:
        assert found == expected


@given(FIELDS, ZONES, st.integers(min_value=1, max_value=60 * 24 * 4))
@pytest.mark.behaviour("ACJ-22")
def test_the_latest_missed_time_is_found(fields: tuple[str, ...], zone: str, minutes: int) -> None:
    schedule, begin = parse(" ".join(fields), zone), datetime(2025, 3, 8, 0, 0, 30, tzinfo=UTC)
    now, last = begin + timedelta(minutes=minutes), None
    at = schedule.next(begin)
    while at is not None and at <= now:
        last, at = at, schedule.next(at)
    assert latest_until(schedule, begin, now) == last
