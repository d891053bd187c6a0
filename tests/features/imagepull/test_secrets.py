"""Copies of pull secrets: reads of the source, events, and deletion with the job."""

from __future__ import annotations

import pytest

from app.features.imagepull.secrets import WATCHED_COPIES, PullSecrets
from app.kube.resources import NAMESPACES, SECRETS, ObjectKey
from app.kube.store import Store
from tests.features.imagepull.world import AGENTS, JOBS, World, in_world, world
from tests.kube.fakes import virtual


@pytest.mark.behaviour("IMG-64")
@in_world
async def test_jobs_that_share_a_secret_share_its_reads_without_conflicts(there: World) -> None:
    await there.endless_pulls("regcred")
    for number in range(20):
        await there.job(f"warm-{number}", f"nginx:{number}", pullSecrets=["regcred"])

    async def sharing() -> list[int]:
        return [len(jobs.split(",")) for jobs in (await there.users()).values()]

    await there.becomes(sharing, [20])
    there.guarded.asked.clear()
    await there.settled(3_600)
    assert 20 < len(there.guarded.asked) < 120
    await there.client.patch(SECRETS, "regcred", {"data": {".dockerconfigjson": "e30K"}}, "default")
    await there.becomes(there.copied, [{".dockerconfigjson": "e30K"}], 301)
    assert not await there.events("FailedSyncPullSecrets")


@pytest.mark.behaviour("IMG-64")
@in_world
async def test_a_missing_secret_is_reported_once_while_the_event_lasts(there: World) -> None:
    await there.endless_pulls()
    await there.job(pullSecrets=["missing"])
    await there.counts(active=1)

    async def told() -> list[int]:
        return [one["count"] for one in await there.events("PullSecretNotFound")]

    await there.until(told)
    await there.settled(1_800)
    assert await told() == [1]
    await there.settled(3_600)
    assert await told() == [2]


@pytest.mark.behaviour("IMG-64")
@in_world
async def test_a_copy_takes_the_type_of_a_recreated_source(there: World) -> None:
    await there.endless_pulls("regcred")
    await there.job("one", "nginx:1", pullSecrets=["regcred"])
    await there.job("two", "nginx:2", pullSecrets=["regcred"])
    await there.until(lambda: there.tag("n1", tag="2"))
    await there.client.delete(SECRETS, "regcred", "default")
    body = {"metadata": {"name": "regcred"}, "type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}
    await there.client.create(SECRETS, body, "default")

    async def types() -> list[str]:
        return [one["type"] for one in await there.copies()]

    await there.becomes(types, ["kubernetes.io/dockercfg"])
    assert await there.copied() == [{".dockercfg": "e30="}]
    assert list((await there.users()).values()) == ["default/one,default/two"]


@pytest.mark.behaviour("IMG-65")
@in_world
async def test_a_copy_is_deleted_when_its_job_is_removed_by_force(there: World) -> None:
    await there.endless_pulls("regcred")
    await there.job(pullSecrets=["regcred"])
    await there.until(lambda: there.copies())
    await there.client.patch(JOBS, "warm", {"metadata": {"finalizers": None}}, "default")
    await there.client.delete(JOBS, "warm", "default")
    await there.becomes(there.copies, [], 60)


@pytest.mark.behaviour("IMG-65")
def test_copies_of_jobs_deleted_while_no_manager_ran_are_deleted_at_its_start() -> None:
    async def left(there: World) -> None:
        for name, jobs in (("a-1", "default/gone"), ("b-1", "default/gone,default/warm"), ("c-1", "no job, /,..")):
            annotations = {
                "imagepulljobs.kruise.io/source-key": f"default/{name[0]}",
                "imagepulljobs.kruise.io/references": jobs,
            }
            await there.client.create(SECRETS, {"metadata": {"name": name, "annotations": annotations}}, AGENTS)
        await there.job(pullSecrets=["b"])
        await there.secret("b")
        await there.node("n1")

    async def scenario(there: World) -> None:
        there.pull = lambda node, image: None
        await there.becomes(there.users, {"b-1": "default/warm", "c-1": "no job, /,.."})

    in_world(before=left)(scenario)()


@virtual
async def test_unreferenced_sources_are_forgotten() -> None:
    async with world() as there:
        secrets = PullSecrets(there.client, Store(WATCHED_COPIES.indexes), AGENTS)
        job = ObjectKey("default", "warm")
        for number in range(10):
            await secrets.claim(job, [f"s{number}", "other"], 0.0)
        (known,) = secrets._known.values()
        assert {source.name for source in known.verified} == {"s9", "other"}
        secrets.forget(job)
        assert not secrets._known


@pytest.mark.behaviour("IMG-64", "IMG-102")
@in_world
async def test_a_job_reports_a_missing_agent_namespace_and_can_be_deleted(there: World) -> None:
    await there.endless_pulls("regcred")
    await there.client.delete(NAMESPACES, AGENTS)
    await there.job(pullSecrets=["regcred"])
    await there.job("deleted", pullSecrets=["regcred"])

    async def named() -> bool:
        return f"kubectl create namespace {AGENTS}" in str((await there.status()).get("message"))

    await there.until(named)
    assert await there.events("FailedSyncPullSecrets")
    await there.client.delete(JOBS, "deleted", "default")
    await there.becomes(lambda: there.get(JOBS, "deleted"), None, 20)
    await there.client.create(NAMESPACES, {"metadata": {"name": AGENTS}})
    await there.counts(active=1)
    assert not await named()
