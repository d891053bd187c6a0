"""ContainerRecreateRequests with our webhook, our controller and the node agent on a simulated runtime."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest

from app.admission.review import read_review
from app.daemon.objects import RECREATE_REQUESTS
from app.features.containerrecreate import plan
from app.features.containerrecreate.feature import FEATURE
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.containerrecreate.webhooks import Lookups, mutate
from app.kube.admission import STRANGER, Denied, Review
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.errors import NotFound
from app.kube.objects import Pod
from app.kube.patches import apply
from app.kube.reflector import Reflector
from app.kube.resources import NODES, PODS
from app.manager.gates import parse_gates
from tests.admission.writing import BETA, review_of
from tests.daemon.node import NAMESPACE, NODE, Node, node
from tests.kit import objects
from tests.kit.cluster import scenarios
from tests.kit.features import context, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, running

Json = dict[str, Any]


def body_of(*containers: str, pod: str = "web-0", **spec: Any) -> Json:
    """A request as its user writes it."""
    return {
        "apiVersion": BETA,
        "kind": "ContainerRecreateRequest",
        "metadata": {"name": "again", "namespace": NAMESPACE},
        "spec": {"podName": pod, "containers": [{"name": one} for one in containers], **spec},
    }


class Manager:
    """The manager's webhook, called as the API server does, and its controller."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def answer(self, body: Json, old: Json | None = None, gates: str = "") -> Any:
        review = msgspec.structs.replace(review_of(CONTAINER_RECREATE_REQUEST, body, old), username="tenant")
        return await mutate(Lookups(self.node.client), parse_gates(gates).enabled, review)

    async def request(self, *containers: str, **spec: Any) -> Json:
        """Create a request for web-0, filled in by the webhook."""
        body = body_of(*containers, **spec)
        answer = await self.answer(body)
        assert not isinstance(answer, Denied), answer.message
        return await self.node.client.create(RECREATE_REQUESTS, apply(answer.operations, body), NAMESPACE)

    async def get(self) -> Json:
        found: Json = await self.node.client.get(RECREATE_REQUESTS, "again", NAMESPACE)
        return found

    async def finalizers(self) -> list[str]:
        found: list[str] = (await self.get())["metadata"].get("finalizers", [])
        return found

    async def pod(self) -> Json:
        found: Json = await self.node.client.get(PODS, "web-0", NAMESPACE)
        return found

    async def condition(self, type_: str = "KruisePodReady") -> Json:
        found: Json = next(one for one in (await self.pod())["status"]["conditions"] if one["type"] == type_)
        return found

    async def served(self) -> str:
        """Return the status of the condition that takes the Pod out of service."""
        status: str = (await self.condition())["status"]
        return status

    async def completed(self, seconds: float = 200.0) -> Json:
        async def look() -> Json | None:
            status = (await self.get()).get("status") or {}
            return status if status.get("completionTime") else None

        found: Json = await self.node.until(look, seconds)
        return found

    async def kubelet(self) -> None:
        """Restart containers that have ended and report their status."""
        while True:
            await self.node.clock.sleep(0.5)
            try:
                pod = await self.pod()
            except NotFound:
                continue
            restarted = False
            for container in pod["spec"]["containers"]:
                newest = self.node.newest(pod["metadata"]["uid"], container["name"])
                if newest.state != 1:
                    self.node.restart(newest)
                    restarted = True
            if restarted:
                await self.node.report()


@asynccontextmanager
async def manager(*, agent: bool = True, kubelet: bool = True) -> AsyncIterator[Manager]:
    async with node() as there, AsyncExitStack() as stack:
        await there.client.create(NODES, {"metadata": {"name": NODE}})
        found = Manager(there)
        ours = Client(there.api.transport("manager"), there.clock)
        (part,) = FEATURE.controllers
        stores = stores_of(part)
        for one in part.watched:
            reflector: Reflector[Any] = Reflector(ours, one.resource, stores(one), decode=one.decode, rng=Random(1))
            await stack.enter_async_context(running(reflector.run()))
        made = part.make(context(part, ours, stores))
        controller = Controller(part.name, there.clock, made.watches, made.reconcile, workers=part.workers)
        await stack.enter_async_context(running(controller.run()))
        if kubelet:
            await stack.enter_async_context(running(found.kubelet()))
        if agent:
            await stack.enter_async_context(running(there.agent().run()))
        yield found


in_world = scenarios(manager)


async def pod_with_gate(there: Manager) -> None:
    gates = [{"conditionType": "KruisePodReady"}]
    spec = {"nodeName": NODE, "containers": [{"name": "app", "image": "nginx:1"}], "readinessGates": gates}
    created = await there.node.client.create(PODS, {"metadata": {"name": "web-0"}, "spec": spec}, NAMESPACE)
    there.node.runtime.start(created["metadata"]["uid"], "app")
    conditions = ("Ready", "ContainersReady", "KruisePodReady", "Initialized")
    await there.node.report(conditions=[{"type": one, "status": "True"} for one in conditions])


@pytest.mark.behaviour("CRR-12", "CRR-18", "CRR-20")
@in_world
async def test_two_containers_restart_and_the_others_do_not(there: Manager) -> None:
    await there.node.pod({"name": "app"}, {"name": "side"}, {"name": "other"})
    await there.request("app", "side")
    status = await there.completed()
    assert status["phase"] == "Completed"
    states = [(one["name"], one["phase"]) for one in status["containerRecreateStates"]]
    assert states == [("app", "Succeeded"), ("side", "Succeeded")]
    assert {one["name"] for one in status["containerStatusSnapshot"]} == {"app", "side"}
    counts = {one["name"]: one["restartCount"] for one in (await there.pod())["status"]["containerStatuses"]}
    assert counts == {"app": 1, "side": 1, "other": 0}

    async def inactive() -> bool:
        return "crr.apps.kruise.io/active" not in (await there.get())["metadata"]["labels"]

    await there.node.until(inactive)


@pytest.mark.behaviour("CRR-4")
@pytest.mark.parametrize("type_", [None, "virtual-kubelet"])
@in_world(agent=False, kubelet=False)
async def test_a_request_has_the_label_of_a_virtual_node(there: Manager, type_: str | None) -> None:
    await there.node.pod({"name": "app"})
    await there.node.client.patch(NODES, NODE, {"metadata": {"labels": {"type": type_}}})
    assert (await there.request("app"))["metadata"]["labels"].get("type") == type_


class Telling:
    """Says whether the user may read the Pod, which must not be looked up."""

    def __init__(self, may_read: bool) -> None:
        self.may_read = may_read

    async def may_read_pod(self, *_: Any) -> bool:
        return self.may_read

    async def pod(self, *_: Any) -> Json:
        raise AssertionError("the Pod is looked up")

    node = pod


@pytest.mark.behaviour("CRR-69")
@pytest.mark.parametrize("stranger", [False, True], ids=["a user who may not read the Pod", "a stranger"])
async def test_a_review_reveals_no_pod_that_its_user_may_not_read(stranger: bool) -> None:
    token = STRANGER.set(stranger)
    try:
        review = review_of(CONTAINER_RECREATE_REQUEST, body_of("app"))
        answer = await mutate(Telling(may_read=stranger), parse_gates("").enabled, review)
    finally:
        STRANGER.reset(token)
    assert isinstance(answer, Denied)
    assert answer.code == 403


@pytest.mark.behaviour("CRR-69")
async def test_the_access_review_contains_everything_known_about_the_user() -> None:
    """The authorizer may grant less to a token with limited scope than to the user."""
    asked: list[Json] = []

    class Asking(Client):
        async def create(self, _: Any, body: Any, *__: Any, **___: Any) -> Any:
            asked.append(body)
            return {}

    extra = {"scopes.authorization.openshift.io": ["user:info"]}
    user = {"username": "jane", "uid": "7", "groups": ["dev"], "extra": extra}
    request = {"uid": "u", "operation": "CREATE", "kind": {}, "resource": {}, "namespace": NAMESPACE, "userInfo": user}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = read_review(json.dumps(body).encode())
    assert isinstance(review, Review)
    assert not await Lookups(Asking(Connections(), VirtualClock())).may_read_pod(review, "web-0")
    attributes = {"namespace": NAMESPACE, "verb": "get", "version": "v1", "resource": "pods", "name": "web-0"}
    wanted = {"user": "jane", "groups": ["dev"], "uid": "7", "extra": extra, "resourceAttributes": attributes}
    assert [one["spec"] for one in asked] == [wanted]


@pytest.mark.behaviour("CRR-10", "CRR-21", "CRR-22", "CRR-51", "CRR-33")
@in_world
async def test_the_pod_leaves_service_for_the_grace_period_and_returns(there: Manager) -> None:
    await pod_with_gate(there)
    before = there.node.clock.monotonic()
    await there.request("app", strategy={"unreadyGracePeriodSeconds": 3})
    await there.node.becomes(there.served, "False")
    key = '[{"userAgent":"ContainerRecreateRequest","key":"shop/again"}]'
    assert (await there.condition())["message"] == key
    assert (await there.condition("Ready"))["status"] == "False"
    assert await there.finalizers() == ["crr.apps.kruise.io/unready-acquired"]
    status = await there.completed()
    assert there.node.clock.monotonic() - before >= 3
    (grace,) = status["conditions"]
    assert (grace["type"], grace["status"], grace["reason"]) == ("PreRecreateGrace", "True", "PreRecreateGrace")
    await there.node.becomes(there.served, "True")
    assert (await there.condition())["message"] == "[]"
    await there.node.becomes(there.finalizers, [])


@pytest.mark.behaviour("CRR-10", "CRR-11")
@in_world
async def test_a_deleted_request_releases_its_pod(there: Manager) -> None:
    await pod_with_gate(there)
    await there.request("app", strategy={"unreadyGracePeriodSeconds": 1000})
    await there.node.becomes(there.served, "False")
    await there.node.clock.sleep(1)
    await there.node.client.delete(RECREATE_REQUESTS, "again", NAMESPACE)
    await there.node.becomes(there.served, "True")
    await there.node.clock.sleep(1)
    assert not (await there.node.client.list(RECREATE_REQUESTS)).items


@pytest.mark.behaviour("CRR-15", "CRR-17", "CRR-19", "CRR-13")
@in_world(agent=False)
async def test_without_a_node_response_a_request_ends_after_a_minute_and_expires(there: Manager) -> None:
    await there.node.pod({"name": "app"})
    await there.request("app", ttlSecondsAfterFinished=30)
    await there.node.clock.sleep(55)
    assert not (await there.get()).get("status", {}).get("completionTime")
    status = await there.completed()
    assert (status["phase"], status["message"]) == ("Completed", "daemon has not responded for a long time")
    assert "containerRecreateStates" not in status
    await there.node.clock.sleep(25)
    await there.get()
    await there.node.clock.sleep(10)
    with pytest.raises(NotFound):
        await there.get()


@pytest.mark.behaviour("CRR-16")
@in_world(kubelet=False)
async def test_a_request_past_its_deadline_keeps_container_states(there: Manager) -> None:
    await there.node.pod({"name": "app"}, {"name": "side"})
    await there.request("app", "side", activeDeadlineSeconds=20, strategy={"orderedRecreate": True})
    status = await there.completed()
    assert status["message"] == "recreating has exceeded the activeDeadlineSeconds"
    phases = {state["name"]: state["phase"] for state in status["containerRecreateStates"]}
    assert phases == {"app": "Recreating", "side": "Pending"}


@pytest.mark.behaviour("CRR-14", "CRR-40", "CRR-50")
@pytest.mark.parametrize("change", ["gone", "another of that name", "ended"])
@in_world(agent=False, kubelet=False)
async def test_a_request_ends_with_its_pod(there: Manager, change: str) -> None:
    await there.node.pod({"name": "app"})
    await there.request("app")
    await there.node.clock.sleep(1)
    if change == "ended":
        await there.node.report(phase="Succeeded")
    else:
        await there.node.client.delete(PODS, "web-0", NAMESPACE, grace_period_seconds=0)
    if change == "another of that name":
        await there.node.pod({"name": "app"})
    ended = "the Pod has ended; its containers will not start again"
    assert (await there.completed(seconds=5))["message"] == (ended if change == "ended" else "pod has gone")


@pytest.mark.behaviour("CRR-3", "CRR-40")
@in_world
async def test_a_request_continues_for_pods_whose_sidecars_are_being_ended(there: Manager) -> None:
    await there.node.pod({"name": "app"})
    await there.node.report(phase="Succeeded", conditions=[{"type": "SidecarTerminated", "status": "True"}])
    await there.request("app")
    status = await there.completed()
    assert not status.get("message")
    assert [one["phase"] for one in status["containerRecreateStates"]] == ["Succeeded"]


@pytest.mark.behaviour("CRR-2", "CRR-3")
@in_world(agent=False, kubelet=False)
async def test_invalid_requests_are_refused(there: Manager) -> None:
    await there.node.pod({"name": "app"})
    for wrong, message in (
        (body_of("app", pod="none"), f'spec.podName: Not found: "none": there is no such Pod in namespace {NAMESPACE}'),
        (body_of("nope"), 'spec.containers[0].name: Not found: "nope": Pod web-0 has app'),
        (body_of("app", activeDeadlineSeconds=2), "spec.activeDeadlineSeconds: Invalid value: 2: "),
    ):
        answer = await there.answer(wrong)
        assert isinstance(answer, Denied)
        assert answer.message.startswith(message)
        assert answer.code == 400
    stored = body_of("app")
    off = await there.answer(stored, gates="KruiseDaemon=false")
    assert isinstance(off, Denied)
    assert off.message.startswith("feature-gate KruiseDaemon is not enabled; ")
    assert off.code == 403
    await there.node.client.delete(NODES, NODE)
    answer = await there.answer(stored)
    assert answer.message.endswith(f"its Node {NODE} does not exist")
    answer = await there.answer(body_of("app", activeDeadlineSeconds=30), stored)
    assert (answer.code, answer.message) == (403, "spec: Forbidden: a request is immutable; create a new one")
    assert not isinstance(await there.answer(stored, stored, gates="KruiseDaemon=false"), Denied)


NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


def request(**status: Any) -> ContainerRecreateRequest:
    labels = {"crr.apps.kruise.io/pod-uid": "u"}
    container = {"name": "app", "statusContext": {"containerID": "containerd://1", "restartCount": 0}}
    return ContainerRecreateRequest.model_validate(
        {
            "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
            "spec": {"podName": "p", "containers": [container]},
            "status": {"phase": "Recreating", **status},
        }
    )


def pod(container: str, started: str | None) -> Pod:
    state = {"running": {"startedAt": started}} if started else {"waiting": {}}
    status = {"name": "app", "containerID": container, "ready": True, "restartCount": 1, "state": state}
    return objects.pod(uid="u", status={"containerStatuses": [status]})


@pytest.mark.behaviour("CRR-20", "CRR-62")
@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param(pod("containerd://1", "2025-12-31T00:00:00Z"), [], id="the old one"),
        pytest.param(pod("containerd://1", "2026-01-01T00:00:00Z"), ["containerd://1"], id="started since"),
        pytest.param(pod("containerd://2", "2025-12-31T23:59:59Z"), ["containerd://2"], id="another, a moment before"),
        pytest.param(pod("containerd://2", None), [], id="not running"),
    ],
)
def test_the_snapshot_lists_containers_started_before_the_request(seen: Pod, wanted: list[str]) -> None:
    snapshot = (plan.step(request(), seen, NOW).status or {}).get("containerStatusSnapshot", [])
    assert [one["containerID"] for one in snapshot] == wanted
    known = request(containerStatusSnapshot=[{"name": "app", "containerID": "containerd://9"}])
    assert (plan.step(known, seen, NOW).status is not None) == bool(wanted)


def ended_pod(state: Json, *conditions: str) -> Pod:
    containers = [{"name": "app", "state": state}, {"name": "main", "state": {"terminated": {}}}]
    found = [{"type": one, "status": "True"} for one in conditions]
    return objects.pod(uid="u", phase="Succeeded", conditions=found, status={"containerStatuses": containers})


@pytest.mark.behaviour("SS-115", "CRR-40")
@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        pytest.param(ended_pod({"running": {}}), True, id="its node ends it"),
        pytest.param(ended_pod({"running": {}}, "SidecarTerminated"), False, id="its sidecars still run"),
        pytest.param(ended_pod({"terminated": {}}, "SidecarTerminated"), True, id="its sidecars have ended"),
    ],
)
def test_a_request_for_sidecars_continues_after_the_pod_got_its_final_phase(seen: Pod, ends: bool) -> None:
    status = plan.step(request(), seen, NOW).status or {}
    assert ("completionTime" in status) is ends
    assert status.get("message", plan.POD_ENDED) == plan.POD_ENDED
