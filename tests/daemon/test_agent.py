"""The whole agent: its watches, its choice of a runtime and its handling of hostile objects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.daemon.agent import Agent, Features
from app.daemon.cri.types import ContainerState
from app.daemon.metrics import Metrics
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES, RECREATE_REQUESTS
from app.kube.client import Client
from app.kube.errors import RequestInfo, TransportError
from app.kube.reflector import StorageRestored
from app.kube.resources import PODS
from app.kube.wire import Request
from tests.daemon.node import NAMESPACE, NODE, Listening, Node, node_with_agent, on_bare_node, on_node, pod_probe, tag
from tests.kit.runtime import SimulatedRuntime
from tests.kube.fakes import running, virtual


class Watching:
    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.watched: set[tuple[str, str]] = set()
        self.down = True

    async def request(self, request: Request) -> Any:
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> Any:
        if self.down:
            raise TransportError(RequestInfo(request.method, request.path), "connection refused")
        selector = request.query.get("fieldSelector") or request.query.get("labelSelector", "")
        self.watched.add((request.path.rpartition("/")[2], selector))
        async with self.inner.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.behaviour("KD-3", "KD-5")
@pytest.mark.parametrize("less", [False, True])
@on_bare_node
async def test_the_agent_watches_only_objects_of_its_node(one: Node, less: bool) -> None:
    transport = Watching(one.api.transport())
    features = Features(probes=False, pods=False) if less else None
    agent = Agent(NODE, Client(transport, one.clock), [one.runtime], Random(1), features=features)
    async with running(agent.run()):
        await one.clock.sleep(300)
        assert agent.failing() == "nodeImageInformerSynced has not synced yet"
        transport.down = False
        own = {
            ("nodeimages", f"metadata.name={NODE}"),
            ("containerrecreaterequests", f"crr.apps.kruise.io/node-name={NODE},crr.apps.kruise.io/active=true"),
        }
        more = {("nodepodprobes", f"metadata.name={NODE}"), ("pods", f"spec.nodeName={NODE}")}
        await one.becomes(lambda: transport.watched, own if less else own | more)
        await one.node_image(nginx={"tags": [tag("1")]})
        await one.pulled("nginx", **{"1": "Succeeded"})
        assert agent.failing() == ""


@pytest.mark.behaviour("KD-4")
@pytest.mark.parametrize("probes", [True, False])
@on_bare_node
async def test_the_agent_is_unhealthy_until_each_cache_is_filled(one: Node, probes: bool) -> None:
    agent, said = one.agent(features=Features(probes=probes)), []
    for store in (agent.node_images, agent.requests, agent.node_pod_probes):
        said.append(agent.failing().partition(" ")[0])
        store.replace(())  # type: ignore[arg-type]
    assert said == ["nodeImageInformerSynced", "crrInformerSynced", "nodePodProbeInformerSynced" if probes else ""]
    assert agent.failing() == ""


@pytest.mark.behaviour("KD-12")
@on_bare_node
async def test_container_ids_select_the_runtime_of_a_request(one: Node) -> None:
    other = SimulatedRuntime(one.clock, name="cri-o")
    agent = Agent(NODE, one.client, [one.runtime, other], Random(1))
    pod = await one.pod({"name": "app"})
    second = other.start(pod["metadata"]["uid"], "app")
    pod["status"]["containerStatuses"][0]["containerID"] = f"cri-o://{second.id}"
    await one.request(pod, "app")
    await one.node_image(nginx={"tags": [tag("1")]})
    async with running(agent.run()):
        await one.pulled("nginx", **{"1": "Succeeded"})
        await one.clock.sleep(10)
    assert (len(one.runtime.pulls), len(other.pulls)) == (1, 0)
    assert (len(one.runtime.stops), len(other.stops)) == (0, 1)


@pytest.mark.behaviour("KD-91")
@virtual
async def test_a_pod_is_probed_at_its_current_address() -> None:
    network = Listening()
    async with node_with_agent(network=network) as (one, _):
        pod = await one.pod({"name": "main"})
        await one.probes(pod_probe(pod, {"tcpSocket": {"port": 80}}, ip="10.0.0.9"))
        await one.clock.sleep(20)
        await one.client.patch(PODS, "web-0", {"status": {"podIP": "127.0.0.7"}}, NAMESPACE, subresource="status")
        await one.clock.sleep(20)
        assert set(network.asked) == {"127.0.0.1", "127.0.0.7"}
        await one.client.delete(PODS, "web-0", NAMESPACE, grace_period_seconds=0)
        await one.pod({"name": "main"})  # another Pod of this name
        network.asked.clear()
        await one.clock.sleep(20)
    assert set(network.asked) == {"10.0.0.9"}


@pytest.mark.behaviour("KD-2")
@on_bare_node
async def test_an_unknown_node_name_is_reported_and_waited_for(one: Node, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("nobody", one.client, [one.runtime], Random(1))
    async with running(agent.run()):
        await one.clock.sleep(3600)
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert told == [
            "NodeImage nobody does not exist: check that the manager runs and that NODE_NAME names a Ready node"
        ]
        assert agent.failing() == ""
        body = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "nobody"}}
        images = {"nginx": {"tags": [tag("1")]}}
        await one.client.create(NODE_IMAGES, {**body, "spec": {"images": images}})

        async def pulled() -> bool:
            status = (await one.client.get(NODE_IMAGES, "nobody")).get("status", {})
            return bool(status.get("succeeded") == 1)

        await one.until(pulled)


@on_node
async def test_many_hostile_objects_do_not_block_the_agent(one: Node, agent: Agent) -> None:
    pod = await one.pod({"name": "app"}, annotations={"apps.kruise.io/runtime-containers-meta": "{" * 9000})
    for number in range(5):
        body = {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ContainerRecreateRequest",
            "metadata": {
                "name": f"bad-{number}",
                "labels": {"crr.apps.kruise.io/node-name": NODE, "crr.apps.kruise.io/active": "true"},
            },
            "spec": {"podName": "web-0", "containers": [{"name": "app"}] * number},
        }
        await one.client.create(RECREATE_REQUESTS, body, NAMESPACE)
    names = {"none": "app", "": ""}
    probes = [{"name": name, "containerName": container, "probe": {}} for name, container in names.items()]
    await one.probes({**pod_probe(pod), "probes": probes})
    await one.clock.sleep(5)
    await one.request(pod, "app")
    await one.node_image(UPPER={"tags": [tag(""), tag("a b")]}, nginx={"tags": [tag("1")]})
    await one.pulled("nginx", **{"1": "Succeeded"})

    await one.until(lambda: len(one.runtime.stops) == 1)
    for number in range(5):
        status = await one.status(RECREATE_REQUESTS, f"bad-{number}")
        assert status.get("message", str(status)).startswith("failed to find runtime service: ")
    assert (await one.status(NODE_POD_PROBES)).get("podProbeStatuses")
    assert agent.failing() == ""
    assert not any(task.done() for task in asyncio.all_tasks())


@pytest.mark.behaviour("KD-4")
@virtual
async def test_queue_metrics_match_those_of_go() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    async with node_with_agent(metrics=metrics) as (one, agent):
        queues = {
            "imagepuller",
            "crr",
            "runtime_container_meta",
            "runtime_container_meta_restarter",
            "sync_node_pod_probe",
            "update_node_pod_probe_status",
        }
        assert {controller.queue.name for controller in agent.controllers} == queues
        text = metrics.exposition().decode()
        for form in (
            "workqueue_depth{%s}",
            "workqueue_adds_total{%s}",
            "workqueue_retries_total{%s}",
            'workqueue_queue_duration_seconds_bucket{le="+Inf",%s}',
            'workqueue_work_duration_seconds_bucket{le="1e-08",%s}',
            "workqueue_work_duration_seconds_sum{%s}",
            "workqueue_unfinished_work_seconds{%s}",
            "workqueue_longest_running_processor_seconds{%s}",
        ):
            assert all(form % f'name="{name}"' in text for name in queues), form

        def value(what: str, queue: str) -> float | None:
            return registry.get_sample_value(f"workqueue_{what}", {"name": queue})

        pod = await one.pod({"name": "app"})
        container = one.newest(pod["metadata"]["uid"], "app")
        container.stop_seconds = 20.0
        await one.request(pod, "app")
        await one.until(lambda: one.runtime.stops)
        await one.clock.sleep(7)
        assert 7 <= (value("longest_running_processor_seconds", "crr") or 0) < 8
        assert 7 <= (value("unfinished_work_seconds", "crr") or 0) < 8
        await one.until(lambda: container.state == ContainerState.EXITED)
        await one.clock.sleep(1)
        assert value("longest_running_processor_seconds", "crr") == 0
        assert (value("work_duration_seconds_sum", "crr") or 0) >= 20
        assert value("work_duration_seconds_count", "crr") == value("queue_duration_seconds_count", "crr")
        assert value("longest_running_processor_seconds", "imagepuller") == 0


@on_bare_node
async def test_the_agent_ends_after_a_restore_from_a_backup(one: Node) -> None:
    """It remembers versions of its writes that its caches would never show."""
    agent = one.agent()
    working = asyncio.create_task(agent.run())
    await one.until(lambda: not agent.failing())
    one.api.core.storage.revision = 1
    one.api.end_watches()
    with pytest.raises(StorageRestored):
        await working
