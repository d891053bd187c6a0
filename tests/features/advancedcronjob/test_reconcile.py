"""The AdvancedCronJob controller on the sandbox's API server."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from app.features.advancedcronjob.feature import FEATURE
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB
from app.kube.clock import rfc3339
from app.kube.resources import JOBS, Resource
from tests.features.jobs.world import NAMESPACE, World, worlds
from tests.kit.objects import owner_of

Json = dict[str, Any]
CRONS = ADVANCED_CRON_JOB.resource()
BROADCAST_JOBS = BROADCAST_JOB.resource()
IMAGE_JOBS = IMAGE_LIST_PULL_JOB.resource()
POD: Json = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
TEMPLATE: Json = {"metadata": {"labels": {"team": "x"}}, "spec": {"template": {"spec": POD}}}
JOB: Json = {"jobTemplate": TEMPLATE}
BROADCAST: Json = {"broadcastJobTemplate": TEMPLATE}
IMAGES: Json = {"imageListPullJobTemplate": {"spec": {"images": ["busybox"], "completionPolicy": {"type": "Always"}}}}


in_world = worlds(FEATURE, ADVANCED_CRON_JOB, BROADCAST_JOB, IMAGE_LIST_PULL_JOB)


async def cron(there: World, template: Json | None = None, schedule: str = "*/5 * * * *", **spec: Any) -> None:
    await there.create(CRONS, "acj", {"schedule": schedule, "template": template or JOB, **spec})


async def ends(there: World, name: str, type_: str = "Complete", kind: Resource = JOBS) -> None:
    now = rfc3339(there.clock.now())
    condition = {"type": type_, "status": "True"}
    counts = {"active": 0, "desired": 0, "failed": 0, "succeeded": 0} if kind is BROADCAST_JOBS else {}
    status = {"conditions": [condition], "startTime": now, **counts}
    await there.change(kind, name, {"status": status}, "status")


async def made(there: World, count: int, kind: Resource = JOBS, seconds: float = 400.0) -> list[str]:
    async def look() -> list[str] | None:
        found = await there.names(kind)
        return found if len(found) == count else None

    found: list[str] = await there.until(look, seconds)
    return found


def creations(there: World, kind: str = "Job") -> list[str]:
    return [name for verb, of, name in there.writes if (verb, of) == ("create", kind)]


@pytest.mark.behaviour("ACJ-6", "ACJ-13", "ACJ-20", "ACJ-27", "ACJ-28")
@pytest.mark.parametrize(
    ("template", "kind"), [(JOB, JOBS), (BROADCAST, BROADCAST_JOBS), (IMAGES, IMAGE_JOBS)], ids=["job", "bcj", "images"]
)
@in_world
async def test_a_job_of_each_kind_is_created_on_time(there: World, template: Json, kind: Resource) -> None:
    await cron(there, template)
    await there.settled(1.0)
    # The type is reported before the first run.
    assert await there.status_of(CRONS, "acj") == {"type": kind.kind}
    (name,) = await made(there, 1, kind)
    job = await there.get(kind, name)
    assert job is not None
    metadata = job["metadata"]
    due = metadata["annotations"]["apps.kruise.io/scheduled-at"]
    assert name == f"acj-{int(datetime.fromisoformat(due).timestamp())}"
    assert due.endswith(":00Z")
    (owner,) = metadata["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == (CRONS.api_version, CRONS.kind, "acj")
    if kind is not IMAGE_JOBS:
        assert metadata["labels"]["team"] == "x"
    await there.settled(2.0)
    status = await there.status_of(CRONS, "acj")
    assert status["lastScheduleTime"] == due
    assert [(one["kind"], one["name"]) for one in status["active"]] == [(kind.kind, name)]
    assert "SuccessfulCreate" in await there.reasons()


@pytest.mark.behaviour("ACJ-7", "ACJ-14", "ACJ-23")
@in_world
async def test_a_few_finished_jobs_are_kept(there: World) -> None:
    await cron(there, schedule="* * * * *", successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    for count, type_ in enumerate(("Complete", "Failed", "Complete", "Failed"), 1):
        await there.becomes(lambda: len(creations(there)), count, 70)
        await there.settled(1.0)
        await ends(there, creations(there)[-1], type_)
        await there.settled(2.0)
    assert await there.names(JOBS) == [creations(there)[number] for number in (0, 2, 3)]
    assert "active" not in await there.status_of(CRONS, "acj")
    assert "SuccessfulDelete" in await there.reasons()


@pytest.mark.behaviour("ACJ-16", "ACJ-18", "ACJ-27")
@in_world
async def test_forbid_waits_for_the_running_job_and_keeps_the_schedule_time(there: World) -> None:
    await cron(there, schedule="* * * * *", concurrencyPolicy="Forbid")
    (first,) = await made(there, 1)
    await there.settled(90)
    assert creations(there) == [first]
    assert "JobAlreadyActive" in await there.reasons()
    await ends(there, first)
    _, second = await made(there, 2, seconds=3)
    assert int(second.removeprefix("acj-")) == int(first.removeprefix("acj-")) + 60


@pytest.mark.behaviour("ACJ-16")
@in_world
async def test_replace_deletes_all_running_jobs(there: World) -> None:
    await cron(there, schedule="* * * * *")
    former = await made(there, 2)
    await there.change(CRONS, "acj", {"spec": {"concurrencyPolicy": "Replace"}})
    await there.settled(60)
    (name,) = await there.names(JOBS)
    assert name not in former


@pytest.mark.behaviour("ACJ-13", "ACJ-15")
@in_world
async def test_a_paused_schedule_starts_the_latest_missed_run_on_resume(there: World) -> None:
    await cron(there, schedule="* * * * *", paused=True)
    await there.settled(200)
    assert creations(there) == []
    now = there.clock.now()
    await there.change(CRONS, "acj", {"spec": {"paused": False}})
    (name,) = await made(there, 1, seconds=3)
    assert int(name.removeprefix("acj-")) == int(now.timestamp()) // 60 * 60


@pytest.mark.behaviour("ACJ-21", "ACJ-29")
@in_world
async def test_each_minute_runs_once_even_without_kept_jobs(there: World) -> None:
    await cron(there, BROADCAST, schedule="* * * * *", successfulJobsHistoryLimit=0)
    begin = there.clock.now()
    found: list[str] = []
    while there.clock.now().timestamp() < begin.timestamp() + 120 * 60:
        await there.settled(10.0)
        if len(creations(there, "BroadcastJob")) > len(found):
            found = creations(there, "BroadcastJob")
            await ends(there, found[-1], kind=BROADCAST_JOBS)
    assert 119 <= len(found) <= 120
    times = [int(name.removeprefix("acj-")) for name in found]
    assert times == list(range(times[0], times[0] + 60 * len(found), 60))


@pytest.mark.behaviour("ACJ-26", "ACJ-27")
@in_world
async def test_a_job_of_another_owner_is_kept_and_its_name_reported(there: World) -> None:
    at = (int(there.clock.now().timestamp()) // 300 + 1) * 300
    await there.create(JOBS, f"acj-{at}", {"template": {"spec": POD}})
    await cron(there)
    await there.settled(310)
    assert "FailedCreate" in await there.reasons()
    job = await there.get(JOBS, f"acj-{at}")
    assert job is not None
    assert "ownerReferences" not in job["metadata"]


@pytest.mark.behaviour("ACJ-12", "ACJ-19")
@in_world
async def test_an_unreadable_schedule_is_reported_once_and_not_retried(there: World) -> None:
    await cron(there, schedule="never", timeZone="No/Where")
    await there.settled(400)
    messages = await there.messages("UnparseableSchedule")
    assert [text.split(": ")[:2] for text in messages] == [["unparseable schedule", '"never"']]
    await there.change(CRONS, "acj", {"spec": {"schedule": "* * * * *"}})
    await made(there, 1, seconds=70)


async def unseen(there: World, policy: str) -> list[str]:
    """Create a schedule whose first job has started, while the controller's cache never shows a BroadcastJob."""
    there.manager.holds_back = lambda request: request.path.endswith("/broadcastjobs")
    await cron(there, BROADCAST, schedule="* * * * *", concurrencyPolicy=policy)
    return await made(there, 1, BROADCAST_JOBS, 70)


@pytest.mark.behaviour("ACJ-16", "ACJ-18")
@in_world
async def test_an_unseen_finished_job_blocks_nothing(there: World) -> None:
    former = await unseen(there, "Forbid")
    for _ in range(2):
        await there.client.delete(BROADCAST_JOBS, former[0], NAMESPACE)
        await there.settled(60)
        latest = await there.names(BROADCAST_JOBS)
        assert len(latest) == 1
        assert latest != former
        former = latest


@pytest.mark.behaviour("ACJ-16", "ACJ-18")
@in_world
async def test_another_object_with_the_name_of_an_unseen_job_blocks_nothing(there: World) -> None:
    """Otherwise the schedule would never run again."""
    (name,) = await unseen(there, "Forbid")
    former = await there.get(BROADCAST_JOBS, name)
    assert former is not None
    await there.client.delete(BROADCAST_JOBS, name, NAMESPACE)
    await there.create(BROADCAST_JOBS, name, former["spec"])
    await there.settled(60)
    assert len(await there.names(BROADCAST_JOBS)) == 2


@pytest.mark.behaviour("ACJ-16", "ACJ-26")
@pytest.mark.parametrize("found", [False, True], ids=["not found before the next run", "found"])
@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
@in_world
async def test_a_job_whose_creation_got_no_answer_does_not_run_beside_the_next(
    there: World, policy: str, found: bool
) -> None:
    there.manager.lose = lambda request: (request.method, request.path[-14:]) == ("POST", "/broadcastjobs")
    there.manager.refuse = lambda request: not found and (request.method, "/acj-" in request.path) == ("GET", True)
    await unseen(there, policy)
    there.manager.lose = lambda _: False
    # An event of another job does not mean that the cache shows the latest.
    owner = owner_of(await there.client.get(CRONS, "acj", NAMESPACE))
    await there.create(JOBS, "other", {"template": {"spec": POD}}, ownerReferences=[owner])
    await ends(there, "other")
    await there.settled(60)
    there.manager.refuse = lambda _: False
    await there.settled(60)
    assert len(await there.names(BROADCAST_JOBS)) == 1


@pytest.mark.behaviour("ACJ-16")
@in_world
async def test_a_schedule_that_is_replaced_has_no_runs_of_its_predecessor(there: World) -> None:
    first = await unseen(there, "Allow")
    await there.change(CRONS, "acj", {"spec": {"paused": True}})
    await there.settled(90)
    there.manager.holds_back = lambda request: request.path.endswith("jobs")
    former = await there.client.get(CRONS, "acj", NAMESPACE)
    await there.client.delete(CRONS, "acj", NAMESPACE)
    await there.create(CRONS, "acj", {**former["spec"], "paused": False})
    there.manager.holds_back = lambda request: request.path.endswith("/broadcastjobs")
    await there.settled(1)
    assert creations(there, "BroadcastJob") == first


@pytest.mark.behaviour("ACJ-15", "ACJ-16", "ACJ-27")
@in_world
async def test_a_late_run_is_reported_and_skipped(there: World) -> None:
    await cron(there, startingDeadlineSeconds=10, paused=True)
    began = there.clock.now()
    await there.settled(300 - began.timestamp() % 300 + 20)
    await there.change(CRONS, "acj", {"spec": {"paused": False}})
    await there.settled(5)
    assert creations(there) == []
    late = began.timestamp() // 300 * 300 + 300
    text = rfc3339(datetime.fromtimestamp(late, tz=began.tzinfo))
    assert await there.messages("MissSchedule") == [f"Missed scheduled time to start a job: {text}"]
    await made(there, 1)


@pytest.mark.behaviour("ACJ-22", "ACJ-27")
@in_world
async def test_after_many_missed_runs_the_latest_is_started_with_a_warning(there: World) -> None:
    await cron(there, schedule="* * * * *", paused=True)
    await there.settled(102 * 60)
    await there.change(CRONS, "acj", {"spec": {"paused": False}})
    await made(there, 1, seconds=5)
    text = (
        "too many missed start times (> 100); only the latest is started. Set or decrease "
        ".spec.startingDeadlineSeconds or check clock skew"
    )
    assert await there.messages("TooManyMissedTimes") == [text]
    await made(there, 2, seconds=70)
    assert await there.messages("TooManyMissedTimes") == [text]


@pytest.mark.behaviour("ACJ-20")
@in_world
async def test_a_job_that_lost_its_owner_is_no_longer_active(there: World) -> None:
    await cron(there)
    (first,) = await made(there, 1)
    await there.settled(2.0)
    assert [one["name"] for one in (await there.status_of(CRONS, "acj"))["active"]] == [first]
    await there.change(JOBS, first, {"metadata": {"ownerReferences": None}})
    await there.settled(2.0)
    assert "active" not in await there.status_of(CRONS, "acj")
