"""In-place updates as users observe them, on virtual time (U-24, U-95, U-96)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.api import names
from app.features.cloneset import reconcile
from app.kube.resources import PODS
from app.pods.node_agents import REPORT_SECONDS
from app.sandbox.kubelet.program import BEHAVIOUR, Pace
from tests.features.cloneset.test_reconcile import is_ready
from tests.features.cloneset.world import NAMESPACE, SmallCluster, in_cluster, rolling, template

STATE = "apps.kruise.io/inplace-update-state"
GRACE = "apps.kruise.io/inplace-update-grace"


def seen(pod: dict[str, Any]) -> tuple[str, bool, str, str]:
    """Return the phase of its update, whether it is ready, its image and its revision."""
    metadata = pod["metadata"]
    phase = orjson.loads(metadata["annotations"].get(STATE, "{}")).get("state", "")
    return phase, is_ready(pod), pod["spec"]["containers"][0]["image"], metadata["labels"]["controller-revision-hash"]


def identity(pod: dict[str, Any]) -> tuple[str, str, str, str]:
    return pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["podIP"], pod["spec"]["nodeName"]


@in_cluster(pace=Pace(restart=2.0))
@pytest.mark.behaviour("PM-42", "PM-174", "PM-189", "CS-162")
async def test_a_pod_leaves_service_for_the_grace_period_and_returns(
    cluster: SmallCluster, caplog: pytest.LogCaptureFixture
) -> None:
    # [U-24, U-95]
    caplog.set_level("INFO")
    before = await cluster.deploy(
        replicas=1, updateStrategy=rolling(inPlaceUpdateStrategy={"gracePeriodSeconds": 10}), minReadySeconds=1
    )
    (pod,) = await cluster.pods()
    kept, start = identity(pod), cluster.clock.monotonic()
    await cluster.patch({"spec": {"template": template(image="nginx:2")}})
    walk: list[tuple[tuple[str, bool, str, str], float]] = []

    async def done() -> bool:
        (pod,) = await cluster.pods()
        if not walk or walk[-1][0] != seen(pod):
            walk.append((seen(pod), cluster.clock.monotonic() - start))
        assert (GRACE in pod["metadata"]["annotations"]) is (walk[-1][0][0] == "Preparing")
        return walk[-1][0][0] == "Updated" and is_ready(pod)

    await cluster.until(done, "it is updated")
    status = await cluster.settled(updatedAvailableReplicas=1)
    new, old = status["updateRevision"], before["currentRevision"]
    # Between its two writes a Pod is out of service at its old revision.
    steps = [
        (step, round(at)) for step, at in walk if step not in (("", True, "nginx:1", old), ("", False, "nginx:1", old))
    ]
    assert steps[:2] == [(("Preparing", False, "nginx:1", new), 0), (("Updating", False, "nginx:2", new), 10)]
    assert steps[-1] == (("Updated", True, "nginx:2", new), 12)
    (pod,) = await cluster.pods()
    assert identity(pod) == kept
    assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [1]
    assert len(await cluster.events("SuccessfulUpdatePodInPlace")) == 1
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("inplace: ")]
    pod_name = f"Pod default/{kept[0]}"
    assert logged == [
        f"inplace: {pod_name} updating to {new} after a grace period of 10 s",
        f"inplace: {pod_name} updated in 12 s",
    ]


@in_cluster(pace=Pace(restart=2.0))
@pytest.mark.behaviour("CS-122")
async def test_an_update_in_progress_completes_although_planning_fails(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("planning fails")

    async def phases() -> list[str]:
        return [seen(pod)[0] for pod in await cluster.pods()]

    await cluster.deploy(replicas=1, updateStrategy=rolling())
    await cluster.patch({"spec": {"template": template(image="nginx:2")}})
    await cluster.becomes(phases, ["Updating"])
    monkeypatch.setattr(reconcile, "planned_update", fail)
    await cluster.becomes(phases, ["Updated"])


@in_cluster(pace=Pace(restart=1.0))
@pytest.mark.behaviour("PM-54", "PM-56", "CS-76")
async def test_an_in_place_rollback_heals_crashing_pods(cluster: SmallCluster) -> None:
    # [U-96]
    first = await cluster.deploy(replicas=3, updateStrategy=rolling(maxUnavailable=2), minReadySeconds=5)
    kept = {identity(pod) for pod in await cluster.pods()}
    bad = template(image="nginx:bad")
    bad["metadata"]["annotations"] = {BEHAVIOUR: '{"main": {"exitAfter": 0.1, "exitCode": 1}}'}
    await cluster.patch({"spec": {"template": bad}})

    def crashes(pod: dict[str, Any]) -> bool:
        (container,) = pod["status"].get("containerStatuses") or [{}]
        return (container.get("state", {}).get("waiting") or {}).get("reason") == "CrashLoopBackOff"

    await cluster.until_pods(lambda pods: sum(map(crashes, pods)) == 2, "two Pods crash")
    await cluster.clock.sleep(30)
    # No third Pod is updated while two are unavailable.
    assert (await cluster.status())["updatedReplicas"] == 2
    await cluster.patch(
        {"spec": {"template": {**template(), "metadata": {**template()["metadata"], "annotations": None}}}}
    )
    last = await cluster.settled(updatedAvailableReplicas=3, seconds=600)
    assert last["updateRevision"] == last["currentRevision"] == first["updateRevision"]
    assert {identity(pod) for pod in await cluster.pods()} == kept
    assert sorted(one["revision"] for one in await cluster.revisions()) == [2, 3]


@in_cluster(pace=Pace(start=2.0, restart=2.0, stop=1.0))
@pytest.mark.behaviour("CS-132", "CS-162", "PM-54")
async def test_an_update_in_place_is_several_times_faster_than_replacement(cluster: SmallCluster) -> None:
    """A slow-starting sidecar keeps running during an in-place update. [U-98]"""
    pods_of = template(containers=[{"name": "main", "image": "nginx:1"}, {"name": "proxy", "image": "envoy:1"}])
    pods_of["metadata"]["annotations"] = {BEHAVIOUR: '{"proxy": {"startSeconds": 10}}'}
    await cluster.deploy(replicas=100, template=pods_of, updateStrategy=rolling(maxUnavailable="10%"))
    first = {identity(pod) for pod in await cluster.pods()}

    async def updated_to(image: str, policy: str) -> float:
        """Virtual seconds from the change to the last Pod that is available again."""
        began = cluster.clock.monotonic()
        containers = [{"name": "main", "image": image}, {"name": "proxy", "image": "envoy:1"}]
        spec = {
            "template": {"spec": {"containers": containers}},
            "updateStrategy": rolling(policy, maxUnavailable="10%"),
        }
        await cluster.patch({"spec": spec})
        await cluster.settled(replicas=100, updatedAvailableReplicas=100, seconds=1000)
        assert {pod["spec"]["containers"][0]["image"] for pod in await cluster.pods()} == {image}
        return cluster.clock.monotonic() - began

    in_place = await updated_to("nginx:2", "InPlaceIfPossible")
    kept = await cluster.pods()
    assert {identity(pod) for pod in kept} == first
    restarts = {one["name"]: one["restartCount"] for pod in kept for one in pod["status"]["containerStatuses"]}
    assert restarts == {"main": 1, "proxy": 0}
    recreated = await updated_to("nginx:3", "ReCreate")
    assert not {uid for _, uid, *_ in first} & {pod["metadata"]["uid"] for pod in await cluster.pods()}
    assert in_place * 3 < recreated


# ---- env from metadata


def versioned(version: str) -> dict[str, Any]:
    """A template whose container reads a label of its Pod."""
    source = {"fieldRef": {"fieldPath": "metadata.labels['version']"}}
    container = {"name": "main", "image": "nginx:1", "env": [{"name": "VERSION", "valueFrom": source}]}
    return {"metadata": {"labels": {"app": "web", "version": version}}, "spec": {"containers": [container]}}


@in_cluster
@pytest.mark.behaviour("CS-132", "PM-48")
@pytest.mark.parametrize(("policy", "replaced"), [("InPlaceIfPossible", True), ("InPlaceOnly", False)])
async def test_a_pod_without_an_agent_is_replaced_where_that_is_allowed(
    cluster: SmallCluster, policy: str, replaced: bool
) -> None:
    """Updated in place, such a Pod would stay out of service forever."""
    await cluster.deploy(replicas=1, template=versioned("1"), updateStrategy=rolling(policy))
    before = await cluster.uids()
    await cluster.patch({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
    await cluster.settled(updatedReplicas=1, updatedReadyReplicas=int(replaced))
    assert (await cluster.uids() != before) is replaced


class Everywhere:
    def runs_on(self, node: str) -> bool:
        return True


@in_cluster(agents=Everywhere())
@pytest.mark.behaviour("PM-140")
@pytest.mark.parametrize("reports", [True, False])
async def test_the_update_waits_for_the_report_of_the_agent(cluster: SmallCluster, reports: bool) -> None:
    await cluster.deploy(replicas=1, template=versioned("1"), updateStrategy=rolling("InPlaceIfPossible"))
    (before,) = await cluster.pods()
    await cluster.patch({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
    found = await cluster.settled(replicas=1, updatedReplicas=0)
    await cluster.clock.sleep(REPORT_SECONDS / 2)
    found = await cluster.settled(replicas=1, updatedReplicas=0)
    (waiting,) = (one for one in found["conditions"] if one["type"] == "WaitingForNodeAgent")
    assert waiting["status"] == "True"
    assert f"has not reported the containers of {before['metadata']['name']} yet" in waiting["message"]
    if reports:
        report = {"metadata": {"annotations": {names.RUNTIME_CONTAINERS_META: '{"containers": []}'}}}
        await cluster.user.patch(PODS, before["metadata"]["name"], report, NAMESPACE)
    found = await cluster.settled(replicas=1, updatedReplicas=1)
    (after,) = await cluster.pods()
    assert (after["metadata"]["uid"] == before["metadata"]["uid"]) is reports
    assert not [one for one in found.get("conditions") or () if one["type"] == "WaitingForNodeAgent"]
