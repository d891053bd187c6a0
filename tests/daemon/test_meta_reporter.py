"""Reporting the metadata containers were started with, and restarting those with outdated labels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.api import names
from app.daemon import meta_plan
from app.daemon.agent import Features
from app.daemon.cri.types import POD_UID, RESTART_COUNT, ContainerState, ExecResult
from app.daemon.probes_and_hooks import PORTS, PRE_STOP
from app.kube.objects import Pod, decode_pod
from app.kube.resources import NAMESPACES, PODS
from app.pods.container_meta import RuntimeMeta, env_hash, is_env_current, is_image_current, plain_hash, runtime_meta
from tests.daemon.node import NAMESPACE, Agent, Node, on_bare_node, on_node
from tests.kube.fakes import running

OWNER = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "o", "controller": True}


def from_label(key: str, name: str = "COLOUR") -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}}


async def started(one: Node, *containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Create a Pod with an injected sidecar and start its containers as the kubelet does."""
    metadata["annotations"] = {names.SIDECARSET_HASH: "{}", **metadata.get("annotations", {})}
    pod = await one.pod(*containers, **metadata)
    one.runtime.start(pod["metadata"]["uid"], "init", state=ContainerState.EXITED)
    for container in pod["spec"]["containers"]:
        seen = one.newest(pod["metadata"]["uid"], container["name"])
        as_kubelet_starts(seen, container, pod)
    await become_ready(one, pod["metadata"]["name"])
    return pod


async def become_ready(one: Node, name: str = "web-0") -> None:
    """KD-71: a newly observed Pod is handled on its next change."""
    await one.clock.sleep(5)
    condition = {"type": "Ready", "status": "True"}
    await one.client.patch(PODS, name, {"status": {"conditions": [condition]}}, NAMESPACE, subresource="status")


def as_kubelet_starts(seen: Any, container: dict[str, Any], pod: dict[str, Any]) -> None:
    seen.annotations[meta_plan.GRACE] = "20"
    seen.annotations[meta_plan.HASH] = f"{plain_hash(container['name'], container.get('image', 'nginx:1')):x}"
    for entry in container.get("env", []):
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if path.startswith("metadata.labels["):
            seen.env[entry["name"]] = pod["metadata"].get("labels", {}).get(path[17:-2], "")


async def meta_of(one: Node, name: str = "web-0") -> list[dict[str, Any]]:
    pod = await one.client.get(PODS, name, NAMESPACE)
    text = pod["metadata"].get("annotations", {}).get(names.RUNTIME_CONTAINERS_META)
    return json.loads(text)["containers"] if text else []


async def decoded(one: Node) -> tuple[Pod, RuntimeMeta]:
    """Return the Pod and what was reported about it."""
    pod = await one.client.get(PODS, "web-0", NAMESPACE, decode=decode_pod)
    meta = runtime_meta(pod)
    assert meta is not None
    return pod, meta


async def reported(one: Node, *containers: dict[str, Any]) -> dict[str, Any]:
    """Start a red Pod and wait until it is reported."""
    pod = await started(one, *containers, labels={"colour": "red", "size": "1"})
    await one.until(lambda: meta_of(one))
    return pod


RED = {"name": "main", "env": [from_label("colour")]}


@pytest.mark.behaviour("KD-70", "KD-71", "KD-72", "KD-75", "PM-136")
@on_node
async def test_containers_are_reported_with_the_hash_of_the_kubelet(one: Node, agent: Agent) -> None:
    pod = await started(one, {"name": "main"}, {"name": "side", "image": "side:1"})
    await one.until(lambda: meta_of(one))
    assert is_image_current(*await decoded(one))
    assert is_env_current(*await decoded(one))
    assert [entry["containerID"] for entry in await meta_of(one)] == [
        status["containerID"] for status in pod["status"]["containerStatuses"]
    ]
    before = await decoded(one)
    await one.clock.sleep(600)
    assert await decoded(one) == before


@pytest.mark.behaviour("KD-3", "KD-73")
@on_node(features=Features(env_from_metadata=False))
async def test_without_the_gate_no_env_hash_is_reported(one: Node, agent: Agent) -> None:
    await started(one, {"name": "main"}, {"name": "side", "env": [from_label("colour")]}, labels={"colour": "red"})
    found = await one.until(lambda: meta_of(one))
    assert [entry["hashes"].keys() for entry in found] == [{"plainHash"}, {"plainHash"}]
    pod = await one.client.get(PODS, "web-0", NAMESPACE, decode=decode_pod)
    assert not meta_plan.is_due(pod, with_env=False)


@pytest.mark.behaviour("KD-71")
@pytest.mark.parametrize(
    ("metadata", "reported"),
    [
        ({}, False),
        ({"ownerReferences": [OWNER]}, True),
        ({"ownerReferences": [{**OWNER, "apiVersion": "apps/v1"}]}, False),
        ({"ownerReferences": [{**OWNER, "controller": False}]}, False),
        ({"annotations": {names.SIDECARSET_HASH: "{}"}}, True),
        ({"ownerReferences": [OWNER], "deletionTimestamp": "2030-01-01T00:00:00Z"}, False),
    ],
)
def test_metadata_is_reported_for_pods_of_our_workloads_only(metadata: dict[str, Any], reported: bool) -> None:
    body = {"metadata": metadata, "status": {"containerStatuses": [{"name": "main"}]}}
    assert meta_plan.is_reported(decode_pod(json.dumps(body).encode())) is reported


@pytest.mark.behaviour("KD-71")
@on_bare_node
async def test_pods_are_reported_after_a_change_and_foreign_ones_never(one: Node) -> None:
    await one.pod({"name": "main"}, name="own")
    await one.pod({"name": "main"}, name="injected", annotations={names.SIDECARSET_HASH: "{}"})
    async with running(one.agent().run()):
        await one.clock.sleep(60)
        assert await meta_of(one, "injected") == []
        for name in ("own", "injected"):
            await become_ready(one, name)
        await one.clock.sleep(60)
        assert await meta_of(one, "own") == []
        assert len(await meta_of(one, "injected")) == 1


async def updating(one: Node, labels: dict[str, str]) -> None:
    """Change labels as the start of an in-place update does."""
    await one.client.patch(PODS, "web-0", {"metadata": {"labels": labels}}, NAMESPACE)
    condition = {"type": "InPlaceUpdateReady", "status": "False"}
    await one.client.patch(PODS, "web-0", {"status": {"conditions": [condition]}}, NAMESPACE, subresource="status")


@pytest.mark.behaviour("KD-73", "KD-74", "PM-139")
@on_node
async def test_changed_labels_restart_only_the_containers_that_read_them(one: Node, agent: Agent) -> None:
    containers = (
        RED,
        {"name": "plain", "env": [{"name": "COLOUR", "value": "red"}]},
        {"name": "other", "env": [from_label("size")]},
    )
    pod = await reported(one, *containers)
    await one.clock.sleep(30)
    assert one.runtime.stops == []
    await updating(one, {"colour": "blue"})

    await one.until(lambda: len(one.runtime.stops) > 0)
    uid = pod["metadata"]["uid"]
    old = one.newest(uid, "main")
    assert old.state is ContainerState.EXITED
    again = one.restart(old)
    as_kubelet_starts(again, containers[0], await one.client.get(PODS, "web-0", NAMESPACE))
    await one.report("web-0")
    await one.clock.sleep(60)
    assert one.runtime.stops == [(old.id, 20)]
    assert is_env_current(*await decoded(one))
    assert await one.events("Killing") == [
        f"Killing: Stopping containerID containerd://{old.id} by container meta restarter"
    ]


@pytest.mark.behaviour("KD-74", "KD-99")
@pytest.mark.parametrize("deleted", [True, False])
@on_node
async def test_no_container_of_another_or_a_deleted_pod_is_restarted(one: Node, agent: Agent, deleted: bool) -> None:
    pod = await reported(one, RED)
    if deleted:
        await one.client.delete(PODS, "web-0", NAMESPACE)  # it has a grace period
    else:
        one.newest(pod["metadata"]["uid"], "main").labels[POD_UID] = "another"
    await updating(one, {"colour": "blue"})
    await one.clock.sleep(60)
    assert one.runtime.stops == []


@pytest.mark.behaviour("KD-74", "PM-149")
@on_node
async def test_containers_restart_in_the_order_of_their_launch_priorities(one: Node, agent: Agent) -> None:
    def barrier(priority: int) -> dict[str, Any]:
        key = {"name": "web-0-barrier", "key": f"p_{priority}"}
        return {"name": names.ENV_CONTAINER_BARRIER, "valueFrom": {"configMapKeyRef": key}}

    containers = (
        {"name": "last", "env": [from_label("colour"), barrier(0)]},
        {"name": "first", "env": [from_label("colour"), barrier(10)]},
    )
    uid = (await reported(one, *containers))["metadata"]["uid"]
    await updating(one, {"colour": "blue"})
    order = []
    for container in reversed(containers):

        async def stopped(name: str = str(container["name"])) -> bool:
            return one.newest(uid, name).state is ContainerState.EXITED

        await one.until(stopped)
        order.append(container["name"])
        await one.clock.sleep(30)
        running_still = [c["name"] for c in containers if one.newest(uid, str(c["name"])).state == 1]
        assert running_still == (["last"] if container["name"] == "first" else ["first"])
        again = one.restart(one.newest(uid, str(container["name"])))
        as_kubelet_starts(again, container, await one.client.get(PODS, "web-0", NAMESPACE))
        await one.report("web-0")
    assert order == ["first", "last"]


@pytest.mark.behaviour("KD-73")
@on_node
async def test_a_failed_container_query_is_retried(one: Node, agent: Agent) -> None:
    pod = await started(one, RED, labels={"colour": "red"})
    seen = one.newest(pod["metadata"]["uid"], "main")
    seen.execute = lambda _command: ExecResult(126, stderr=b"no env here")
    await one.until(lambda: meta_of(one))
    assert "extractedEnvFromMetadataHash" not in (await meta_of(one))[0]["hashes"]
    await one.clock.sleep(30)  # no event is left that would look at the Pod again
    seen.execute = None

    async def complete() -> bool:
        return "extractedEnvFromMetadataHash" in (await meta_of(one))[0]["hashes"]

    await one.until(complete)
    pod, _ = await decoded(one)
    assert (await meta_of(one))[0]["hashes"]["extractedEnvFromMetadataHash"] == env_hash(pod.spec.containers[0], pod)


@pytest.mark.behaviour("CRR-67", "KD-73")
@on_node
async def test_commands_that_hang_delay_the_report_of_no_other_pod(one: Node, agent: Agent) -> None:
    """Users choose what ``env`` does in their containers, and may have several namespaces."""
    containers: list[dict[str, Any]] = [{"name": f"c{i}", "env": [from_label("colour")]} for i in range(20)]
    for namespace in ("a", "b"):
        await one.client.create(NAMESPACES, {"metadata": {"name": namespace}})
        for name in ("p0", "p1", "p2", "p3"):
            metadata: dict[str, Any] = {"labels": {"colour": "red"}, "annotations": {names.SIDECARSET_HASH: "{}"}}
            pod = await one.pod(*containers, name=name, namespace=namespace, **metadata)
            for container in containers:
                one.newest(pod["metadata"]["uid"], container["name"]).execute = hang
            await one.clock.sleep(1)
            await one.client.patch(PODS, name, {"metadata": {"labels": {"colour": "blue"}}}, namespace)
    await started(one, {"name": "main"})
    assert len(one.runtime.commands) >= 5
    assert len(await one.until(lambda: meta_of(one), 10)) == 1


async def hang(_command: Sequence[str]) -> ExecResult:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.behaviour("KD-14")
@pytest.mark.parametrize(
    ("annotations", "grace"),
    [
        ({}, 2),
        ({meta_plan.GRACE: "30"}, 30),
        ({meta_plan.GRACE: "30", meta_plan.DELETION_GRACE: "5"}, 5),
        ({meta_plan.GRACE: "soon"}, 2),
        ({meta_plan.GRACE: "-1"}, 2),
        ({meta_plan.GRACE: "9" * 50}, 2),
    ],
)
def test_a_container_is_stopped_within_its_recorded_grace_period(annotations: dict[str, str], grace: int) -> None:
    assert meta_plan.grace_of(annotations) == grace


@pytest.mark.behaviour("KD-14")
@on_node
async def test_forged_annotations_do_no_harm(one: Node, agent: Agent) -> None:
    bad = {names.RUNTIME_CONTAINERS_META: "[" * 10_000, names.SIDECARSET_HASH: "{}"}
    pod = await one.pod({"name": "main"}, annotations=bad)
    seen = one.newest(pod["metadata"]["uid"], "main")
    seen.annotations.update({meta_plan.HASH: "zz", RESTART_COUNT: "", PRE_STOP: "{", PORTS: "7"})
    await become_ready(one)

    async def read() -> bool:
        text = (await one.client.get(PODS, "web-0", NAMESPACE))["metadata"]["annotations"]
        return bool(text[names.RUNTIME_CONTAINERS_META].startswith("{"))

    await one.until(read)
    assert (await meta_of(one))[0]["hashes"]["plainHash"] == 0


@pytest.mark.behaviour("KD-73")
@pytest.mark.parametrize(
    ("output", "found"),
    [
        (b"A=1\nB=2\n", {"A": "1", "B": "2"}),
        (b"A=one\ntwo\n\nB=2\n", {"A": "one\ntwo\n", "B": "2"}),
        (b"A=x=y\n=z\n", {"A": "x=y\n=z"}),
        ("A=a\u2028b\x0cc\r\n".encode(), {"A": "a\u2028b\x0cc\r"}),
        (b"A=1\nB=2\nA=3", {"A": "1", "B": "2\nA=3"}),
        (b"what else\nmy colour=red\nA=1\n", {"my colour": "red", "A": "1"}),
        (b"P=a\nb=c\nd\nA=1\n", {"P": "a\nb=c\nd", "b": "c\nd", "A": "1"}),
        (b"P=a\nb=d\nd\nA=1\nQ=\n", {"P": "a", "b": "d\nd", "A": "1", "Q": ""}),
        (b"", {}),
    ],
)
def test_multiline_values_are_preserved(output: bytes, found: dict[str, str]) -> None:
    assert meta_plan.parse_env(output, {"my colour": "red", "P": "a\nb=c\nd", "Q": ""}) == found


@pytest.mark.behaviour("KD-73")
def test_long_output_of_a_command_that_is_not_env_delays_no_other_pod() -> None:
    """A container chooses what its ``env`` prints. Joining lines one by one would take minutes."""
    current = {f"V{number}": "x" for number in range(3_000)}
    assert meta_plan.parse_env(b"A=" + b"\n" * 1_000_000, current) == {"A": "\n" * 999_999}


@pytest.mark.behaviour("KD-73", "KD-74")
@on_node
async def test_a_multiline_annotation_causes_no_restart(one: Node, agent: Agent) -> None:
    """Reading only the first line made the container look outdated after each restart."""
    text = "colour: red\nsize=9\n\N{LINE SEPARATOR}end"
    entry = {"name": "SETTINGS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['settings']"}}}
    env = [from_label("unset", "SETTINGS"), entry]
    pod = await one.pod({"name": "app", "env": env}, annotations={names.SIDECARSET_HASH: "{}", "settings": text})
    seen = one.newest(pod["metadata"]["uid"], "app")
    seen.env["SETTINGS"] = text
    await become_ready(one)
    await updating(one, {})
    await one.until(lambda: meta_of(one))
    await one.clock.sleep(60)
    assert one.runtime.stops == []
    assert is_env_current(*await decoded(one))
