"""CloneSets on an API server in memory with simulated nodes, on virtual time."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from typing import Any

import pytest

from app.api import names
from app.features.cloneset.plan.settings import Gates
from app.kube.resources import CONTROLLERREVISIONS, NODES, PODS
from app.sandbox.apiserver.steps import Attributes
from app.sandbox.kubelet.program import Pace
from tests.features.cloneset.world import (
    CLONESETS,
    NAMESPACE,
    SmallCluster,
    in_cluster,
    rolling,
    template,
)
from tests.kube.fakes import json_response, status_body


@in_cluster
@pytest.mark.behaviour("CS-194", "CS-148", "CS-60")
async def test_a_settled_set_sends_no_request(cluster: SmallCluster) -> None:
    await cluster.deploy()
    await cluster.clock.sleep(5)
    cluster.sent.requests.clear()
    await cluster.clock.sleep(600)
    assert cluster.sent.requests == []


@in_cluster
@pytest.mark.behaviour("CS-104", "CS-158", "CS-46")
async def test_a_set_scales_in(cluster: SmallCluster) -> None:
    await cluster.deploy(replicas=5)
    await cluster.patch({"spec": {"replicas": 0}})
    await cluster.settled(replicas=0)
    assert await cluster.pods() == []
    assert len(await cluster.events("SuccessfulDelete")) == 5


@pytest.mark.parametrize("relabeled", [False, True])
@in_cluster
@pytest.mark.behaviour("CS-101", "CS-55")
async def test_pods_that_would_be_released_at_once_are_not_created_without_end(
    cluster: SmallCluster, relabeled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate = cluster.api.admission.mutate

    async def relabel(attributes: Attributes) -> None:
        """Change a new Pod's labels, as the patch of a WorkloadSpread may do."""
        await mutate(attributes)
        if (attributes.resource.plural, attributes.subresource, attributes.operation) == ("pods", "", "CREATE"):
            assert attributes.obj is not None
            attributes.obj["metadata"]["labels"]["app"] = "other"

    selector: dict[str, Any] = {"matchLabels": {"app": "web"}}
    if relabeled:
        monkeypatch.setattr(cluster.api.admission, "mutate", relabel)
    else:
        selector["matchExpressions"] = [{"key": names.CLONESET_INSTANCE_ID, "operator": "DoesNotExist"}]
    await cluster.apply(replicas=3, selector=selector)
    await cluster.clock.sleep(30)
    assert len((await cluster.user.list(PODS, NAMESPACE)).items) <= (10 if relabeled else 0)
    message = (await cluster.condition("FailedScale"))["message"]
    assert message == "`selector` does not match the labels of new Pods (3 of 3 Pods were not created)"


class Rollout:
    """Watches the Pods during an update to image nginx:2."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self.most, self.least_ready = 0, 99

    async def until_done(self, replicas: int) -> None:
        await self._cluster.patch({"spec": {"template": template(image="nginx:2")}})

        def done(pods: list[dict[str, Any]]) -> bool:
            ready = sum(map(is_ready, pods))
            self.most, self.least_ready = max(self.most, len(pods)), min(self.least_ready, ready)
            changed = all(pod["spec"]["containers"][0]["image"] == "nginx:2" for pod in pods)
            return changed and len(pods) == ready == replicas

        await self._cluster.until_pods(done, "all Pods are updated")


@in_cluster(pace=Pace(restart=2.0))
@pytest.mark.behaviour("CS-124", "CS-130", "CS-162", "CS-76", "CS-145", "CS-188")
async def test_in_place_updates_respect_max_unavailable(cluster: SmallCluster) -> None:
    await cluster.deploy(replicas=6, updateStrategy=rolling(maxUnavailable=2))
    before, rollout = await cluster.uids(), Rollout(cluster)
    await rollout.until_done(6)
    assert rollout.least_ready == 4
    assert await cluster.uids() == before
    await cluster.settled(updatedAvailableReplicas=6)
    assert len(await cluster.events("SuccessfulUpdatePodInPlace")) == 6


def statuses(pod: dict[str, Any]) -> dict[str, str]:
    """Return the status of each of its conditions."""
    return {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}


def is_ready(pod: dict[str, Any]) -> bool:
    return statuses(pod).get("Ready") == "True"


@in_cluster
@pytest.mark.behaviour("CS-132", "CS-164", "CS-103")
async def test_pods_that_cannot_be_updated_in_place_are_replaced(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling())
    before = await cluster.uids()
    await cluster.patch({"spec": {"template": template(hostname="other")}})
    status = await cluster.settled(updatedAvailableReplicas=3, replicas=3)
    assert not set(before.values()) & set((await cluster.uids()).values())
    assert await cluster.events("InPlaceUpdateNotPossible") == [
        f"pods are replaced for update(revision {status['updateRevision']}), not updated in-place: "
        "add /spec/hostname: cannot be changed in a running Pod"
    ]


@in_cluster
@pytest.mark.behaviour("CS-132", "CS-150")
async def test_in_place_only_reports_the_field_that_prevents_the_update(cluster: SmallCluster) -> None:
    await cluster.deploy(replicas=1, updateStrategy=rolling("InPlaceOnly"))
    await cluster.patch({"spec": {"template": template(hostname="other")}})
    condition = await cluster.until(lambda: cluster.condition("FailedUpdate"), "the condition")
    (name,) = await cluster.uids()
    assert condition["message"] == f"find Pod {name} update strategy is InPlaceOnly but can not update in-place"
    await cluster.clock.sleep(60)
    update = (await cluster.status())["updateRevision"]
    assert await cluster.events("InPlaceUpdateNotPossible") == [
        f"pods cannot be updated in-place for update(revision {update}): "
        "add /spec/hostname: cannot be changed in a running Pod"
    ]


@in_cluster(Gates(partition_rollback=True))
@pytest.mark.behaviour("CS-84", "CS-146", "CS-76", "CS-95")
async def test_a_partition_holds_pods_back_and_a_rollback_returns_the_others(cluster: SmallCluster) -> None:
    # [U-17, U-18]
    await cluster.deploy(replicas=4, updateStrategy=rolling(partition=2))
    await cluster.patch({"spec": {"template": template(image="nginx:2")}})
    status = await cluster.settled(updatedAvailableReplicas=2, availableReplicas=4, expectedUpdatedReplicas=2)
    assert status["currentRevision"] != status["updateRevision"]
    await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 4}}}})
    await cluster.settled(updatedReplicas=0, availableReplicas=4)


@in_cluster
@pytest.mark.behaviour("CS-90", "CS-185", "CS-60")
async def test_a_surge_keeps_all_replicas_available(cluster: SmallCluster) -> None:
    # [U-19]
    await cluster.deploy(replicas=4, updateStrategy=rolling("ReCreate", maxSurge=3))
    rollout = Rollout(cluster)
    await rollout.until_done(4)
    assert rollout.most == 7


@in_cluster(Gates(in_place_surge=True))
@pytest.mark.behaviour("CS-90", "CS-176")
async def test_with_the_gate_a_surge_covers_in_place_updates(cluster: SmallCluster) -> None:
    await cluster.deploy(replicas=4, updateStrategy=rolling(maxSurge=2, maxUnavailable=0))
    before, rollout = await cluster.uids(), Rollout(cluster)
    await rollout.until_done(4)
    assert (rollout.most, rollout.least_ready) == (6, 4)
    assert await cluster.uids() == before


@in_cluster
@pytest.mark.behaviour("CS-123", "CS-133")
async def test_a_paused_rollout_still_scales(cluster: SmallCluster) -> None:
    # [U-20]
    await cluster.deploy(updateStrategy=rolling(paused=True))
    await cluster.patch({"spec": {"template": template(image="nginx:2"), "replicas": 4}})
    status = await cluster.settled(availableReplicas=4, updatedReplicas=1)
    assert status["updatedReplicas"] == 1
    await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"paused": False}}}})
    await cluster.settled(updatedAvailableReplicas=4)


@in_cluster
@pytest.mark.behaviour("CS-135", "PM-70", "CS-105", "CS-102", "CS-97")
async def test_hooks_hold_pods_until_their_finalizer_is_removed(cluster: SmallCluster) -> None:
    # [U-27]
    hook, hold = {"finalizersHandler": ["example.com/hold"]}, {"metadata": {"finalizers": ["example.com/hold"]}}
    made = template()
    made["metadata"] |= hold["metadata"]
    lifecycle = {"preDelete": hook, "inPlaceUpdate": hook}
    await cluster.deploy(replicas=2, template=made, lifecycle=lifecycle, updateStrategy=rolling())
    await cluster.patch({"spec": {"template": {"spec": template(image="nginx:2")["spec"]}}})
    (held,) = await cluster.until(lambda: in_state(cluster, "PreparingUpdate"), "one is held")
    assert held["spec"]["containers"][0]["image"] == "nginx:1"
    name, release = held["metadata"]["name"], {"metadata": {"finalizers": None}}
    await cluster.user.patch(PODS, name, release, NAMESPACE)
    updated = await cluster.until(lambda: in_state(cluster, "Updated"), "it is updated")
    assert [pod["metadata"]["name"] for pod in updated] == [name]
    await cluster.user.patch(PODS, name, hold, NAMESPACE)
    await cluster.until(lambda: in_state(cluster, "Normal"), "it is back in service")
    await cluster.patch({"spec": {"replicas": 0}})
    await cluster.until(lambda: in_state(cluster, "PreparingDelete"), "they are held")

    async def all_released() -> bool:
        for pod in await cluster.uids():
            await cluster.user.patch(PODS, pod, release, NAMESPACE)
        return not await cluster.pods()

    await cluster.until(all_released, "they are deleted")


async def in_state(cluster: Any, state: str) -> list[dict[str, Any]]:
    return [
        pod for pod in await cluster.pods() if pod["metadata"]["labels"].get("lifecycle.apps.kruise.io/state") == state
    ]


CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
CLAIMS = [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]


@in_cluster
@pytest.mark.behaviour("CS-55", "CS-67", "CS-68", "CS-117", "CS-192")
async def test_a_released_pod_keeps_its_name_and_is_replaced_under_another(cluster: SmallCluster) -> None:
    await cluster.apply(volumeClaimTemplates=CLAIMS, scaleStrategy={"enablePVCReuse": True})
    await cluster.settled(replicas=3)
    before = set(await cluster.uids())
    name = min(before)
    await cluster.user.patch(PODS, name, {"metadata": {"labels": {"app": "mine"}}}, NAMESPACE)

    def released(pods: list[dict[str, Any]]) -> bool:
        found = {pod["metadata"]["name"]: pod["metadata"] for pod in pods}
        return before < found.keys() and not found[name].get("ownerReferences")

    await cluster.until_pods(released, "released and replaced")
    await cluster.user.patch(PODS, name, {"metadata": {"labels": {"app": "web"}}}, NAMESPACE)
    await cluster.clock.sleep(5)
    assert len(await cluster.pods()) == 4
    assert "conditions" not in await cluster.settled(replicas=3)
    assert await cluster.events("FailedCreate") == []
    # Once the name is free, its claim is used again.
    await cluster.user.delete(PODS, name, NAMESPACE)
    await cluster.patch({"spec": {"replicas": 4}})
    await cluster.settled(replicas=4)
    assert name in await cluster.uids()


@in_cluster
@pytest.mark.behaviour("CS-149", "CS-151", "CS-157")
async def test_refused_pods_are_reported_and_retried_with_growing_delays(
    cluster: SmallCluster, caplog: pytest.LogCaptureFixture
) -> None:
    refuse, why = True, "exceeded quota"
    times: list[float] = []

    def intercept(request: Any) -> Any:
        if refuse and request.method == "POST" and request.path.endswith("/pods"):
            times.append(cluster.clock.monotonic())
            return json_response(403, status_body(403, "Forbidden", why))
        return None

    cluster.sent.intercept = intercept
    await cluster.apply()
    condition = await cluster.until(lambda: cluster.condition("FailedScale"), "the condition")
    assert condition["status"] == "True"
    assert condition["message"] == "exceeded quota (3 of 3 Pods were not created)"
    await cluster.clock.sleep(120)
    assert len(times) < 20, "no hot loop"
    matches = (re.search(r"retrying in (\S+) s: POST", text) for text in caplog.messages)
    logged = [float(found[1]) for found in matches if found]
    assert logged[: len(times) - 1] == pytest.approx([after - before for before, after in pairwise(times)], abs=0.01)
    status_writes = [line for line in cluster.sent.requests if line.endswith("clonesets/web/status")]
    assert len(status_writes) < 5
    failures = await cluster.events("FailedCreate")
    prefix = 'failed to create pod: exceeded quota, pod: {"metadata":{"name":"web-'
    shown = next(message for message in failures if message.startswith(prefix)).removeprefix(prefix)
    assert shown[5:].startswith(
        '","generateName":"web-","namespace":"default","creationTimestamp":null,"labels":{"app":"web",'
        '"apps.kruise.io/cloneset-instance-id":'
    )
    why = "exceeded the other quota"

    async def updated_message() -> Any:
        found = await cluster.condition("FailedScale")
        return found if why in found["message"] else None

    updated = await cluster.until(updated_message, "the message is updated", 1_000)
    assert updated["lastTransitionTime"] == condition["lastTransitionTime"]
    refuse = False
    status = await cluster.settled(availableReplicas=3)
    assert not status.get("conditions")


@in_cluster(Gates(vertical_scaling=True))
@pytest.mark.behaviour("PM-38")
async def test_resources_are_set_before_the_image(cluster: SmallCluster) -> None:
    def sized(image: str, memory: str) -> dict[str, Any]:
        resources = {"requests": {"memory": memory}, "limits": {"memory": memory}}
        return template(containers=[{"name": "main", "image": image, "resources": resources}])

    await cluster.deploy(replicas=1, updateStrategy=rolling(), template=sized("nginx:1", "64Mi"))
    before = await cluster.uids()
    cluster.sent.requests.clear()
    await cluster.patch({"spec": {"template": sized("nginx:2", "32Mi")}})
    await cluster.settled(updatedAvailableReplicas=1)
    assert await cluster.uids() == before
    (after,) = await cluster.pods()
    main = after["spec"]["containers"][0]
    assert (main["image"], main["resources"]["limits"]) == ("nginx:2", {"memory": "32Mi"})
    path = f"PATCH /api/v1/namespaces/{NAMESPACE}/pods/{after['metadata']['name']}"
    writes = [line.removeprefix(path) for line in cluster.sent.requests if line.startswith(path)]
    assert writes[:3] == ["/status", "/resize", ""]
    assert writes.count("/resize") == 1


@in_cluster
@pytest.mark.behaviour("CS-101")
@pytest.mark.parametrize("path", ["/pods", "/controllerrevisions"])
async def test_a_terminating_namespace_causes_no_warnings(
    cluster: SmallCluster, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    tries = cluster.sent.refuses("POST", path, "it is being terminated", details={"causes": [cause]})
    await cluster.apply()
    await cluster.clock.sleep(120)
    assert 1 <= len(tries) < 20
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert not (await cluster.status()).get("conditions")


@in_cluster
@pytest.mark.behaviour("CS-99", "CS-169", "CS-65")
async def test_scale_out_waits_for_available_pods(cluster: SmallCluster) -> None:
    # [U-11]
    await cluster.apply(minReadySeconds=60, scaleStrategy={"maxUnavailable": 1})
    began = cluster.clock.monotonic()
    await cluster.settled(availableReplicas=3, seconds=600)
    assert 180 <= cluster.clock.monotonic() - began < 190
    text = "scaleUp is limited because of scaleStrategy.maxUnavailable, limit: "
    assert {message.removeprefix(text) for message in await cluster.events("ScaleUpLimited")} == {"0", "1"}


@in_cluster
@pytest.mark.behaviour("CS-62", "CS-82", "CS-111", "CS-110")
async def test_named_pods_are_deleted_when_scaling_in(cluster: SmallCluster) -> None:
    # [U-12]
    await cluster.deploy()
    names = sorted(await cluster.uids())
    await cluster.patch({"spec": {"replicas": 2, "scaleStrategy": {"podsToDelete": [names[1]]}}})

    async def gone() -> bool:
        spec = (await cluster.user.get(CLONESETS, "web", NAMESPACE))["spec"]
        return not spec["scaleStrategy"].get("podsToDelete")

    await cluster.until(gone, "the name is removed from the list")
    assert sorted(await cluster.uids()) == [names[0], names[2]]
    label = {"apps.kruise.io/specified-delete": "false"}
    await cluster.user.patch(PODS, names[0], {"metadata": {"labels": label}}, NAMESPACE)
    await cluster.until_pods(
        lambda pods: len({pod["metadata"]["name"] for pod in pods} - {names[0]}) == len(pods) == 2, "it is replaced"
    )


@in_cluster
@pytest.mark.behaviour("CS-72", "CS-190")
async def test_handmade_revisions_and_broken_annotations_are_tolerated(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling())
    await cluster.user.create(
        CONTROLLERREVISIONS,
        {"metadata": {"name": "web-hand", "labels": {"app": "web", "controller.kubernetes.io/hash": "x"}},
         "data": {"spec": 5}, "revision": 77},
        NAMESPACE,
    )  # fmt: skip
    name = min(await cluster.uids())
    garbage = {"annotations": {"apps.kruise.io/inplace-update-state": "{", "apps.kruise.io/inplace-update-grace": "["}}
    await cluster.user.patch(PODS, name, {"metadata": garbage}, NAMESPACE)
    await cluster.patch({"spec": {"replicas": 4}})
    await cluster.settled(replicas=4)
    condition = await cluster.until(lambda: cluster.condition("FailedUpdate"), "the condition")
    assert name in condition["message"]
    status = await cluster.status()
    assert "web-hand" not in (status["updateRevision"], status["currentRevision"])
    used = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in await cluster.pods()}
    assert used == {status["updateRevision"]}
    cluster.sent.requests.clear()
    await cluster.clock.sleep(60)
    assert len(cluster.sent.requests) < 10, "no hot loop"


@in_cluster
@pytest.mark.behaviour("CS-153", "CS-154")
async def test_a_slow_rollout_is_reported(cluster: SmallCluster) -> None:
    async def reason() -> Any:
        return (await cluster.condition("Progressing")).get("reason")

    await cluster.apply(progressDeadlineSeconds=30, updateStrategy=rolling())
    await cluster.becomes(reason, "CloneSetAvailable")
    unready = template(image="nginx:2")
    unready["metadata"]["annotations"] = {"sandbox.pykruise.io/unready": "main"}
    await cluster.patch({"spec": {"template": unready}})
    began = cluster.clock.monotonic()
    await cluster.becomes(reason, "ProgressDeadlineExceeded")
    assert 30 <= cluster.clock.monotonic() - began < 40


@in_cluster
@pytest.mark.behaviour("CS-180", "CS-179")
async def test_a_failed_pod_is_replaced_and_kept(cluster: SmallCluster) -> None:
    await cluster.deploy()
    failed = {"status": {"phase": "Failed"}}
    await cluster.user.patch(PODS, min(await cluster.uids()), failed, NAMESPACE, subresource="status")
    await cluster.until_pods(lambda pods: len(pods) == 4, "a fourth Pod")
    await cluster.settled(availableReplicas=3, replicas=3)
    assert len(await cluster.pods()) == 4


@in_cluster
@pytest.mark.behaviour("CS-74", "CS-77", "CS-121")
async def test_changed_claim_templates_apply_to_new_pods(cluster: SmallCluster) -> None:
    await cluster.apply(replicas=1, volumeClaimTemplates=CLAIMS)
    await cluster.settled(replicas=1)
    more = [*CLAIMS, {**CLAIMS[0], "metadata": {"name": "logs"}}]
    await cluster.patch({"spec": {"volumeClaimTemplates": more, "replicas": 2}})
    await cluster.settled(replicas=2)
    assert len(await cluster.revisions()) == 1
    kinds = sorted(claim["metadata"]["name"].split("-")[0] for claim in await cluster.claims())
    assert kinds == ["data", "data", "logs"]


@in_cluster
@pytest.mark.behaviour("PM-45", "PM-74", "CS-135")
async def test_an_unscheduled_pod_gets_initial_conditions_and_serves_later(cluster: SmallCluster) -> None:
    await cluster.apply(replicas=1, template=template(nodeSelector={"disk": "ssd"}))

    wanted = {"PodScheduled": "False", "InPlaceUpdateReady": "True", "KruisePodReady": "True"}
    await cluster.until_pods(lambda pods: [statuses(pod) for pod in pods] == [wanted], "the initial conditions")
    assert len(await in_state(cluster, "PreparingNormal")) == 1
    node = (await cluster.user.list(NODES)).items[0]["metadata"]["name"]
    await cluster.user.patch(NODES, node, {"metadata": {"labels": {"disk": "ssd"}}})
    await cluster.settled(availableReplicas=1)
    assert len(await in_state(cluster, "Normal")) == 1
