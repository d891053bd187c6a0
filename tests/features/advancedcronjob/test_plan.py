"""Due and missed runs, and the jobs to keep (ACJ-15, ACJ-16, ACJ-22)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from app.features.advancedcronjob.commands import plan
from app.features.advancedcronjob.cron import parse
from app.features.advancedcronjob.plan import Child, State, last_scheduled, name_of, schedule_of, to_trim, what_is_due
from app.kube.resources import JOBS


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2022-03-03T{clock}+00:00")


@pytest.mark.behaviour("ACJ-15", "ACJ-16", "ACJ-22")
@pytest.mark.parametrize(
    ("text", "last", "deadline", "now", "run", "wait"),
    [
        ("*/5 * * * *", None, None, "10:03:00", None, 120),
        ("*/5 * * * *", None, None, "10:05:00", "10:05:00", 300),
        ("*/5 * * * *", "10:05:00", None, "10:21:00", "10:20:00", 240),
        ("*/5 * * * *", "10:05:00", 60, "10:21:30", None, 210),
        ("*/5 * * * *", "10:05:00", 120, "10:21:30", "10:20:00", 210),
        ("*/5 * * * *", "10:05:00", 90, "10:21:30", None, 210),
        ("*/5 * * * *", "10:05:00", 0, "10:20:00", None, 300),
        ("*/5 * * * *", "10:05:00", 0, "10:21:30", None, 210),
        ("*/5 * * * *", "10:15:00", None, "10:20:00", "10:20:00", 300),
        ("*/1 * * * *", "08:00:00", None, "09:40:59", "09:40:00", 1),
        ("0 0 30 2 *", None, None, "10:21:00", None, None),
        ("*/5 * * * *", "10:30:00", None, "10:21:00", None, 240),
        ("*/5 * * * *", "10:05:00", 10**18, "10:21:30", "10:20:00", 210),
        # @every counts from the last run, however late it was started.
        ("@every 5m", None, None, "10:03:00", None, 240),
        ("@every 5m", None, 60, "10:07:30", "10:07:00", 270),
        ("@every 5m", "10:07:00", 60, "10:08:30", None, 210),
        ("@every 5m", "10:07:00", 30, "10:12:40", None, 260),
        ("@every 5m", "10:30:00", None, "10:21:00", None, 840),
    ],
)
def test_missed_runs_are_started_or_reported(
    text: str, last: str | None, deadline: int | None, now: str, run: str | None, wait: int | None
) -> None:
    due = what_is_due(parse(text), at(last or "10:02:00"), at(now), deadline)
    assert due.run == (at(run) if run else None)
    assert due.wait == wait
    assert not due.many


@pytest.mark.behaviour("ACJ-15")
@pytest.mark.parametrize(("text", "last", "runs"), [
    ("@every 5m", "10:02:00", ["10:22:00", "10:27:00"]),
    ("@every 5m", "10:20:00", ["10:25:00", "10:30:00"]),
    ("*/5 * * * *", "10:02:00", ["10:25:00", "10:30:00"]),
])  # fmt: skip
def test_a_plan_lists_upcoming_runs(text: str, last: str, runs: list[str]) -> None:
    stored = {
        "metadata": {"name": "acj", "namespace": "default", "uid": "u", "creationTimestamp": "2022-03-03T10:00:00Z"},
        "spec": {"schedule": text, "template": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}},
        "status": {"lastScheduleTime": f"2022-03-03T{last}Z"},
    }
    client: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: at("10:21:30")))
    rows = asyncio.run(plan(client, stored, lambda _: True)).partition("RUN")[2].splitlines()[1:3]
    assert [row.split() for row in rows] == [[f"2022-03-03T{run}Z", name_of("acj", at(run))] for run in runs]


@pytest.mark.behaviour("ACJ-22")
def test_of_too_many_missed_runs_the_latest_is_started() -> None:
    due = what_is_due(parse("*/1 * * * *"), at("08:00:00"), at("09:41:00"), None)
    assert (due.run, due.many, due.wait) == (at("09:41:00"), True, 60)
    steady = parse("@every 1m")
    assert not what_is_due(steady, at("08:00:00"), at("09:40:59"), None).many
    assert what_is_due(steady, at("08:00:00"), at("09:41:00"), None).many
    assert not what_is_due(steady, at("08:00:00"), at("09:41:00"), 60).many
    since = datetime(1, 1, 1, tzinfo=UTC)
    assert what_is_due(parse("@every 2562047h"), since, at("09:41:00"), None).run is not None
    ages = what_is_due(parse("@every 1s"), datetime(1970, 1, 1, tzinfo=UTC), at("09:41:00"), None)
    assert (ages.run, ages.many) == (at("09:41:00"), True)


@pytest.mark.behaviour("ACJ-27")
def test_a_run_past_its_deadline_is_late() -> None:
    assert what_is_due(parse("*/5 * * * *"), at("10:05:00"), at("10:21:30"), 60).late == at("10:20:00")
    assert what_is_due(parse("*/5 * * * *"), at("10:20:00"), at("10:21:30"), 60).late is None


@pytest.mark.behaviour("ACJ-12")
def test_the_time_zone_comes_from_the_text_or_the_field() -> None:
    after = datetime.fromisoformat("2022-09-05T09:01:00+00:00")
    in_shanghai = datetime.fromisoformat("2022-09-06T02:00:00+00:00")
    assert schedule_of("0 10 * * ?", "Asia/Shanghai").next(after) == in_shanghai
    assert schedule_of("TZ=Asia/Shanghai 0 10 * * ?", "Europe/Berlin").next(after) == in_shanghai
    # A zone that is no longer in the database.
    assert schedule_of("0 10 * * ?", "No/Where").next(after) == datetime.fromisoformat("2022-09-05T10:00:00+00:00")


def child(name: str, state: State, started: str | None, scheduled: str | None = None) -> Child:
    due = at(scheduled) if scheduled else None
    return Child(JOBS, name, name, "1", state, at(started) if started else None, due, deleting=False)


@pytest.mark.behaviour("ACJ-14")
def test_the_oldest_jobs_are_deleted_first() -> None:
    children = [
        child("b", State.SUCCESSFUL, "10:05:00"),
        child("a", State.SUCCESSFUL, "10:10:00"),
        child("c", State.SUCCESSFUL, None),
        child("d", State.FAILED, "10:00:00"),
        child("e", State.ACTIVE, "09:00:00"),
    ]
    assert [one.name for one in to_trim(children, 1, 1)] == ["c", "b"]
    assert [one.name for one in to_trim(children, 0, 0)] == ["c", "b", "a", "d"]
    assert to_trim(children, None, None) == []


@pytest.mark.behaviour("ACJ-6", "ACJ-21")
def test_jobs_are_named_after_their_time_and_the_last_one_is_known() -> None:
    assert name_of("acj-test", at("11:00:00")) == "acj-test-1646305200"
    known = [at("10:10:00"), None]
    assert last_scheduled(known, [child("a", State.ACTIVE, None, "10:05:00")]) == at("10:10:00")
    assert last_scheduled([None], []) is None
