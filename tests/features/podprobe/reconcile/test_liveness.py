"""Failed liveness probes create restart requests: the manager, its webhooks and agents on simulated nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.podprobe.kind import NODE_POD_PROBE
from app.features.podprobe.objects import NodePodProbe, decode_node_pod_probe
from app.features.podprobe.plan.liveness import OWNER, Failure
from app.features.podprobe.plan.probes import replace_probes
from app.features.podprobe.reconcile import liveness
from app.features.podprobe.reconcile.liveness import (
    BY_LIVENESS_NODE,
    BY_REQUESTED_POD,
    RETRY_SECONDS,
    Caches,
    LivenessReconciler,
    liveness_nodes,
    requested_pods,
)
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from app.kube.objects import OwnerReference, Pod
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Store
from app.pods.disruption_budget import NoBudget
from app.pods.predicates import BY_CONTROLLER, controller_keys
from tests.features.podprobe.liveness_seeds import clone_set
from tests.kit import objects
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, virtual
from tests.managed import events_of, in_managed, restart_requests, unresponsive_nodes
from tests.sandbox.cluster import Simulated

Json = dict[str, Any]
SETS = CLONE_SET.resource()
BUDGETS, NODE_PROBES = POD_UNAVAILABLE_BUDGET.resource(), NODE_POD_PROBE.resource()
GATE = "--feature-gates=EnhancedLivenessProbe=true"

PROBE = {"exec": {"command": ["cat", "/alive"]}, "periodSeconds": 2, "failureThreshold": 2}


def container(command: str = "touch /alive; sleep 60; rm /alive; sleep 1000000", **more: Any) -> Json:
    """A container, by default one that stays healthy for a minute after each start."""
    run = ["/bin/sh", "-c", command]
    return {"name": "main", "image": "busybox:1.36", "command": run, "livenessProbe": PROBE, **more}


async def started(there: Simulated, *containers: Json) -> list[Json]:
    """Create a CloneSet with one Pod. Return the Pod once it is ready."""
    await there.create(SETS, clone_set(1, *containers))
    await there.status(SETS, "web", readyReplicas=1)
    return await there.pods("app=web")


async def restarted(there: Simulated, count: int, seconds: float = 120) -> None:
    """Wait until containers were restarted this often."""

    async def look() -> bool:
        statuses = [pod["status"]["containerStatuses"] for pod in await there.pods("app=web")]
        return sum(one["restartCount"] for each in statuses for one in each) >= count

    await there.until(look, seconds)


@pytest.mark.behaviour("PW-18")
@in_managed
async def test_with_the_gate_off_the_kubelet_runs_the_probes(there: Simulated) -> None:
    (pod,) = await started(there, container())
    assert "livenessProbe" in pod["spec"]["containers"][0]
    await restarted(there, 1)
    assert not await restart_requests(there)


@pytest.mark.behaviour("PPM-53")
@in_managed(GATE)
async def test_an_unavailable_pod_may_be_restarted_without_counting(there: Simulated) -> None:
    unready = {"exec": {"command": ["cat", "/ready"]}, "periodSeconds": 1}
    command = "touch /alive; sleep 60; rm /alive; sleep 1000; touch /ready; sleep 1000000"
    await there.create(SETS, clone_set(2, container(command=command, readinessProbe=unready)))
    await restarted(there, 2)
    for pod in await there.pods("app=web"):
        held = await events_of(there, pod["metadata"]["name"], "LivenessRestartHeldBack")
        assert not [one["message"] for one in held]


@pytest.mark.behaviour("PPM-54", "PPM-55")
@in_managed(f"{GATE},PodUnavailableBudgetUpdateGate=true")
async def test_an_exhausted_budget_delays_restarts(there: Simulated) -> None:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0}
    head = {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind}
    await there.create(BUDGETS, {**head, "metadata": {"name": "none"}, "spec": spec})
    await there.client.clock.sleep(1)
    (pod,) = await started(there, container())
    await there.client.clock.sleep(90)
    assert not await restart_requests(there)
    (event,) = await events_of(there, pod["metadata"]["name"], "LivenessRestartHeldBack")
    assert "none" in event["message"]
    await there.patch(BUDGETS, "none", {"spec": {"maxUnavailable": 1}})
    await restarted(there, 1)


@pytest.mark.behaviour("PPM-50")
@in_managed(GATE)
async def test_probes_wait_for_the_startup_probe_and_end_with_the_pod(there: Simulated) -> None:
    startup = {"exec": {"command": ["cat", "/up"]}, "periodSeconds": 1, "failureThreshold": 100}
    slow = container(command="sleep 30; touch /up /alive; sleep 1000000", startupProbe=startup)
    await there.create(SETS, clone_set(1, slow))
    await there.client.clock.sleep(20)
    (pod,) = await there.pods("app=web")

    async def probed() -> bool:
        found = await there.get(NODE_PROBES, pod["spec"]["nodeName"])
        return bool(found.get("spec", {}).get("podProbes"))

    assert not await probed()
    await there.status(SETS, "web", readyReplicas=1)
    await there.client.clock.sleep(2)
    assert await probed()
    await there.client.clock.sleep(60)
    assert not await restart_requests(there)
    await there.patch(SETS, "web", {"spec": {"replicas": 0}})
    await there.becomes(probed, False)


@pytest.mark.behaviour("PPM-50")
@in_managed("--feature-gates=EnhancedLivenessProbe=true,PodProbeMarkerGate=false")
async def test_liveness_needs_no_marker_gate(there: Simulated) -> None:
    await started(there, container())
    await restarted(there, 1)
    assert await restart_requests(there)


@pytest.mark.behaviour("PPM-52")
@in_managed(GATE)
async def test_an_unresponsive_node_is_asked_again(there: Simulated) -> None:
    async with unresponsive_nodes(there):
        await started(there, container())
    await restarted(there, 1, 400)


@pytest.mark.behaviour("PPM-52")
@in_managed(GATE)
async def test_a_pod_deleted_meanwhile_is_ignored(there: Simulated) -> None:
    (pod,) = await started(there, container())
    await there.client.clock.sleep(61)
    await there.client.delete(PODS, pod["metadata"]["name"], "default")
    await there.client.clock.sleep(20)
    assert not any(pod["metadata"]["uid"] in name for name in await restart_requests(there))


@pytest.mark.behaviour("PPM-53")
@virtual
async def test_the_pods_of_a_workload_are_counted_once_for_all_its_failing_containers() -> None:
    owner = objects.reference("apps.kruise.io/v1beta1", "CloneSet", "web")
    pods: Store[Pod] = Store({BY_CONTROLLER: controller_keys})
    pods.replace([objects.pod(f"web-{number}", ready=True, ownerReferences=[owner]) for number in range(100)])
    client = Client(MemoryServer(), VirtualClock())
    counted = 0

    def least_available(_owner: OwnerReference, _namespace: str) -> int:
        nonlocal counted
        counted += 1
        return 100

    caches = Caches(pods, Store(), Store({BY_REQUESTED_POD: requested_pods}))
    reconciler = LivenessReconciler(client, caches, EventRecorder(client, "test"), NoBudget(), [least_available])
    for _ in range(2):
        for pod in pods.list():
            assert not await reconciler._restart(pod, Failure("main", "containerd://c", 0, "failed"))
        await client.clock.sleep(RETRY_SECONDS)
    assert counted == 2


@pytest.mark.behaviour("PPM-53")
@virtual
async def test_a_restart_that_fails_delays_no_other_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of a tenant may forbid requests, and the back-off of a node's key would grow to a quarter of an hour."""
    pods: Store[Pod] = Store({BY_LIVENESS_NODE: liveness_nodes})
    probes: Store[NodePodProbe] = Store()
    probes.put(decode_node_pod_probe(b'{"metadata": {"name": "n1"}}'))
    for namespace in ("evil", "shop"):
        metadata = {"namespace": namespace, "uid": namespace, "annotations": {names.CONTAINER_PROBE_CONTEXT: "[]"}}
        pods.put(objects.pod(node="n1", conditions=[{"type": "Initialized", "status": "True"}], **metadata))
    tried: Counter[str] = Counter()

    async def restart(pod: Pod, _failure: Failure) -> bool:
        tried[pod.metadata.namespace] += 1
        if pod.metadata.namespace == "evil":
            raise KubeError("exceeded quota")
        return False

    client = Client(MemoryServer(), VirtualClock())
    reconciler = LivenessReconciler(
        client, Caches(pods, probes, Store()), EventRecorder(client, "test"), NoBudget(), []
    )
    monkeypatch.setattr(reconciler, "_restart", restart)
    monkeypatch.setattr(liveness, "failures", lambda *_: [Failure("main", "containerd://c", 0, "failed")])
    while client.clock.monotonic() < 60:
        found = await reconciler(ObjectKey("", "n1"))
        assert found == Result(requeue_after=RETRY_SECONDS)
        await client.clock.sleep(found.requeue_after)
    assert tried == {"evil": 5, "shop": 30}


def test_a_request_counts_for_its_own_namespace_only() -> None:
    """Users control the label with the Pod's UID, so it may match a Pod of another namespace."""
    body: Json = {"spec": {"podName": "p", "containers": [{"name": "main"}]}}
    keys = []
    for namespace in ("shop", "evil"):
        metadata = {"name": "r", "namespace": namespace, "labels": {names.CRR_POD_UID: "u1"}}
        keys += requested_pods(ContainerRecreateRequest.model_validate({**body, "metadata": metadata}))
    assert keys == ["shop/u1", "evil/u1"]


@pytest.mark.behaviour("PPM-46")
def test_liveness_probes_of_one_namespace_leave_room_for_others() -> None:
    """A NodePodProbe holds the probes of all Pods of a node, and users control their number."""
    large = {"name": f"{OWNER}#main-0", "containerName": "main", "probe": {"exec": {"command": ["x" * 100_000]}}}
    small = {**large, "probe": PROBE}
    wanted: dict[str, Json] = {}
    asked = [("evil", "a", large), ("evil", "b", large), ("evil", "c", large), ("shop", "a", small)]
    for namespace, name, probe in asked:
        uid = f"{namespace}-{name}"
        wanted[uid] = {"namespace": namespace, "name": name, "uid": uid, "IP": "10.0.0.1", "probes": [probe]}
    spec: Json = {}
    assert replace_probes(spec, None, OWNER, wanted) == ["b", "c"]
    assert [one["uid"] for one in spec["podProbes"]] == ["evil-a", "shop-a"]
