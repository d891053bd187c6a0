"""The AdvancedCronJob controller on the sandbox's API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from random import Random
from typing import Any

import pytest

from app.api.crd import manifest
from app.features.advancedcronjob.feature import FEATURE
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.reconcile import BY_CRON, AdvancedCronJobReconciler, Caches, cron_keys
from app.features.advancedcronjob.types import AdvancedCronJob
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.types import BroadcastJob
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, JOBS, NAMESPACES, ObjectKey, Resource
from app.kube.store import Change, Store
from app.sandbox.apiserver.server import ApiServer
from tests.features.jobs.world import World, worlds
from tests.kit.transports import Connection
from tests.kit.virtualtime import VirtualClock, run

Json = dict[str, Any]
CRONS = ADVANCED_CRON_JOB.resource()
BROADCAST_JOBS = BROADCAST_JOB.resource()
IMAGE_JOBS = IMAGE_LIST_PULL_JOB.resource()
POD: Json = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
JOB: Json = {
    "jobTemplate": {
        "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
        "spec": {"template": {"spec": POD}},
    }
}
BROADCAST: Json = {"broadcastJobTemplate": {"metadata": {"labels": {"team": "x"}}, "spec": {"template": {"spec": POD}}}}
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
    for type_ in ("Complete", "Failed", "Complete", "Failed"):
        count = len(creations(there))

        async def another(before: int = count) -> bool:
            return len(creations(there)) > before

        await there.until(another, 70)
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

    async def look() -> bool:
        names = await there.names(JOBS)
        return len(names) == 1 and names[0] not in former

    await there.until(look, 70)


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
    seen = 0
    while there.clock.now().timestamp() < begin.timestamp() + 120 * 60:
        await there.settled(10.0)
        found = creations(there, "BroadcastJob")
        if len(found) > seen:
            seen = len(found)
            await ends(there, found[-1], kind=BROADCAST_JOBS)
    assert 119 <= seen <= 120
    assert len(set(creations(there, "BroadcastJob"))) == seen
    times = [int(name.removeprefix("acj-")) for name in creations(there, "BroadcastJob")]
    assert times == list(range(times[0], times[0] + 60 * seen, 60))


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


Reconcile = Callable[[], Awaitable[Any]]


async def blind(policy: str, scenario: Callable[[Client, Connection, Reconcile], Awaitable[None]]) -> None:
    """Run a scenario with a controller whose caches never show a job."""
    clock = VirtualClock()
    api = ApiServer(clock=clock, rng=Random(1))
    client, manager = Client(api.transport(), clock), Connection(api.transport())
    for kind in (ADVANCED_CRON_JOB, BROADCAST_JOB):
        await client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    await clock.sleep(5.0)
    await client.create(NAMESPACES, {"metadata": {"name": "work"}})
    head = {"apiVersion": CRONS.api_version, "kind": CRONS.kind, "metadata": {"name": "acj"}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": policy, "template": BROADCAST}
    crons: Store[AdvancedCronJob] = Store()
    crons.put(AdvancedCronJob.model_validate(await client.create(CRONS, {**head, "spec": spec}, "work")))
    empty: Any = [Store({BY_CRON: cron_keys}) for _ in range(3)]
    ours = Client(manager, clock)
    reconciler = AdvancedCronJobReconciler(ours, Caches(crons, *empty), EventRecorder(ours, "test"))

    async def reconcile() -> Any:
        cron = AdvancedCronJob.model_validate(await client.get(CRONS, "acj", "work"))
        crons.put(cron)
        # An event of another job does not mean that the cache shows the latest.
        owner = {"apiVersion": CRONS.api_version, "kind": CRONS.kind, "name": "acj", "uid": cron.metadata.uid}
        head = {"name": "acj-1", "namespace": "work", "uid": "1", "ownerReferences": [{**owner, "controller": True}]}
        other = BroadcastJob.model_validate({"metadata": head, "spec": {"template": {}}})
        reconciler.keys_for_child(Change(other, None))
        return await reconciler(ObjectKey("work", "acj"))

    await scenario(client, manager, reconcile)
    api.close()


@pytest.mark.behaviour("ACJ-16", "ACJ-18")
def test_an_unseen_finished_job_blocks_nothing() -> None:
    async def scenario(client: Client, _: Connection, reconcile: Reconcile) -> None:
        for number in range(3):
            await client.clock.sleep(60.0)
            await reconcile()
            found = (await client.list(BROADCAST_JOBS, "work")).items
            assert len(found) == 1, number
            await reconcile()
            await client.delete(BROADCAST_JOBS, found[0]["metadata"]["name"], "work")

    run(blind("Forbid", scenario))


@pytest.mark.behaviour("ACJ-16", "ACJ-18")
def test_another_object_with_the_name_of_an_unseen_job_blocks_nothing() -> None:
    """Otherwise the schedule would never run again."""

    async def scenario(client: Client, _: Connection, reconcile: Reconcile) -> None:
        await client.clock.sleep(60.0)
        await reconcile()
        (former,) = (await client.list(BROADCAST_JOBS, "work")).items
        name = former["metadata"]["name"]
        await client.delete(BROADCAST_JOBS, name, "work")
        await client.create(BROADCAST_JOBS, {**former, "metadata": {"name": name}}, "work")
        await client.clock.sleep(60.0)
        await reconcile()
        assert len((await client.list(BROADCAST_JOBS, "work")).items) == 2

    run(blind("Forbid", scenario))


@pytest.mark.behaviour("ACJ-16", "ACJ-26")
@pytest.mark.parametrize("tries", [1, 2], ids=["not tried again before the next run", "tried again"])
@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_a_job_whose_creation_got_no_answer_does_not_run_beside_the_next(policy: str, tries: int) -> None:
    async def scenario(client: Client, manager: Connection, reconcile: Reconcile) -> None:
        await client.clock.sleep(60.0)
        manager.lose = lambda request: request.method == "POST"
        with pytest.raises(KubeError):
            await reconcile()
        manager.lose = lambda _: False
        if tries > 1:
            await reconcile()
        await client.clock.sleep(60.0)
        await reconcile()
        assert len((await client.list(BROADCAST_JOBS, "work")).items) == 1

    run(blind(policy, scenario))


@pytest.mark.behaviour("ACJ-16")
def test_a_schedule_that_is_replaced_has_no_runs_of_its_predecessor() -> None:
    async def scenario(client: Client, _: Connection, reconcile: Reconcile) -> None:
        await client.clock.sleep(60.0)
        await reconcile()
        await client.clock.sleep(90.0)
        former = await client.get(CRONS, "acj", "work")
        await client.delete(CRONS, "acj", "work")
        metadata = {"name": "acj"}
        await client.create(CRONS, {**former, "metadata": metadata, "status": {}}, "work")
        await reconcile()
        assert len((await client.list(BROADCAST_JOBS, "work")).items) == 1

    run(blind("Allow", scenario))


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

    async def active() -> list[str]:
        return [one["name"] for one in (await there.status_of(CRONS, "acj")).get("active", [])]

    await there.becomes(active, [first])
    await there.change(JOBS, first, {"metadata": {"ownerReferences": None}})
    await there.becomes(active, [])
