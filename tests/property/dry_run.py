"""A real API server must accept injected Pods in a dry run and know every field."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import orjson

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import ApiError
from app.kube.resources import NAMESPACES, PODS, Resource
from app.kube.transport import AiohttpTransport
from tests.property.case import Json
from tests.property.checks import judge
from tests.property.generate import generate
from tests.property.oracle_quantity import parse

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONCURRENT = 16


@dataclass
class Sample:
    """Injected Pods by case number, and the reasons why others were left out."""

    pods: dict[int, Json] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
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
        elif outcome.result is not None and outcome.expected.injected:
            reason = invalid_on_purpose(outcome.result)
            if reason:
                found.left_out[reason] += 1
            else:
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


def print_sample(count: int, first: int, kubeconfig: str | None) -> int:
    """Run the command; return 0 if all Pods are accepted."""
    found = sample(count, first)
    for reason, times in found.left_out.most_common():
        print(f"left out {times:4}: {reason}")
    refused = asyncio.run(refusals(kubeconfig or "", found.pods))
    for seed, text in refused.items():
        print(f"case {seed}: {text}\n  python -m tests.property --case {seed}")
    if found.wrong:
        print(f"wrong without an API server: {found.wrong}")
    print(f"{len(found.pods)} Pods, {len(refused)} refused by the API server")
    return 1 if refused or found.wrong else 0
