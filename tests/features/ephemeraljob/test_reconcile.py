"""The EphemeralJob controller on the sandbox's API server."""

from __future__ import annotations

import gc
from typing import Any

import orjson
import pytest

from app.features.ephemeraljob import reconcile
from app.features.ephemeraljob.feature import FEATURE
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.plan import MAX_PODS, Candidate, candidate
from app.features.ephemeraljob.reconcile import MAX_LOOKUPS
from app.kube.objects import Pod
from app.kube.resources import PODS
from tests.features.jobs.world import NAMESPACE, World, worlds
from tests.kube.fakes import json_response, status_body

Json = dict[str, Any]
JOBS = EPHEMERAL_JOB.resource()
CONTAINER = {"name": "debug", "image": "busybox", "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File"}
DONE = {"terminated": {"exitCode": 0, "finishedAt": "2030-01-01T00:00:00Z"}}
in_world = worlds(FEATURE, EPHEMERAL_JOB)


async def pods(there: World, count: int) -> None:
    for number in range(count):
        spec = {"containers": [{"name": "main", "image": "nginx"}]}
        await there.create(PODS, f"p{number}", spec, labels={"app": "x"})
        await there.pod_status(f"p{number}", "Running")


async def job(
    there: World, name: str = "ej", *, containers: Any = (CONTAINER,), annotations: Json | None = None, **spec: Any
) -> None:
    template = {"ephemeralContainers": list(containers)}
    body = {"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec}
    await there.create(JOBS, name, body, annotations=annotations)


async def stored(there: World) -> Json:
    found: Json = await there.client.get(JOBS, "ej", NAMESPACE)
    return found


async def injected(there: World) -> list[str]:
    return sorted(one["metadata"]["name"] for one in await there.pods() if one["spec"].get("ephemeralContainers"))


def lookups(there: World) -> list[str]:
    """Return a list that is filled with the lookups of Pods that never existed."""
    asked: list[str] = []

    def note(request: Any) -> bool:
        if request.method == "GET" and "/pods/gone-" in request.path:
            asked.append(request.path)
        return False

    there.manager.refuse = note
    return asked


async def reports(there: World, name: str, state: Json) -> None:
    status = {"name": "debug", "state": state, "image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
    await there.change(PODS, name, {"status": {"ephemeralContainerStatuses": [status]}}, "status")


async def status(there: World, **wanted: Any) -> Json:
    async def look() -> Json | None:
        found = await there.status_of(JOBS, "ej")
        return found if all(found.get(key) == value for key, value in wanted.items()) else None

    found: Json = await there.until(look)
    return found


async def begins(there: World, count: int, **spec: Any) -> None:
    """Create Pods and a job that has started with the first one."""
    await pods(there, count)
    await job(there, **spec)
    await there.settled(3.0)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-3", "EJ-4", "EJ-6", "EJ-7", "EJ-8", "EJ-9", "EJ-10", "EJ-11", "EJ-14", "EJ-15")
@in_world
async def test_pods_are_processed_in_turn_and_the_job_expires(there: World) -> None:
    await pods(there, 3)
    await job(there, replicas=5, ttlSecondsAfterFinished=30)
    for number in range(3):
        await there.settled(2.0)
        assert await injected(there) == [f"p{one}" for one in range(number + 1)]
        await reports(there, f"p{number}", {"running": {}})
        await status(there, phase="Running", running=1, succeeded=number, match=3)
        await reports(there, f"p{number}", DONE)
    found = await status(there, phase="Succeeded", succeeded=3, running=0)
    assert [one["type"] for one in found["conditions"]] == ["Initialized", "JobSucceeded"]
    (container,) = (await there.pods())[0]["spec"]["ephemeralContainers"]
    held = await stored(there)
    assert container["env"] == [{"name": "KRUISE_EJOB_ID", "value": held["metadata"]["uid"]}]
    assert held["metadata"]["finalizers"] == ["apps.kruise.io/ephemeralcontainers-cleanup"]
    assert held["spec"]["template"]["ephemeralContainers"] == [{**CONTAINER, "resources": {}}]
    await there.settled(35.0)
    assert await there.get(JOBS, "ej") is None
    assert len(await injected(there)) == 3


@pytest.mark.behaviour("EJ-5", "EJ-12", "EJ-16")
@in_world
async def test_a_deadline_ends_the_job_without_further_injections(there: World) -> None:
    await begins(there, 2, activeDeadlineSeconds=10)
    await reports(there, "p0", {"running": {}})
    await there.settled(10.0)
    found = await status(there, phase="Failed")
    assert found["conditions"][-1]["reason"] == "DeadlineExceeded"
    await reports(there, "p0", DONE)
    await there.settled(10.0)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-11", "EJ-12")
@in_world
async def test_a_deadline_keeps_the_condition_that_no_pod_matches(there: World) -> None:
    await job(there, activeDeadlineSeconds=0)
    found = await status(there, phase="Failed", match=0)
    assert [one["type"] for one in found["conditions"]] == ["Initialized", "MatchedEmpty", "JobFailed"]


@pytest.mark.behaviour("EJ-11", "EJ-12")
@in_world
async def test_a_job_that_fails_has_the_condition_of_openkruise(there: World) -> None:
    await begins(there, 1)
    await reports(there, "p0", {"terminated": {"exitCode": 1, "finishedAt": "2030-01-01T00:00:00Z"}})
    found = await status(there, phase="Failed", failed=1)
    (_, failed) = found["conditions"]
    text = "EphemeralJob work/ej failed to create ephemeral container"
    assert (failed["type"], failed["reason"], failed["message"]) == ("JobFailed", "CreateFailed", text)


@pytest.mark.behaviour("EJ-12", "EJ-5")
@in_world
async def test_a_paused_job_has_no_deadline(there: World) -> None:
    await pods(there, 1)
    await job(there, activeDeadlineSeconds=10, paused=True)
    await there.settled(30.0)
    assert "completionTime" not in await status(there, phase="Paused", match=1)
    writes = len(there.writes)
    await there.settled(60.0)
    assert len(there.writes) == writes
    await there.change(JOBS, "ej", {"spec": {"paused": False}})
    found = await status(there, phase="Failed")
    assert found["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert await injected(there) == []


@pytest.mark.behaviour("EJ-12", "EJ-11", "EJ-2")
@in_world
async def test_a_paused_job_waits_and_one_without_containers_is_an_error(there: World) -> None:
    await job(there, paused=True)
    await status(there, phase="Paused", match=0)
    await pods(there, 1)
    await status(there, phase="Paused", match=1)
    await there.settled(5.0)
    assert await injected(there) == []
    await there.change(JOBS, "ej", {"spec": {"paused": False}})
    await there.settled(3.0)
    assert await injected(there) == ["p0"]
    await job(there, "none", containers=())
    await there.settled(3.0)
    assert (await there.status_of(JOBS, "none"))["phase"] == "Error"


@in_world
async def test_an_api_server_without_ephemeral_containers_is_named_as_the_reason(there: World) -> None:
    """Kubernetes before 1.23 answers 404 to the unknown subresource, which does not mean the Pod is gone."""
    await pods(there, 1)
    answered = there.manager.request

    async def request(one: Any) -> Any:
        if one.path.endswith("/ephemeralcontainers"):
            unknown = "the server could not find the requested resource"
            return json_response(404, status_body(404, "NotFound", unknown, details={}))
        return await answered(one)

    there.manager.request = request  # type: ignore[method-assign]
    await job(there)
    await there.settled(3.0)
    assert "CreateFailed" in await there.reasons()
    there.manager.request = answered  # type: ignore[method-assign]
    await there.settled(60.0)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-3", "EJ-17")
@in_world
async def test_deleting_the_job_removes_no_containers_and_finished_pods_keep_their_slot(there: World) -> None:
    await begins(there, 3, replicas=1)
    await reports(there, "p0", {"running": {}})
    await there.pod_status("p0", "Failed")
    await there.settled(3.0)
    assert await injected(there) == ["p0"]
    await there.client.delete(JOBS, "ej", NAMESPACE)
    await there.settled(3.0)
    assert await there.get(JOBS, "ej") is None
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_an_unmatched_pod_keeps_its_slot(there: World) -> None:
    await begins(there, 2, replicas=1)
    await there.change(PODS, "p0", {"metadata": {"labels": {"app": "y"}}})
    await reports(there, "p0", {"running": {}})
    await status(there, phase="Running", match=1)
    await reports(there, "p0", DONE)
    await status(there, phase="Succeeded", succeeded=1)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-10", "EJ-14")
@pytest.mark.parametrize("reported", [None, {"running": {}}, {"waiting": {"reason": "ContainerCreating"}}])
@in_world
async def test_a_pod_that_ends_before_its_container_counts_as_failed_and_blocks_no_other(
    there: World, reported: Json | None
) -> None:
    await begins(there, 2)
    if reported is not None:
        await reports(there, "p0", reported)
    await there.pod_status("p0", "Failed")
    await there.settled(3.0)
    assert await injected(there) == ["p0", "p1"]
    await reports(there, "p1", DONE)
    await status(there, phase="Failed", failed=1, succeeded=1)


@pytest.mark.behaviour("EJ-17")
@pytest.mark.parametrize(("end", "phase", "counts"), [({"running": {}}, "Failed", (0, 1)), (DONE, "Succeeded", (1, 0))])
@in_world
async def test_a_vanished_pod_keeps_its_slot(there: World, end: Json, phase: str, counts: tuple[int, int]) -> None:
    """``replicas`` limits how many Pods ever get a container."""
    await begins(there, 3, replicas=2)
    await reports(there, "p0", end)
    await there.settled(3.0)
    assert await injected(there) == (["p0", "p1"] if end is DONE else ["p0"])
    await there.client.delete(PODS, "p0", NAMESPACE)
    await there.settled(3.0)
    assert await injected(there) == ["p1"]
    await reports(there, "p1", DONE)
    succeeded, failed = counts
    await status(there, phase=phase, match=2, succeeded=succeeded + 1, failed=failed)
    assert await injected(there) == ["p1"]


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_a_pod_that_vanishes_before_its_turn_is_replaced_by_another(there: World) -> None:
    await begins(there, 3, replicas=2)
    await there.client.delete(PODS, "p1", NAMESPACE)
    await reports(there, "p0", DONE)
    await there.settled(3.0)
    assert await injected(there) == ["p0", "p2"]


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_a_recorded_pod_gets_its_container_even_if_it_no_longer_matches(there: World) -> None:
    await pods(there, 2)
    there.manager.refuse = lambda request: request.path.endswith("/ephemeralcontainers")
    await job(there, replicas=1)
    await there.settled(3.0)
    await there.change(PODS, "p0", {"metadata": {"labels": {"app": "y"}}})
    await there.settled(1.0)
    there.manager.refuse = lambda _: False
    await there.settled(60.0)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-17")
@pytest.mark.parametrize("text", ["{", "[]", '{"u": 1}', '{"u": {"pod": null}}', "null", "[" * 10_000, "x" * 200_000])
@in_world
async def test_an_unreadable_record_is_ignored(there: World, text: str) -> None:
    await begins(there, 1, replicas=1, annotations={"apps.kruise.io/ephemeraljob-begun": text})
    await reports(there, "p0", DONE)
    await status(there, phase="Succeeded", succeeded=1)


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_unknown_pods_in_a_record_are_looked_up_once_and_fail_the_job(there: World) -> None:
    """A user wrote the record by hand with Pods that do not exist, more than one reconcile looks up."""
    await pods(there, 1)
    count = MAX_LOOKUPS + 1
    record = orjson.dumps({f"u{number}": {"pod": f"gone-{number}"} for number in range(count)}).decode()
    asked = lookups(there)
    await job(there, replicas=count, annotations={"apps.kruise.io/ephemeraljob-begun": record})
    await status(there, phase="Failed", failed=count)
    assert len(asked) == len(set(asked)) == count


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_rewritten_records_neither_accumulate_nor_occupy_a_worker(there: World) -> None:
    """A user replaces the record again and again, with Pods that never existed."""
    await begins(there, 1, replicas=100_000)
    await reports(there, "p0", {"running": {}})
    asked = lookups(there)
    for round_ in range(5):
        record = {f"forged-{round_}-{number}": {"pod": f"gone-{number}"} for number in range(1_000)}
        annotations = {"apps.kruise.io/ephemeraljob-begun": orjson.dumps(record).decode()}
        asked.clear()
        await there.change(JOBS, "ej", {"metadata": {"annotations": annotations}})
        await there.settled(0.5)
        assert 0 < len(asked) <= 3 * MAX_LOOKUPS  # in the few reconciles that the write starts
        await there.settled(30.0)
    gc.collect()
    uids = (uid for one in gc.get_objects() if isinstance(one, dict) for uid in one if isinstance(uid, str))
    forged = {uid for uid in uids if uid.startswith("forged-")}
    assert len(forged) <= 2 * MAX_PODS
    found = await there.status_of(JOBS, "ej")
    assert found["running"] == 1
    assert found["phase"] == "Running"


@pytest.mark.behaviour("EJ-17")
@pytest.mark.parametrize("seen", [True, False], ids=["while it was paused", "at once"])
@in_world
async def test_pods_with_containers_from_before_takeover_keep_their_slot(there: World, seen: bool) -> None:
    """OpenKruise writes no record, only marks in Pods. Nothing is written about them."""
    await pods(there, 3)
    there.manager.refuse = lambda _: True
    await job(there, replicas=2, parallelism=1, paused=seen)
    mark = {"name": "KRUISE_EJOB_ID", "value": (await stored(there))["metadata"]["uid"]}
    patch = {"spec": {"ephemeralContainers": [{**CONTAINER, "env": [mark]}]}}
    await there.change(PODS, "p1", patch, "ephemeralcontainers")
    await reports(there, "p1", {"running": {}})
    there.manager.refuse = lambda _: False
    await status(there, phase="Paused" if seen else "Running", match=2, running=1)
    await there.settled(3.0)
    assert "annotations" not in (await stored(there))["metadata"]
    await there.client.delete(PODS, "p1", NAMESPACE)
    await there.settled(3.0)
    record = (await stored(there))["metadata"]["annotations"]["apps.kruise.io/ephemeraljob-begun"]
    assert '"pod":"p1"' in record
    await there.change(JOBS, "ej", {"spec": {"paused": False}})
    await there.settled(3.0)
    assert await injected(there) == ["p0"]
    await reports(there, "p0", DONE)
    await status(there, phase="Failed", match=2, succeeded=1, failed=1)


@pytest.mark.behaviour("EJ-13")
@pytest.mark.parametrize("replicas", [None, 40])
def test_a_burst_of_pod_reports_costs_few_reconciles(replicas: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 Pods report twice, 10 ms apart, for 0.8 s."""
    evaluated: list[str] = []

    def counting(pod: Pod, *rest: Any) -> Candidate:
        evaluated.append(pod.metadata.name)
        return candidate(pod, *rest)

    monkeypatch.setattr(reconcile, "candidate", counting)

    async def scenario(there: World) -> None:
        await pods(there, 40)
        await job(there, parallelism=40, **({"replicas": replicas} if replicas else {}))
        await status(there, match=40)
        await there.settled(3.0)
        before = len(there.writes)
        for number in range(40):
            await reports(there, f"p{number}", {"running": {}})
            await reports(there, f"p{number}", DONE)
            await there.clock.sleep(0.02)
        await status(there, phase="Succeeded", succeeded=40)
        writes = [kind for _, kind, _ in there.writes[before:] if kind == JOBS.kind]
        assert len(writes) < 40
        assert len(evaluated) < 40 * 5

    in_world(scenario)()


@pytest.mark.behaviour("EJ-4", "EJ-6")
@in_world
async def test_a_job_keeps_state_of_its_own_pods_only_until_it_ends(there: World) -> None:
    """A namespace may have many other Pods and many jobs."""
    await pods(there, 2)
    await there.create(PODS, "other", {"containers": [{"name": "main", "image": "nginx"}]}, labels={"app": "other"})
    await job(there, parallelism=2)
    await status(there, match=2)
    await there.settled(3.0)
    names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in await there.pods()}

    def remembered() -> set[str]:
        gc.collect()
        found = [one.pod.metadata.uid for one in gc.get_objects() if isinstance(one, Candidate)]
        return {names[uid] for uid in found if uid in names}

    assert remembered() == {"p0", "p1"}
    await reports(there, "p0", DONE)
    await reports(there, "p1", DONE)
    await status(there, phase="Succeeded")
    await there.settled(3.0)
    assert remembered() == set()


@pytest.mark.behaviour("EJ-17")
@in_world
async def test_a_job_that_is_paused_before_its_record_is_stored_adds_nothing(there: World) -> None:
    await begins(there, 3, replicas=2)
    there.manager.holds_back = lambda request: request.path.endswith("/ephemeraljobs")
    await reports(there, "p0", {"waiting": {"reason": "Error"}})
    await status(there, waiting=1)  # the cache is behind this write
    await there.change(JOBS, "ej", {"spec": {"paused": True}})
    await reports(there, "p0", DONE)
    await there.settled(3.0)
    there.manager.holds_back = lambda _: False
    await status(there, phase="Paused", succeeded=1)
    assert await injected(there) == ["p0"]


@pytest.mark.behaviour("EJ-13")
@in_world
async def test_two_jobs_change_a_pod_in_turn(there: World) -> None:
    """The cache does not show the change of one job when the other wants to make its own."""
    await pods(there, 1)
    await there.settled(1.0)
    there.manager.holds_back = lambda request: request.path.endswith("/pods")
    await job(there)
    await job(there, "other", containers=[{**CONTAINER, "name": "again"}])
    await there.settled(3.0)
    assert sum(request.path.endswith("/ephemeralcontainers") for request in there.manager.requests) == 1
    there.manager.holds_back = lambda _: False
    await there.settled(3.0)
    (pod,) = await there.pods()
    assert {one["name"] for one in pod["spec"]["ephemeralContainers"]} == {"debug", "again"}
