import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.resources import CONFIGMAPS, LEASES, NODES, PODS
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.kubelets import PodAddresses
from app.sandbox.nodes import LEASE_NAMESPACE, Nodes, main, simulated_nodes
from tests.kit.cluster import Waiting, scenarios
from tests.kit.transports import Counting
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body


class Cluster(Waiting):
    """An API server and nodes, and nothing else. ``sent``: the requests of the nodes."""

    def __init__(self, client: Client, sent: Counting, nodes: Nodes) -> None:
        self.client, self.clock, self.sent, self.nodes = client, client.clock, sent, nodes

    async def create(self, name: str, *, node: str = "", finalizers: list[str] | None = None, **spec: Any) -> None:
        metadata = {"name": name, "finalizers": finalizers or []}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "a:1"}]} | spec
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, "default")

    async def pod(self, name: str) -> dict[str, Any]:
        return await self.client.get(PODS, name, "default")

    async def phase(self, name: str = "web-0") -> str:
        """Return the phase of the Pod; empty if there is none."""
        try:
            return str((await self.pod(name))["status"]["phase"])
        except NotFound:
            return ""

    def writes(self, name: str = "web-0") -> list[str]:
        """Return the writes of the Pod: the method, and the subresource if there is one."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        lines = (line.split(" ") for line in self.sent.requests if not line.startswith("GET"))
        return [f"{verb} {where.removeprefix(path)}".strip() for verb, where in lines if where.startswith(path)]


@asynccontextmanager
async def cluster_of(number: int = 3, *, bind: bool = False, pace: Pace | None = None) -> AsyncIterator[Cluster]:
    clock = VirtualClock()
    api = ApiServer(clock=clock, rng=Random(1))
    sent = Counting(api.transport())
    nodes = Nodes(Client(sent, clock), simulated_nodes(number), rng=Random(1), bind=bind, pace=pace)
    there = Cluster(Client(api.transport(), clock), sent, nodes)
    async with running(nodes.run()):
        await there.until(lambda: nodes.pods.ready)
        yield there
    api.close()


in_cluster = scenarios(cluster_of)


@in_cluster
async def test_nodes_are_registered_ready_and_untainted_and_have_leases(there: Cluster) -> None:
    node = await there.client.get(NODES, "node2")
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node2"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert not node["spec"].get("taints")
    assert (await there.client.get(LEASES, "node3", LEASE_NAMESPACE))["spec"]["holderIdentity"] == "node3"
    # Register again, as after a crash that left the nodes behind.
    await there.nodes.register()
    await there.nodes.remove()
    assert (await there.client.list(NODES)).items == (await there.client.list(LEASES)).items == []


@in_cluster(1)
async def test_heartbeats_continue_after_a_failure(there: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def renewed() -> str:
        return str((await there.client.get(LEASES, "node1", LEASE_NAMESPACE))["spec"]["renewTime"])

    async def renewed_again() -> bool:
        return await renewed() > first

    first = await renewed()
    there.sent.intercept = lambda _: json_response(500, status_body(500, "InternalError", "etcd is away"))
    await there.until(lambda: "etcd is away" in caplog.text, 15)
    there.sent.intercept = lambda _: None
    await there.until(renewed_again, 15)
    assert "Node node1: failed to renew the lease" in caplog.text


@in_cluster
async def test_a_bound_pod_runs_after_one_request_and_is_gone_after_another(there: Cluster) -> None:
    await there.create("web-0", node="node1")
    await there.create("elsewhere", node="real-node")
    await there.create("unbound")
    await there.becomes(there.phase, "Running", 1)
    await there.client.delete(PODS, "web-0", "default")
    await there.becomes(there.phase, "", 1)
    await asyncio.sleep(60)
    assert there.writes() == ["PATCH /status", "DELETE"]
    assert there.writes("elsewhere") == there.writes("unbound") == []


@in_cluster(bind=True)
async def test_pods_are_bound_evenly_without_a_scheduler(there: Cluster) -> None:
    for number in range(30):
        await there.create(f"web-{number}")

    async def pods() -> list[dict[str, Any]]:
        return (await there.client.list(PODS)).items

    async def running_pods() -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in await pods())

    await there.becomes(running_pods, 30, 1)
    assert Counter(pod["spec"]["nodeName"] for pod in await pods()) == {"node1": 10, "node2": 10, "node3": 10}
    assert len({pod["status"]["podIP"] for pod in await pods()}) == 30
    assert there.writes("web-7") == ["POST /binding", "PATCH /status"]
    for number in range(30):
        await there.client.delete(PODS, f"web-{number}", "default")
    await there.becomes(pods, [], 1)
    assert there.nodes.scheduler is not None
    assert not any(info.pods or +Counter(info.used) for info in there.nodes.scheduler._infos.values())
    assert not there.nodes.kubelets._states


@in_cluster(bind=True)
async def test_an_unschedulable_pod_has_a_condition_until_a_node_fits(there: Cluster) -> None:
    await there.create("web-0", nodeSelector={"disk": "ssd"})
    await there.create("gated", schedulingGates=[{"name": "wait"}])
    await there.until(there.writes, 1)
    [condition] = (await there.pod("web-0"))["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "Unschedulable",
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    )
    await asyncio.sleep(60)
    assert len(there.writes()) == 1
    await there.client.patch(NODES, "node2", {"metadata": {"labels": {"disk": "ssd"}}})
    await there.becomes(there.phase, "Running", 1)
    assert await there.phase("gated") == "Pending"


@in_cluster
async def test_a_key_added_to_a_config_map_starts_the_container(there: Cluster) -> None:
    env = [{"name": "BARRIER", "valueFrom": {"configMapKeyRef": {"name": "web-0-barrier", "key": "p_1"}}}]
    await there.create("web-0", node="node1", containers=[{"name": "main", "image": "a", "env": env}])
    await there.until(there.writes, 1)
    await there.client.create(CONFIGMAPS, {"metadata": {"name": "web-0-barrier"}}, "default")
    await asyncio.sleep(1)
    assert await there.phase() == "Pending"
    await there.client.patch(CONFIGMAPS, "web-0-barrier", {"data": {"p_1": "true"}}, "default")
    await there.becomes(there.phase, "Running", 1)


@in_cluster(pace=Pace(start=5))
async def test_containers_start_at_the_configured_rate(there: Cluster) -> None:
    await there.create("web-0", node="node1")
    await asyncio.sleep(4)
    assert await there.phase() == "Pending"
    await there.becomes(there.phase, "Running", 2)
    assert there.writes() == ["PATCH /status"] * 2


@in_cluster
async def test_a_pod_held_by_a_finalizer_is_released_once(there: Cluster) -> None:
    await there.create("web-0", node="node1", finalizers=["example.com/hold"])
    await there.becomes(there.phase, "Running", 1)
    await there.client.delete(PODS, "web-0", "default")
    await there.becomes(there.phase, "Succeeded", 1)
    await asyncio.sleep(60)
    assert (await there.pod("web-0"))["metadata"]["deletionGracePeriodSeconds"] == 0
    assert there.writes()[1:] == ["PATCH /status", "DELETE"]


@in_cluster
async def test_a_new_pod_with_a_reused_name_is_a_different_pod(there: Cluster) -> None:
    for _ in range(3):
        await there.create("web-0", node="node1")
        await there.becomes(there.phase, "Running", 1)
        await there.client.delete(PODS, "web-0", "default", grace_period_seconds=0)


def test_no_address_is_used_twice() -> None:
    book = PodAddresses({"node1": 0, "node2": 1})
    given = [book.take("node1") for _ in range(65533)]
    assert len(set(given)) == len(given)
    assert not set(given) & {book.take("node2")}
    book.in_use.discard(given[5])
    assert book.take("node1") in (given[5], "10.1.0.1")


def test_nodes_rotate_through_zones() -> None:
    nodes = simulated_nodes(3, prefix="n", zones=["a", "b"])
    assert [(node.name, node.labels["topology.kubernetes.io/zone"]) for node in nodes] == [
        ("n1", "a"),
        ("n2", "b"),
        ("n3", "a"),
    ]
    assert len({node.address for node in simulated_nodes(600)}) == 600


def test_the_command_names_a_kubeconfig_it_cannot_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    # The command would change the log of all tests.
    monkeypatch.setattr("app.sandbox.nodes.logs.configure", lambda *_: None)
    missing = tmp_path / "missing"
    assert main(["--kubeconfig", str(missing)]) == 1
    assert str(missing) in caplog.text
    unusable = tmp_path / "empty"
    unusable.write_text(json.dumps({}))
    assert main(["--kubeconfig", str(unusable)]) == 1


def test_the_command_refuses_an_impossible_number_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--nodes", "0"])
    assert "--nodes" in capsys.readouterr().err
