"""Measure a large conversion and how long reviews wait for it: ``python -m bench.conversion [--objects 10000]``.

One webhook process serves TLS. While a client sends reviews one by one, the largest request that an API server sends
arrives: a ConversionReview with all CloneSets of a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from app.admission.conversion import convert_review
from app.api.conversion import convert
from app.manager.features import features
from bench.admission import review, serve, server

_JSON: Final = {"Content-Type": "application/json"}


def cloneset(number: int) -> dict[str, Any]:
    """Return a CloneSet of about 3.1 kB, as the API server sends it."""
    env = [{"name": f"VARIABLE_{index}", "value": "value " * 3} for index in range(8)]
    limits = {"cpu": "1", "memory": "1Gi"}
    containers = [
        {"name": f"c{index}", "image": "nginx:1", "env": env, "resources": {"limits": limits, "requests": limits}}
        for index in range(2)
    ]
    fields: dict[str, Any] = {f"f:field{index}": {".": {}, "f:a": {}, "f:b": {}} for index in range(12)}
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "CloneSet",
        "metadata": {
            "name": f"web-{number}",
            "namespace": "shop",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": "1",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 900},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": fields}}],
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "partition": "10%", "maxUnavailable": "20%"},
            },
            "scaleStrategy": {"maxUnavailable": 1, "enablePVCReuse": True},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}},
        },
        "status": {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 3},
    }


def wish(objects: int) -> bytes:
    """Return a ConversionReview with this many CloneSets."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "desiredAPIVersion": "apps.kruise.io/v1alpha1",
        "objects": [cloneset(number) for number in range(objects)],
    }
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request})


async def measure(url: str, large: bytes) -> None:
    """Print the latency of reviews alone and during the conversion."""
    context = ssl._create_unverified_context()
    body = review()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0), headers=_JSON) as http:

        async def ask() -> float:
            started = time.perf_counter()
            async with http.post(f"{url}/mutate-pod", data=body) as answer:
                await answer.read()
            return time.perf_counter() - started

        async def many(until: asyncio.Task[Any]) -> list[float]:
            waits = []
            while not until.done():
                waits.append(await ask())
                await asyncio.sleep(0.002)
            return waits

        for name, make in (("alone", None), ("beside the first", large), ("beside the second", large)):
            done = asyncio.create_task(asyncio.sleep(3) if make is None else _convert(url, make))
            waits = sorted(await many(done))
            spent = f", converted in {done.result():.2f} s" if make is not None else ""
            print(
                f"| {name} | {len(waits)} | {waits[len(waits) // 2] * 1000:.2f} | "
                f"{waits[int(len(waits) * 0.99)] * 1000:.2f} | {waits[-1] * 1000:.1f} |{spent}"
            )


async def _convert(url: str, large: bytes) -> float:
    """Send the ConversionReview with curl, so that it does not block this client's event loop. Returns the seconds."""
    started = time.perf_counter()
    with tempfile.NamedTemporaryFile() as file:
        await asyncio.to_thread(Path(file.name).write_bytes, large)
        process = await asyncio.create_subprocess_exec(
            "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", "-H",
            "Content-Type: application/json", "-H", "Expect:", "--data-binary", f"@{file.name}", f"{url}/convert",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    status, size = out.split()
    if status != b"200" or int(size) < len(large):
        raise SystemExit(f"bench: /convert answered {out!r}")
    return time.perf_counter() - started


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    options = parser.parse_args()
    features()  # registers the kinds for conversion
    large = wish(options.objects)
    started = time.process_time()
    answer = convert_review(large, convert)
    spent = time.process_time() - started
    if answer.outcome != "converted" or answer.unconverted:
        raise SystemExit(f"bench: the conversion {answer.outcome}")
    print(f"{options.objects} objects, {len(large) / 2**20:.1f} MiB: {spent:.2f} s of CPU, {answer.outcome}\n")
    print("| reviews | how many | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, server(*serve(1, 1, Path(folder))) as url:
        asyncio.run(measure(url, large))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\nCPU of the service, and of curl: {children.ru_utime + children.ru_stime:.2f} s")


if __name__ == "__main__":
    main()
