from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.features.containerrecreate.reconcile import add_not_ready_key, remove_not_ready_key
from app.features.podreadiness.feature import FEATURE
from app.features.podreadiness.reconcile import KUBELET_FIRST, PodReadinessReconciler
from app.kube.client import Client
from app.kube.errors import Conflict
from app.kube.objects import Pod, decode_pod
from app.kube.resources import ObjectKey
from app.kube.store import Store
from app.kube.wire import Request, Response
from app.pods.readiness import PRE_DELETE_HOOK, PRE_UPDATE_HOOK, not_ready_keys
from tests.kit.features import controller_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body, until, virtual
from tests.pods.apiserver import ApiServer, pod_path

KEY = ObjectKey("shop", "web-0")
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "shop"},
    "spec": {"readinessGates": [{"conditionType": "KruisePodReady"}]},
    "status": {"phase": "Pending"},
}


class Setting:
    """A Pod on an in-memory API server, a client, and a cache that :meth:`see` updates."""

    def __init__(self, pod: dict[str, Any] | None = None) -> None:
        self.server = ApiServer()
        self.pods: Store[Pod] = Store()
        self.client = Client(self.server, VirtualClock())
        self.server.put(pod_path(), pod or POD)
        self.see()

    def see(self) -> None:
        self.server.show(self.pods, decode_pod)

    def live(self) -> Pod:
        return decode_pod(orjson.dumps(self.server.objects[pod_path()]))

    def cached(self) -> Pod:
        pod = self.pods.by_key(KEY)
        assert pod is not None
        return pod

    def status(self) -> str:
        found = self.live().condition("KruisePodReady")
        return found.status if found is not None else ""


@virtual
@pytest.mark.behaviour("PM-60")
async def test_a_new_pod_gets_its_condition_with_one_write() -> None:
    setting = Setting()
    controller = controller_of(FEATURE, setting.client, {"Pods": setting.pods})
    async with running(controller.run()):
        await until(setting.status)
        setting.see()
        setting.server.put(pod_path("web-1"), {**POD, "metadata": {"name": "web-1", "namespace": "shop"}, "spec": {}})
        setting.see()
    assert setting.status() == "True"
    assert setting.server.writes() == [f"PATCH {pod_path()}/status"]
    assert setting.server.requests[0].headers["User-Agent"] == "kruise-manager/pod-readiness-controller"
    assert (controller.name, controller.workers) == ("pod-readiness-controller", 16)
    permissions = FEATURE.permissions(lambda _gate: True)
    assert {resource for rule in permissions for resource in rule.resources} == {"pods", "pods/status"}


@virtual
@pytest.mark.behaviour("PM-60")
@pytest.mark.parametrize(("reported", "seconds"), [(True, 0.0), (False, KUBELET_FIRST)])
async def test_a_newly_created_pod_is_first_reported_by_the_kubelet(reported: bool, seconds: float) -> None:
    status = {"phase": "Pending", **({"startTime": "2030-01-01T00:00:00Z"} if reported else {})}
    setting = Setting({**POD, "spec": {**POD["spec"], "nodeName": "n1"}, "status": status})
    clock = setting.client.clock
    async with running(controller_of(FEATURE, setting.client, {"Pods": setting.pods}).run()):
        began = clock.monotonic()
        await until(setting.status)
    assert seconds <= clock.monotonic() - began < seconds + 0.05


@virtual
@pytest.mark.behaviour("PM-60")
@pytest.mark.parametrize("overtaken", [False, True])
async def test_a_key_is_added_to_the_observed_pod(overtaken: bool) -> None:
    """A request may take a minute; concurrent decisions are kept."""
    setting = Setting()
    reconcile = PodReadinessReconciler(
        setting.client, setting.pods, [lambda _pod, _now: {}, lambda _pod, _now: {"labels": {"state": "Normal"}}]
    )
    if overtaken:
        setting.server.put(pod_path(), {**POD, "metadata": {**POD["metadata"], "labels": {"state": "PreparingDelete"}}})
    assert (await reconcile(KEY) is None) is not overtaken
    assert setting.live().metadata.labels["state"] == ("PreparingDelete" if overtaken else "Normal")


@virtual
@pytest.mark.behaviour("PM-60", "PM-179")
async def test_a_concurrent_condition_is_not_overwritten() -> None:
    setting = Setting()
    reconcile = PodReadinessReconciler(setting.client, setting.pods)
    await add_not_ready_key(setting.client, setting.live(), PRE_DELETE_HOOK)
    result = await reconcile(KEY)  # on the cached Pod, which has no condition
    assert result is not None
    assert result.requeue_after > 0
    assert setting.status() == "False"
    setting.see()
    assert await reconcile(KEY) is None
    assert setting.status() == "False"


@virtual
@pytest.mark.behaviour("PM-62", "PM-179")
async def test_two_stale_writers_both_add_their_key() -> None:
    setting = Setting()
    old = setting.cached()
    await add_not_ready_key(setting.client, old, PRE_DELETE_HOOK)
    await add_not_ready_key(setting.client, old, PRE_UPDATE_HOOK)
    held = setting.live().condition("KruisePodReady")
    assert held is not None
    assert not_ready_keys(held.message) == (PRE_DELETE_HOOK, PRE_UPDATE_HOOK)
    await remove_not_ready_key(setting.client, setting.live(), PRE_DELETE_HOOK)
    await remove_not_ready_key(setting.client, setting.live(), PRE_DELETE_HOOK)
    assert setting.status() == "False"
    await remove_not_ready_key(setting.client, setting.live(), PRE_UPDATE_HOOK)
    assert setting.status() == "True"
    assert len([write for write in setting.server.writes() if write.startswith("PATCH")]) == 5  # one conflict


@virtual
@pytest.mark.behaviour("PM-179")
async def test_endless_conflicts_are_reported_after_four_tries() -> None:
    setting = Setting()

    def conflict(request: Request) -> Response | None:
        return json_response(409, status_body(409, "Conflict")) if request.method == "PATCH" else None

    setting.server.fail = conflict
    with pytest.raises(Conflict):
        await add_not_ready_key(setting.client, setting.cached(), PRE_DELETE_HOOK)
    assert len(setting.server.writes()) == 4
    assert setting.client.clock.monotonic() == pytest.approx(0.31)  # 10, 50 and 250 ms
