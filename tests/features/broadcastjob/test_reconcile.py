"""The BroadcastJob controller on the sandbox's API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.broadcastjob import reconcile
from app.features.broadcastjob.feature import FEATURE
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.plan import name_of
from app.features.broadcastjob.types import BroadcastJob
from app.kube.objects import decode_pod
from app.kube.resources import NODES, PODS
from app.kube.wire import Request, Response
from tests.features.jobs.world import NAMESPACE, World, worlds
from tests.kit.objects import owner_of

Json = dict[str, Any]
JOBS = BROADCAST_JOB.resource()

in_world = worlds(FEATURE, BROADCAST_JOB)


async def node(there: World, name: str, **spec: Any) -> None:
    await there.create(NODES, name, spec)
    await there.settled(0.2)  # the controller may see it without its size
    await there.change(NODES, name, {"status": {"allocatable": {"cpu": "4", "pods": "10"}}}, "status")


async def nodes(there: World, count: int) -> None:
    for number in range(count):
        await node(there, f"n{number:02}")


async def job(there: World, policy: str = "Never", **spec: Any) -> None:
    pod = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": policy}
    await there.create(JOBS, "bj", {"template": {"spec": pod}, **spec})


async def served(there: World) -> list[str]:
    return sorted(decode_pod(json.dumps(pod).encode()).spec.target_node for pod in await there.pods())


async def active(there: World) -> list[str]:
    ended = ("Succeeded", "Failed")
    return sorted(one["metadata"]["name"] for one in await there.pods() if one["status"].get("phase") not in ended)


async def counts(there: World, **wanted: Any) -> None:
    async def look() -> bool:
        status = await there.status_of(JOBS, "bj")
        return all(status.get(name) == value for name, value in wanted.items())

    await there.until(look)


async def started(there: World, count: int, policy: str = "Never", **spec: Any) -> list[str]:
    """Create nodes and a job that runs on each, and return the names of its Pods."""
    await nodes(there, count)
    await job(there, policy, **spec)
    await counts(there, active=count)
    return await active(there)


async def complete(there: World) -> None:
    for name in await active(there):
        await there.pod_status(name, "Succeeded")


async def paused_job(there: World, count: int) -> BroadcastJob:
    await nodes(there, count)
    await job(there, paused=True)
    await counts(there, phase="paused")
    return BroadcastJob.model_validate(await there.get(JOBS, "bj"))


async def resume(there: World) -> None:
    await there.change(JOBS, "bj", {"spec": {"paused": False}})


@pytest.mark.behaviour("BJ-1", "BJ-13", "BJ-16", "BJ-18", "BJ-19")
@in_world
async def test_every_node_is_served_once_and_the_job_expires(there: World) -> None:
    await nodes(there, 3)
    await node(there, "cordoned", unschedulable=True)
    await job(there, completionPolicy={"ttlSecondsAfterFinished": 30})
    await counts(there, desired=3, active=3, phase="running")
    assert await served(there) == ["n00", "n01", "n02"]
    await complete(there)
    await counts(there, desired=3, active=0, succeeded=3, phase="completed")
    assert {"JobComplete", "SuccessfulCreate"} <= set(await there.reasons())
    await node(there, "late")
    await there.settled(10.0)
    assert await served(there) == ["n00", "n01", "n02"]
    await there.settled(25.0)
    assert await there.get(JOBS, "bj") is None


@pytest.mark.behaviour("BJ-25")
@in_world
async def test_an_unreadable_parallelism_is_reported(there: World) -> None:
    await nodes(there, 2)
    await job(there, parallelism="x")
    await counts(there, desired=2, active=0, phase="running")
    assert await there.messages("InvalidParallelism") == [
        'spec.parallelism: "x" is neither a number nor a percentage; use 10 or 10%'
    ]
    assert await served(there) == []
    await there.client.delete(NODES, "n01")
    await counts(there, desired=1)


@pytest.mark.behaviour("BJ-12")
@in_world
async def test_parallelism_is_never_exceeded(there: World) -> None:
    await nodes(there, 10)
    await job(there, parallelism=3)
    for done in range(10):
        await counts(there, succeeded=done, active=min(3, 10 - done))
        running = await active(there)
        assert len(running) == min(3, 10 - done)
        await there.pod_status(running[0], "Succeeded")
    await counts(there, phase="completed", succeeded=10)
    assert len(set(await served(there))) == 10


RESTARTED = {"name": "main", "restartCount": 1, "image": "busybox", "imageID": "", "ready": True}


@pytest.mark.behaviour("BJ-19")
@in_world
async def test_a_template_is_validated_once(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This takes long for a large template, and every change of a Pod causes a reconcile."""
    validated: list[str] = []
    truly = reconcile.go_error

    def noted(type_: Any, value: Any, path: str) -> Any:
        validated.append(path)
        return truly(type_, value, path)

    monkeypatch.setattr(reconcile, "go_error", noted)
    for name in await started(there, 2):
        await there.pod_status(name, "Running")
        await there.settled()
    assert validated == ["spec.template"]
    await there.change(JOBS, "bj", {"spec": {"template": {"spec": {"containers": "none"}}}})
    await there.settled()
    assert "InvalidSpec" in await there.reasons()
    assert validated == ["spec.template"] * 2


@pytest.mark.behaviour("BJ-9", "BJ-10", "BJ-11", "BJ-24")
@pytest.mark.parametrize(
    ("fails", "stays"),
    [({"phase": "Failed"}, False), ({"containerStatuses": [RESTARTED]}, True)],
    ids=["Failed", "restarted too often"],
)
@in_world
async def test_the_first_failure_stops_the_rest(there: World, fails: Json, stays: bool) -> None:
    name, *_ = await started(there, 3, "OnFailure")
    await there.pod_status(name, "Running")
    await there.settled(1.0)
    await there.pod_status(name, **fails)
    await counts(there, phase="failed", failed=3, active=0)
    assert await active(there) == ([name] if stays else [])
    status = await there.status_of(JOBS, "bj")
    (condition,) = status["conditions"]
    why = "failure policy is FailurePolicyTypeFailFast and failed pod is found"
    assert (condition["type"], condition["reason"], condition["message"]) == ("Failed", "Failed", why)
    assert status["completionTime"]
    assert await there.messages("failed pod is found") == [f"{why}: 0 pods succeeded, 3 pods failed"]
    assert "SuccessfulDelete" in await there.reasons()


@pytest.mark.behaviour("BJ-24")
@pytest.mark.parametrize("ended", [False, True])
@in_world
async def test_a_pod_stopped_before_a_failed_deletion_counts_once(there: World, ended: bool) -> None:
    failed, stopped, held = await started(there, 3)
    there.manager.refuse = lambda request: request.method == "DELETE" and request.path.endswith(held)
    await there.change(PODS, stopped, {"metadata": {"finalizers": ["example.com/wait"]}})
    await there.pod_status(failed, "Failed")
    await there.settled(1.0)
    await there.pod_status(stopped, "Failed" if ended else "Running")
    await there.change(PODS, stopped, {"metadata": {"finalizers": ["example.com/wait"] if ended else None}})
    await there.settled(1.0)
    there.manager.refuse = lambda _: False
    await counts(there, phase="failed", failed=3, active=0)


@pytest.mark.behaviour("BJ-20", "BJ-26", "U-51")
@in_world
async def test_a_deadline_stops_running_pods(there: World) -> None:
    await started(there, 2, completionPolicy={"activeDeadlineSeconds": 10, "ttlSecondsAfterFinished": 30})
    await there.settled(10.0)
    await counts(there, phase="failed", failed=2, active=0)
    assert await active(there) == []
    assert "DeadlineExceeded" in await there.reasons()
    await there.settled(35.0)
    assert await there.get(JOBS, "bj") is None


@pytest.mark.behaviour("BJ-15")
@in_world
async def test_a_job_that_never_completes_also_runs_on_new_nodes(there: World) -> None:
    await started(there, 1, completionPolicy={"type": "Never"})
    await complete(there)
    await counts(there, succeeded=1, phase="running")
    await node(there, "late")
    await counts(there, desired=2, active=1)
    assert await served(there) == ["late", "n00"]


@pytest.mark.behaviour("BJ-22")
@in_world
async def test_a_failure_pauses_until_the_user_resumes(there: World) -> None:
    await nodes(there, 3)
    await job(there, parallelism=1, failurePolicy={"type": "Pause"})
    await counts(there, active=1)
    await there.pod_status((await active(there))[0], "Failed")
    await counts(there, phase="paused", failed=1)
    await there.settled(20.0)
    found = await there.get(JOBS, "bj")
    assert found is not None
    assert found["spec"]["paused"] is True
    assert len(await there.pods()) == 1
    await resume(there)
    await counts(there, phase="running", failed=1, active=1)
    await there.pod_status((await active(there))[0], "Failed")
    await counts(there, phase="paused", failed=2)
    assert {"Paused", "Continue"} <= set(await there.reasons())


@pytest.mark.behaviour("BJ-22")
@in_world
async def test_a_retried_pod_that_fails_again_pauses_again(there: World) -> None:
    await nodes(there, 1)
    await job(there, failurePolicy={"type": "Pause"})
    for _ in range(3):
        await counts(there, phase="running", active=1, failed=0)
        (name,) = await active(there)
        await there.pod_status(name, "Failed")
        await counts(there, phase="paused", active=0, failed=1)
        await there.client.delete(PODS, name, NAMESPACE)
        await resume(there)
    await counts(there, phase="running", active=1, failed=0)


@pytest.mark.behaviour("BJ-7", "BJ-23")
@in_world
async def test_cordoning_deletes_running_pods_and_keeps_finished_ones(there: World) -> None:
    first, slow, _ = await started(there, 3, completionPolicy={"type": "Never"})
    await there.pod_status(first, "Succeeded")
    await there.change(PODS, slow, {"metadata": {"finalizers": ["example.com/wait"]}})
    for name in ("n00", "n01", "n02"):
        await there.change(NODES, name, {"spec": {"unschedulable": True}})
    await there.becomes(lambda: there.names(PODS), [first, slow])
    for name in ("n00", "n01", "n02"):
        await there.change(NODES, name, {"spec": {"unschedulable": False}})
    await counts(there, active=1, succeeded=1, desired=3)
    await there.change(PODS, slow, {"metadata": {"finalizers": None}})
    await counts(there, active=2, succeeded=1, desired=3)


@pytest.mark.behaviour("BJ-4", "BJ-7")
@in_world
async def test_a_running_pod_is_evaluated_by_its_own_spec(there: World) -> None:
    before = await started(there, 3)
    await there.change(JOBS, "bj", {"spec": {"template": {"spec": {"nodeSelector": {"no": "node"}}}}})
    await there.settled(5.0)
    assert await active(there) == before
    assert (await there.status_of(JOBS, "bj"))["desired"] == 3
    await node(there, "late")
    await there.change(NODES, "n01", {"spec": {"unschedulable": True}})
    await counts(there, desired=2, active=2)
    assert await served(there) == ["n00", "n02"]
    await complete(there)
    await counts(there, phase="completed", succeeded=2)


@pytest.mark.behaviour("BJ-19")
@in_world
async def test_a_heartbeat_costs_nothing(there: World) -> None:
    await started(there, 2)
    await there.settled(3.0)
    there.writes.clear()
    beat = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await there.change(NODES, "n00", beat, "status")
    await there.settled(5.0)
    assert [kind for _, kind, _ in there.writes if kind != "Node"] == []


async def by_hand(there: World, name: str, where: str) -> None:
    """Create a Pod that the job controls but did not create."""
    owner = owner_of(await there.client.get(JOBS, "bj", NAMESPACE))
    spec = {"containers": [{"name": "main", "image": "busybox"}], "nodeName": where}
    await there.create(PODS, name, spec, ownerReferences=[owner])


@pytest.mark.behaviour("BJ-7")
@in_world
async def test_two_pods_on_one_node_are_reported_once(there: World) -> None:
    await started(there, 1)
    await by_hand(there, "other", "n00")
    await counts(there, active=2)
    await there.settled(30.0)
    (text,) = await there.messages("DuplicatePodCreatedOnSameNode")
    assert text in [f"Duplicated pod {name} found on same node n00" for name in await active(there)]


@pytest.mark.behaviour("BJ-13", "BJ-18")
@in_world
async def test_a_foreign_pod_with_the_same_name_is_reported(there: World) -> None:
    name = name_of(await paused_job(there, 1), "n00")
    await there.create(PODS, name, {"containers": [{"name": "main", "image": "busybox"}]})
    there.manager.refuse = lambda request: (request.method, request.path.rpartition("/")[2]) == ("GET", name)
    await resume(there)
    await there.settled(5.0)
    assert set(await there.messages("FailedCreate")) == {f'Error creating: pods "{name}" already exists'}
    there.manager.refuse = lambda _: False
    await there.client.delete(PODS, name, NAMESPACE)
    await counts(there, active=1)
    assert await there.messages("SuccessfulCreate") == [f"Created pod: {name}"]


@pytest.mark.behaviour("BJ-13", "BJ-19")
@in_world
async def test_a_pod_that_appears_before_it_is_created_delays_nothing(there: World) -> None:
    """The cache shows it while the Pod of another node is being created."""
    found, forward = await paused_job(there, 2), there.manager.forward

    async def meanwhile(request: Request) -> Response:
        if (request.method, request.path.rpartition("/")[2]) == ("POST", "pods"):
            there.manager.forward = forward
            await by_hand(there, name_of(found, "n01"), "n01")
            await there.settled(1.0)
        return await forward(request)

    there.manager.forward = meanwhile
    await resume(there)
    await counts(there, active=2)
    await node(there, "late")
    await counts(there, active=3)
