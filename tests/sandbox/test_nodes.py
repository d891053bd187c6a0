import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pytest

from app.kube.client import Client
from app.kube.objects import decode_config_map
from app.kube.patches import merge_patch
from app.kube.resources import ObjectKey
from app.kube.store import Store
from app.kube.wire import Request, Response
from app.sandbox.kubelet.program import Pace
from app.sandbox.kubelets import PodAddresses
from app.sandbox.nodes import Nodes, main, simulated_nodes
from app.sandbox.objects import decode_node, decode_pod
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body, until, virtual

SHOP = "/api/v1/namespaces/shop"


@dataclass
class Cluster:
    """An in-memory API server for kubelets; writes appear in their stores at once."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fail: Callable[[Request], Response | None] = lambda request: None
    version: int = 0
    nodes: Nodes = field(init=False)

    def pod(self, name: str, *, node: str = "", **spec: Any) -> dict[str, Any]:
        body = {
            "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}-{self.version}", "generation": 1},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "a:1"}]} | spec,
            "status": {"phase": "Pending"},
        }
        return self.store(f"{SHOP}/pods/{name}", body)

    def found(self, name: str) -> dict[str, Any]:
        return self.objects[f"{SHOP}/pods/{name}"]

    def phase(self, name: str) -> str:
        return str(self.found(name)["status"].get("phase"))

    def writes(self, name: str) -> list[str]:
        return [f"{r.method} {r.path.removeprefix(SHOP)}" for r in self.requests if f"/pods/{name}" in r.path]

    def ask_to_delete(self, name: str, **metadata: Any) -> None:
        """Delete a bound Pod gracefully."""
        found = self.found(name)
        change = {"deletionTimestamp": "2030-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30} | metadata
        self.store(f"{SHOP}/pods/{name}", found | {"metadata": found["metadata"] | change})

    def store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        self.objects[path] = stored
        raw = orjson.dumps(stored)
        kubelets = self.nodes.kubelets
        if "/pods/" in path:
            kubelets.pods.put(decode_pod(raw))
        elif "/configmaps/" in path:
            kubelets.config_maps.put(decode_config_map(raw))
        elif "/nodes/" in path and self.nodes.scheduler is not None:
            self.nodes.scheduler.nodes.put(decode_node(raw))
        return stored

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        await asyncio.sleep(0.001)
        answer = self.fail(request)
        return answer if answer is not None else self._answer(request)

    def _answer(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else {}
        path = request.path.removesuffix("/status")
        if request.path.endswith("/binding"):
            path = request.path.removesuffix("/binding")
            found = self.objects[path]
            self.store(path, found | {"spec": found["spec"] | {"nodeName": body["target"]["name"]}})
            return json_response(201, {"kind": "Status"})
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return json_response(409, status_body(409, "AlreadyExists"))
            return json_response(201, self.store(path, body))
        found = self.objects.get(path, {})
        if not found:
            return json_response(404, status_body(404, "NotFound"))
        if request.method == "DELETE":
            return self._delete(path, found, body)
        if body.get("metadata", {}).get("uid", found["metadata"].get("uid")) != found["metadata"].get("uid"):
            return json_response(409, status_body(409, "Conflict"))
        conditions = body.get("status", {}).pop("conditions", [])
        by_type = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
        for condition in conditions:
            by_type[condition["type"]] = merge_patch(by_type.get(condition["type"], {}), condition)
        merged = merge_patch(found, body)
        if by_type:
            merged["status"]["conditions"] = list(by_type.values())
        return json_response(200, self.store(path, merged))

    def _delete(self, path: str, found: dict[str, Any], body: dict[str, Any]) -> Response:
        if found["metadata"].get("finalizers"):
            self.store(path, found | {"metadata": found["metadata"] | {"deletionGracePeriodSeconds": 0}})
        else:
            del self.objects[path]
            if "/pods/" in path:
                self.nodes.kubelets.pods.remove(ObjectKey("shop", found["metadata"]["name"]))
        return json_response(200, {"kind": "Status"})

    def stream(self, request: Request) -> Any:
        raise AssertionError("the stores are filled by hand")

    async def close(self) -> None:
        return None

    @asynccontextmanager
    async def working(self, number: int = 3, *, bind: bool = False, pace: Pace | None = None) -> AsyncIterator[None]:
        """Register the nodes and run their kubelets."""
        client = Client(self, VirtualClock())
        self.nodes = Nodes(client, simulated_nodes(number), rng=Random(1), bind=bind, pace=pace)
        kubelets = self.nodes.kubelets
        await self.nodes.register()
        scheduler = self.nodes.scheduler
        stores: list[Store[Any]] = [kubelets.pods, kubelets.config_maps, kubelets.secrets]
        if scheduler is not None:
            stores += [scheduler.nodes, scheduler.claims, scheduler.namespaces]
        for store in stores:
            store._ready.set()
        controllers = [kubelets.controller.run(), *([scheduler.controller.run()] if scheduler is not None else [])]
        async with running(*controllers):
            yield


@virtual
async def test_nodes_are_registered_ready_and_untainted_and_have_leases() -> None:
    cluster = Cluster()
    async with cluster.working():
        node = cluster.objects["/api/v1/nodes/node2"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node2"
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
        assert "taints" not in node.get("spec", {})
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert cluster.objects[f"{leases}/node3"]["spec"]["holderIdentity"] == "node3"
        # Register again, as after a crash that left the nodes behind.
        await cluster.nodes.register()
        await cluster.nodes.remove()
        assert cluster.objects == {}


@virtual
async def test_heartbeats_continue_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    async with cluster.working(1):
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1"
        first = cluster.objects[lease]["spec"]["renewTime"]
        cluster.fail = lambda request: json_response(500, status_body(500, "InternalError", "etcd is away"))
        async with running(cluster.nodes._heartbeats()):
            await until(lambda: "etcd is away" in caplog.text, 15)
            cluster.fail = lambda request: None
            await until(lambda: cluster.objects[lease]["spec"]["renewTime"] > first, 15)
    assert "Node node1: failed to renew the lease" in caplog.text


@virtual
async def test_a_bound_pod_runs_after_one_request_and_is_gone_after_another() -> None:
    cluster = Cluster()
    async with cluster.working():
        cluster.pod("web-0", node="node1")
        cluster.pod("elsewhere", node="real-node")
        cluster.pod("unbound")
        await until(lambda: cluster.phase("web-0") == "Running", 1)
        cluster.ask_to_delete("web-0")
        await until(lambda: f"{SHOP}/pods/web-0" not in cluster.objects, 1)
        await asyncio.sleep(60)
    assert cluster.writes("web-0") == ["PATCH /pods/web-0/status", "DELETE /pods/web-0"]
    assert cluster.writes("elsewhere") == cluster.writes("unbound") == []


@virtual
async def test_pods_are_bound_evenly_without_a_scheduler() -> None:
    cluster = Cluster()
    async with cluster.working(bind=True):
        for number in range(30):
            cluster.pod(f"web-{number}")
        await until(lambda: all(cluster.phase(f"web-{n}") == "Running" for n in range(30)), 1)
        assert Counter(cluster.found(f"web-{n}")["spec"]["nodeName"] for n in range(30)) == {
            "node1": 10,
            "node2": 10,
            "node3": 10,
        }
        addresses = {cluster.found(f"web-{n}")["status"]["podIP"] for n in range(30)}
        assert len(addresses) == 30
        for number in range(30):
            cluster.ask_to_delete(f"web-{number}")
        await until(lambda: not any("/pods/" in path for path in cluster.objects), 1)
        assert cluster.nodes.scheduler is not None
        assert not any(info.pods or +Counter(info.used) for info in cluster.nodes.scheduler._infos.values())
        assert not cluster.nodes.kubelets._states
    assert cluster.writes("web-7")[:2] == ["POST /pods/web-7/binding", "PATCH /pods/web-7/status"]


@virtual
async def test_an_unschedulable_pod_has_a_condition_until_a_node_fits() -> None:
    cluster = Cluster()
    async with cluster.working(bind=True):
        cluster.pod("web-0", nodeSelector={"disk": "ssd"})
        cluster.pod("gated", schedulingGates=[{"name": "wait"}])
        await until(lambda: cluster.found("web-0")["status"].get("conditions"), 1)
        [condition] = cluster.found("web-0")["status"]["conditions"]
        assert (condition["reason"], condition["message"]) == (
            "Unschedulable",
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. "
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        )
        await asyncio.sleep(60)
        assert len(cluster.writes("web-0")) == 1
        node = cluster.objects["/api/v1/nodes/node2"]
        labels = node["metadata"]["labels"] | {"disk": "ssd"}
        cluster.store("/api/v1/nodes/node2", node | {"metadata": node["metadata"] | {"labels": labels}})
        await until(lambda: cluster.phase("web-0") == "Running", 1)
        assert cluster.phase("gated") == "Pending"


@virtual
async def test_a_key_added_to_a_config_map_starts_the_container() -> None:
    env = [{"name": "BARRIER", "valueFrom": {"configMapKeyRef": {"name": "web-0-barrier", "key": "p_1"}}}]
    cluster = Cluster()
    async with cluster.working():
        cluster.pod("web-0", node="node1", containers=[{"name": "main", "image": "a", "env": env}])
        await until(lambda: "containerStatuses" in cluster.found("web-0")["status"], 1)
        metadata = {"name": "web-0-barrier", "namespace": "shop", "uid": "c"}
        cluster.store(f"{SHOP}/configmaps/web-0-barrier", {"metadata": metadata, "data": {}})
        await asyncio.sleep(1)
        assert cluster.phase("web-0") == "Pending"
        cluster.store(f"{SHOP}/configmaps/web-0-barrier", {"metadata": metadata, "data": {"p_1": "true"}})
        await until(lambda: cluster.phase("web-0") == "Running", 1)


@virtual
async def test_containers_start_at_the_configured_rate() -> None:
    cluster = Cluster()
    async with cluster.working(pace=Pace(start=5)):
        cluster.pod("web-0", node="node1")
        await asyncio.sleep(4)
        assert cluster.phase("web-0") == "Pending"
        await until(lambda: cluster.phase("web-0") == "Running", 2)
    assert cluster.writes("web-0") == ["PATCH /pods/web-0/status"] * 2


@virtual
async def test_a_pod_held_by_a_finalizer_is_released_once() -> None:
    cluster = Cluster()
    async with cluster.working():
        cluster.pod("web-0", node="node1")
        await until(lambda: cluster.phase("web-0") == "Running", 1)
        cluster.ask_to_delete("web-0", finalizers=["example.com/hold"])
        await until(lambda: cluster.found("web-0")["metadata"]["deletionGracePeriodSeconds"] == 0, 1)
        await asyncio.sleep(60)
        assert cluster.phase("web-0") == "Succeeded"
    assert cluster.writes("web-0")[1:] == ["PATCH /pods/web-0/status", "DELETE /pods/web-0"]


@virtual
async def test_a_new_pod_with_a_reused_name_is_a_different_pod() -> None:
    cluster = Cluster()
    async with cluster.working():
        for _ in range(3):
            cluster.pod("web-0", node="node1")
            await until(lambda: cluster.phase("web-0") == "Running", 1)


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
