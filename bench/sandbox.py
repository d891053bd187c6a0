"""Measure the sandbox's API server: writes in process and over HTTPS, memory of many Pods, and many watchers.

python -m bench.sandbox
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.resources import CONFIGMAPS, PODS
from app.kube.transport import AiohttpTransport
from app.sandbox.apiserver.https import HttpsServer
from app.sandbox.apiserver.server import ApiServer

WRITES = 10_000
HTTPS_WRITES = 4_000
IN_FLIGHT = 16
PODS_KEPT = 10_000
WATCHERS = 10
EVENTS = 3_000
CPU = time.process_time


def config(number: int) -> bytes:
    return json.dumps({"metadata": {"name": f"c-{number}"}, "data": {"key": "x" * 500}}).encode()


def pod(number: int) -> bytes:
    container = {
        "name": "app",
        "image": "nginx:1.25",
        "env": [{"name": f"NAME_{index}", "value": "value" * 5} for index in range(10)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    }
    labels = {"app": "web", "pod-template-hash": "5b8c7d"}
    spec = {"containers": [container, {**container, "name": "sidecar"}], "nodeName": f"node-{number % 100}"}
    return json.dumps({"metadata": {"name": f"web-{number}", "labels": labels}, "spec": spec}).encode()


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def at_once(
    count: int, one: Callable[[int], Awaitable[Any]], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Call ``one`` ``count`` times, several calls at once. Returns the number of calls per second of ``clock``.

    Calls in this process are measured with ``time.process_time``, which reduces the effect of other processes.
    """
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    began = clock()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return count / (clock() - began)


def server() -> ApiServer:
    return ApiServer(clock=SystemClock(), rng=Random(1))


async def in_process() -> None:
    api = server()
    client = Client(api.transport(), SystemClock())
    bodies = [config(number) for number in range(WRITES)]
    rate = await at_once(WRITES, lambda n: client.create(CONFIGMAPS, bodies[n], "default", decode=bytes), CPU)
    print(f"in process: {rate:,.0f} creates of a ConfigMap per s of CPU")
    patch = b'{"data":{"other":"%d"}}'
    rate = await at_once(WRITES, lambda n: client.patch(CONFIGMAPS, f"c-{n}", patch % n, "default", decode=bytes), CPU)
    print(f"in process: {rate:,.0f} merge patches of a ConfigMap per s of CPU")
    api.close()
    api = server()
    client = Client(api.transport(), SystemClock())
    bodies = [pod(number) for number in range(PODS_KEPT)]
    gc.collect()
    before = resident()
    rate = await at_once(PODS_KEPT, lambda n: client.create(PODS, bodies[n], "default", decode=bytes), CPU)
    gc.collect()
    print(
        f"in process: {rate:,.0f} creates of a Pod per s of CPU; {PODS_KEPT:,} Pods take {resident() - before:,.0f} MiB"
    )
    status = b'{"status":{"phase":"Running","podIP":"10.0.0.%d"}}'
    rate = await at_once(
        PODS_KEPT,
        lambda n: client.patch(PODS, f"web-{n}", status % (n % 256), "default", subresource="status", decode=bytes),
        CPU,
    )
    gc.collect()
    print(f"in process: {rate:,.0f} status patches of a Pod per s of CPU; then {resident() - before:,.0f} MiB")
    began = CPU()
    await client.list(PODS, decode=bytes)
    print(f"in process: a list of them takes {CPU() - began:.2f} s of CPU")
    api.close()


async def watched(client: Client, writes: Client) -> None:
    """Write as fast as possible until each of several watchers has received all events."""
    seen = [0] * WATCHERS

    async def follow(number: int) -> None:
        async with client.watch(CONFIGMAPS, "default", {}) as stream:
            async for chunk in stream.chunks:
                seen[number] += chunk.count(b"\n")

    tasks = [asyncio.create_task(follow(number)) for number in range(WATCHERS)]
    await asyncio.sleep(1)
    start = list(seen)
    began, cpu = time.perf_counter(), time.process_time()
    await at_once(EVENTS, lambda n: writes.create(CONFIGMAPS, config(100_000 + n), "default", decode=bytes))
    while min(now - then for now, then in zip(seen, start, strict=True)) < EVENTS:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    cost = 1e6 * used / EVENTS
    print(f"{WATCHERS} watchers: {EVENTS / took:,.0f} events per s to each, {cost:,.0f} µs of CPU per event")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def serve(path: Path) -> None:
    """Run a server until standard input is closed."""
    async with HttpsServer.start(server()) as listening:
        path.write_text(listening.kubeconfig())  # noqa: ASYNC240
        await asyncio.to_thread(sys.stdin.read)


async def over_https() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.sandbox", "serve", str(path), stdin=asyncio.subprocess.PIPE
        )
        while not path.exists() or not path.read_text():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
        transport = AiohttpTransport(await load_config(str(path)))
        client = Client(transport, SystemClock())
        await client.list(CONFIGMAPS)
        rate = await at_once(HTTPS_WRITES, lambda n: client.create(CONFIGMAPS, config(n), "default", decode=bytes))
        print(f"HTTPS: {rate:,.0f} creates of a ConfigMap per s (client in another process, {IN_FLIGHT} in flight)")
        await watched(client, client)
        await transport.close()
        process.terminate()
        await process.wait()


def main() -> None:
    import uvloop

    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve(Path(sys.argv[2])))
        return
    uvloop.run(in_process())
    uvloop.run(over_https())


if __name__ == "__main__":
    main()
