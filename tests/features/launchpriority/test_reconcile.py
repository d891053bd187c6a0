from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.launchpriority.feature import NAME
from app.features.launchpriority.reconcile import LaunchBarrierReconciler
from app.kube.client import Client
from app.kube.errors import Conflict, ServerError
from app.kube.events import EventRecorder
from app.kube.objects import Pod, decode_pod
from app.kube.resources import ObjectKey
from app.kube.store import Store
from app.kube.wire import Request, Response
from tests.features.launchpriority.pods import COMPLETED, CURRENT, ordered
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body, virtual
from tests.pods.apiserver import ApiServer, pod_path

KEY = ObjectKey("shop", "web-0")
CREATE = "POST /api/v1/namespaces/shop/configmaps"
CONFIG_MAP = "/api/v1/namespaces/shop/configmaps/web-0-barrier"
ADD = f"PATCH {CONFIG_MAP}"
ANNOTATE = f"PATCH {pod_path()}"
ORDER: dict[str, int | None] = {"a": 5, "b": 3, "c": 0}


class Setting:
    """Pod shop/web-0 on an API server in memory; the test makes its containers ready."""

    def __init__(self, order: Mapping[str, int | None] | None = None) -> None:
        self.order = dict(ORDER if order is None else order)
        self.server = ApiServer()
        self.pods: Store[Pod] = Store()
        self.client = Client(self.server, VirtualClock())
        self.events = EventRecorder(self.client, NAME)
        self.reconcile = LaunchBarrierReconciler(self.client, self.pods, self.events)
        self.ready: set[str] = set()
        self.uid = "u1"
        self.report()

    def report(self, *ready: str) -> None:
        """The kubelet reports these containers as ready too, and the watch shows it."""
        self.ready |= set(ready)
        present = self.server.objects.get(pod_path(), {}).get("metadata", {}).get("annotations", {})
        metadata = {"uid": self.uid, "annotations": present}
        self.server.put(pod_path(), ordered(self.order, self.ready, metadata=metadata))
        self.server.show(self.pods, decode_pod)

    @property
    def data(self) -> dict[str, str]:
        found: dict[str, str] = self.server.objects.get(CONFIG_MAP, {}).get("data", {})
        return found

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.server.objects[pod_path()]["metadata"]["annotations"]
        return found


@virtual
@pytest.mark.behaviour("PM-145", "PM-147", "PM-148")
async def test_each_step_adds_a_key_and_a_pod_annotation_that_wakes_the_kubelet() -> None:
    setting = Setting()
    await setting.reconcile(KEY)
    assert setting.data == {"p_5": "true"}
    await setting.reconcile(KEY)  # an event that changes nothing
    setting.report("a")
    await setting.reconcile(KEY)
    assert setting.data == {"p_5": "true", "p_3": "true"}
    assert setting.annotations == {CURRENT: "3"}
    setting.report("b")
    await setting.reconcile(KEY)
    assert setting.data == {"p_5": "true", "p_3": "true", "p_0": "true"}
    assert setting.annotations == {COMPLETED: "true"}
    await setting.reconcile(KEY)  # the cache does not show the annotation yet
    assert setting.server.writes() == [CREATE, ADD, ANNOTATE, ADD, ANNOTATE]


@virtual
@pytest.mark.behaviour("PM-150")
async def test_a_long_wait_is_reported_on_the_pod_at_growing_intervals() -> None:
    setting = Setting()
    times = []
    result = await setting.reconcile(KEY)
    for _ in range(7):
        assert result is not None
        times.append(result.requeue_after)
        await setting.client.clock.sleep(result.requeue_after)
        result = await setting.reconcile(KEY)
    assert times == [30, 60, 120, 240, 480, 600, 600]
    async with running(setting.events.run()):
        assert await setting.events.flush(60)
    (event,) = [obj for path, obj in setting.server.objects.items() if "/events/" in path]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "LaunchPriorityWaiting", 7)
    assert event["message"] == "b, c cannot start until a (launch priority 5) is ready"
    assert event["involvedObject"]["kind"] == "Pod"
    assert "p_3" not in setting.data


@virtual
@pytest.mark.behaviour("PM-148", "PM-149")
async def test_a_pod_is_not_completed_while_its_last_key_is_refused() -> None:
    """Its last container would never start: completed Pods are not looked at again."""
    setting = Setting({"a": 1, "b": 0})
    await setting.reconcile(KEY)
    setting.report("a")
    refusal = json_response(409, status_body(409, "Conflict"))
    setting.server.fail = lambda request: refusal if f"{request.method} {request.path}" == ADD else None
    with pytest.raises(Conflict):
        await setting.reconcile(KEY)
    assert COMPLETED not in setting.annotations
    setting.server.fail = lambda _: None
    await setting.reconcile(KEY)
    assert setting.annotations[COMPLETED] == "true"
    assert setting.data == {"p_1": "true", "p_0": "true"}


class Kubelet:
    """Starts a container as soon as its key is there, and notes the order; ready some steps later."""

    def __init__(self, setting: Setting, rng: random.Random) -> None:
        self.setting = setting
        self.rng = rng
        self.started: list[str] = []

    def step(self) -> None:
        for name, priority in self.setting.order.items():
            if name in self.started or (priority is not None and f"p_{priority}" not in self.setting.data):
                continue
            if priority is not None:
                higher = {n for n, p in self.setting.order.items() if p is not None and p > priority}
                assert higher <= self.setting.ready, f"{name} starts before {higher - self.setting.ready} are ready"
            self.started.append(name)
        waiting = [name for name in self.started if name not in self.setting.ready]
        if waiting and self.rng.random() < 0.7:
            self.setting.report(self.rng.choice(waiting))


@given(st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(-3, 3), min_size=2), st.integers(0, 2**32))
@pytest.mark.behaviour("PM-145", "PM-148")
@virtual
async def test_containers_start_in_order_despite_failures_and_restarts(order: dict[str, int | None], seed: int) -> None:
    rng = random.Random(seed)
    setting = Setting(order)

    def unreliable(request: Request) -> Response | None:
        if rng.random() < 0.8:
            return None
        if rng.random() < 0.5:
            setting.server._answer(request)  # done, but the answer is lost
        return json_response(500, status_body(500, "InternalError"))

    setting.server.fail = unreliable
    kubelet, failures = Kubelet(setting, rng), 0
    for _ in range(400):
        if rng.random() < 0.1:
            setting.reconcile = LaunchBarrierReconciler(setting.client, setting.pods, setting.events)
        try:
            await setting.reconcile(KEY)
        except ServerError:
            failures += 1  # the queue would try again
        kubelet.step()
        if setting.ready == set(order):
            break
    assert sorted(kubelet.started) == sorted(order), f"after {failures} failures"
    assert setting.data == {f"p_{p}": "true" for p in order.values() if p is not None}


@virtual
async def test_pods_without_order_cause_no_requests() -> None:
    setting = Setting({"a": None, "b": None})
    await setting.reconcile(KEY)
    assert setting.server.requests == []
