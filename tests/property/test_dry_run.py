"""A real API server must accept injected Pods in a dry run and know every field."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import orjson
import pytest

from app.api.names import MIRROR_POD
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import ApiError
from app.kube.resources import NAMESPACES, PODS, Resource
from app.kube.transport import AiohttpTransport
from tests.cluster.controlplane import ControlPlane
from tests.property.case import Json
from tests.property.checks import judge
from tests.property.generate import generate
from tests.property.oracle_quantity import parse

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONCURRENT = 16


@dataclass
class Sample:
    """Injected Pods by case number."""

    pods: dict[int, Json] = field(default_factory=dict)
    #: Numbers of cases with a wrong answer.
    wrong: list[int] = field(default_factory=list)


def sample(count: int, first: int) -> Sample:
    """Return the next ``count`` injected Pods that are not invalid on purpose."""
    found = Sample()
    seed = first
    while len(found.pods) < count:
        outcome = judge(generate(seed), twice=False)
        if outcome.problems:
            found.wrong.append(seed)
        elif outcome.result is not None and outcome.expected.injected and not invalid_on_purpose(outcome.result):
            found.pods[seed] = outcome.result
        seed += 1
    return found


def invalid_on_purpose(pod: Json) -> str:
    """Return which of the generator's deliberate errors makes this Pod invalid, or "" if it is valid."""
    spec = pod["spec"]
    if "fieldOfTheFuture" in spec:
        return "has a field no API server knows"
    claims = {v["name"] for v in spec.get("volumes") or [] if "persistentVolumeClaim" in v}
    for container in (spec.get("initContainers") or []) + spec["containers"]:
        mounts, devices = container.get("volumeMounts") or [], container.get("volumeDevices") or []
        if len({d["name"] for d in devices}) < len(devices):
            return "a device volume twice in one container"
        if {d["name"] for d in devices} & {m["name"] for m in mounts}:
            return "a volume as mount and as device in one container"
        if {d["devicePath"] for d in devices} & {m["mountPath"] for m in mounts}:
            return "one path for a mount and a device"
        if {d["name"] for d in devices} - claims:
            return "a device of a volume that is no claim: the Pod's volume won"
        resources = container.get("resources") or {}
        for name, request in (resources.get("requests") or {}).items():
            limit = (resources.get("limits") or {}).get(name)
            if limit is not None and parse(request).value > parse(limit).value:
                return "a request above its limit in the Pod or set"
    return ""


async def refusals(kubeconfig: str, pods: dict[int, Json]) -> dict[int, str]:
    """Return the API server's errors by case number; empty if it accepts all."""
    transport = AiohttpTransport(await load_config(kubeconfig))
    try:
        client = Client(transport, SystemClock())
        async with _namespace(client) as namespace:
            gate = asyncio.Semaphore(CONCURRENT)

            async def try_one(pod: Json) -> str:
                body = {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
                async with gate:
                    try:
                        await client.create(
                            PODS, orjson.dumps(body), namespace, dry_run=True, field_validation="Strict"
                        )
                    except ApiError as error:
                        return str(error)
                return ""

            answers = await asyncio.gather(*(try_one(pod) for pod in pods.values()))
            return {seed: text for seed, text in zip(pods, answers, strict=True) if text}
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def _namespace(client: Client) -> AsyncIterator[str]:
    """Yield a temporary namespace with a service account."""
    name = f"property-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        # The controller manager may already have created it.
        with contextlib.suppress(ApiError):
            await client.create(SERVICE_ACCOUNTS, account, name)
        yield name
    finally:
        await client.delete(NAMESPACES, name)


@pytest.mark.controlplane
@pytest.mark.behaviour("PW-6", "PW-8")
def test_the_api_server_accepts_injected_pods(control_plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    found = sample(500, first=1)
    assert not found.wrong
    # An API server accepts mirror Pods only from kubelets.
    pods = {
        number: pod for number, pod in found.pods.items() if MIRROR_POD not in pod["metadata"].get("annotations", {})
    }
    assert asyncio.run(refusals(str(control_plane.kubeconfig), pods)) == {}
