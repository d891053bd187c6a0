"""The status patches of the readiness plan, as a real API server takes them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.kube.client import Client, PatchType
from app.kube.clock import SystemClock
from app.kube.config import load_kubeconfig
from app.kube.errors import Conflict
from app.kube.objects import Pod, decode_pod
from app.kube.resources import PODS
from app.kube.transport import AiohttpTransport
from app.pods.readiness import PRE_DELETE_HOOK, PRE_UPDATE_HOOK, initial_condition
from app.pods.readiness_writes import add_not_ready_key, remove_not_ready_key
from tests.cluster.controlplane import ControlPlane

pytestmark = pytest.mark.controlplane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    transport = AiohttpTransport(await load_kubeconfig(str(control_plane.kubeconfig)))
    yield Client(transport, SystemClock())
    await transport.close()


@pytest.fixture
async def pod(client: Client) -> Pod:
    """A Pod with the gate whose containers the kubelet reported ready, though it is not on any node."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    spec = {
        "readinessGates": [{"conditionType": "KruisePodReady"}],
        "containers": [{"name": "a", "image": "nginx:1.25"}],
        "nodeName": "nowhere",
    }
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
    await client.create(PODS, body, "default")
    conditions = [{"type": type_, "status": "True", "reason": "Before"} for type_ in ("ContainersReady", "Ready")]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    return await client.patch(
        PODS, name, status, "default", kind=PatchType.STRATEGIC, subresource="status", decode=decode_pod
    )


async def conditions(client: Client, pod: Pod) -> dict[str, dict[str, Any]]:
    live = await client.get(PODS, pod.metadata.name, "default")
    return {condition["type"]: condition for condition in live["status"]["conditions"]}


@pytest.mark.behaviour("PM-60", "PM-179")
async def test_the_first_condition_is_set_only_on_the_observed_pod(client: Client, pod: Pod) -> None:
    patch = initial_condition(pod, client.clock.now())
    where = (PODS, pod.metadata.name, patch, "default")
    await client.patch(*where, kind=PatchType.STRATEGIC, subresource="status")
    found = await conditions(client, pod)
    assert found["KruisePodReady"]["status"] == "True"
    assert set(found) == {"KruisePodReady", "ContainersReady", "Ready"}
    with pytest.raises(Conflict):
        await client.patch(*where, kind=PatchType.STRATEGIC, subresource="status")


@pytest.mark.behaviour("PM-41", "PM-62", "PM-64", "PM-66", "PM-179")
async def test_keys_are_added_and_removed_from_any_version(client: Client, pod: Pod) -> None:
    await add_not_ready_key(client, pod, PRE_DELETE_HOOK)
    await add_not_ready_key(client, pod, PRE_UPDATE_HOOK)  # on a Pod that has changed meanwhile
    found = await conditions(client, pod)
    assert found["KruisePodReady"]["status"] == "False"
    assert found["KruisePodReady"]["message"] == (
        '[{"userAgent":"Lifecycle","key":"preDeleteHook"},{"userAgent":"Lifecycle","key":"preUpdateHook"}]'
    )
    assert found["Ready"]["status"] == "False"
    assert found["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert found["Ready"]["message"] == 'the status of pod readiness gate "KruisePodReady" is not "True", but False'
    assert found["Ready"]["lastTransitionTime"] is not None
    await remove_not_ready_key(client, pod, PRE_DELETE_HOOK)  # the Pod as it was has no such key: nothing to do
    fresh = await client.get(PODS, pod.metadata.name, "default", decode=decode_pod)
    await remove_not_ready_key(client, fresh, PRE_DELETE_HOOK)
    await remove_not_ready_key(client, fresh, PRE_UPDATE_HOOK)
    found = await conditions(client, pod)
    assert (found["KruisePodReady"]["status"], found["KruisePodReady"]["message"]) == ("True", "[]")
    assert found["Ready"]["status"] == "False"  # the kubelet's business
