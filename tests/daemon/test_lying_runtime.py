"""A runtime that answers about other Pods (KD-99): their containers are not stopped, probed or reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from app.api import names
from app.daemon import image_plan as images
from app.daemon.cri.client import error_of
from app.daemon.cri.types import Container, CriError
from app.kube.resources import PODS
from tests.daemon.node import NAMESPACE, Agent, Node, on_node, pod_probe
from tests.daemon.test_meta_reporter import meta_of
from tests.kit.runtime import SimulatedRuntime, connected


def lie(runtime: SimulatedRuntime) -> None:
    """Make the runtime return the containers of all Pods for any Pod."""

    async def containers(_uid: str) -> Sequence[Container]:
        return [Container(one.id, one.name, one.state, one.created_at) for one in runtime.known.values()]

    runtime.containers = containers  # type: ignore[method-assign]


async def two_pods(one: Node) -> dict[str, Any]:
    """Create two Pods with containers of the same name and return the older one."""
    first = await one.pod({"name": "app"})
    await one.clock.sleep(1)
    await one.pod({"name": "app"}, name="other")
    lie(one.runtime)
    return first


@pytest.mark.behaviour("KD-99")
@on_node
async def test_no_container_of_another_pod_is_probed_or_reported(one: Node, agent: Agent) -> None:
    pod = await two_pods(one)
    own = one.newest(pod["metadata"]["uid"], "app")
    await one.probes(pod_probe(pod, {"container": "app", "exec": {"command": ["true"]}}, ip="10.0.0.9"))
    ours = {"annotations": {"kruise.io/sidecarset-hash": "{}"}}
    await one.client.patch(PODS, "web-0", {"metadata": ours}, NAMESPACE)
    await one.clock.sleep(30)
    found = await one.client.get(PODS, "web-0", NAMESPACE)
    assert one.runtime.commands == []
    assert names.RUNTIME_CONTAINERS_META not in found["metadata"]["annotations"]
    del one.runtime.containers  # undo lie()
    await one.until(lambda: one.runtime.commands)
    assert {command[0] for command in one.runtime.commands} == {own.id}
    await one.client.patch(PODS, "web-0", {"metadata": {"labels": {"colour": "red"}}}, NAMESPACE)
    (reported,) = await one.until(lambda: meta_of(one))
    assert reported["containerID"] == f"containerd://{own.id}"


@pytest.mark.behaviour("KD-99")
async def test_a_response_about_another_container_is_ignored(tmp_path: Path) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        one, other = simulated.start("u1", "main"), simulated.start("u2", "main")
        truly = simulated.details

        async def details(_container_id: str) -> Any:
            return await truly(other.id)

        simulated.details = details  # type: ignore[method-assign]
        with pytest.raises(CriError, match=f"container {one.id}: the runtime returned container {other.id}"):
            await runtime.details(one.id)
        assert (await runtime.details(other.id)).id == other.id


@pytest.mark.behaviour("KD-99")
async def test_an_image_id_is_cut_to_its_maximum_length(tmp_path: Path) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        await simulated.pull("nginx:1", None, {}, {}, 5)
        truly = simulated.images

        async def found(seconds: float) -> Any:
            return [type(one)("sha256:" + "a" * 1_000_000, one.tags) for one in await truly(seconds)]

        simulated.images = found  # type: ignore[method-assign]
        (image,) = await runtime.images(5)
        assert len(images.image_id(images.Key("nginx", "1"), image)) < 600


@pytest.mark.behaviour("KD-99")
def test_characters_that_a_status_cannot_hold_are_removed_from_errors() -> None:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, nothing, nothing, "a\x00b")
    assert str(error_of("PullImage", error)) == "rpc error: code = Unknown desc = ab"
