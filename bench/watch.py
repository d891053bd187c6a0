"""Measure a reflector under load: ``python -m bench.watch [--pods 10000] [--rate 1000] [--seconds 20]``.

A separate process simulates the API server: it streams a list of Pods of 7.8 kB each, then changes at a constant rate.
Prints the reflector's CPU use, how many changes it is behind, and the memory used by the Pods in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from random import Random

import uvloop
from aiohttp import web

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import ClusterConfig
from app.kube.objects import Pod, decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import PODS
from app.kube.store import Change, Store
from app.kube.transport import AiohttpTransport
from bench.podsample import pod_json

BOOKMARK = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
)
#: Batches of changes sent per second, similar to a busy API server's watch cache.
PORTIONS = 100


def serve(pipe: Connection, pods: int, rate: int, seconds: float) -> None:
    """Run the simulated API server. Sends its port over the pipe, then serves watches."""
    objects = [pod_json(number, number + 1) for number in range(pods)]

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for raw in objects:
            await response.write(b'{"type":"ADDED","object":' + raw + b"}\n")
        await response.write(BOOKMARK % pods)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, pipe.recv)  # the reflector has received all Pods and is idle
        version, started = pods, time.perf_counter()
        for portion in range(int(PORTIONS * seconds)):
            for _ in range(rate // PORTIONS):
                version += 1
                changed = _renumbered(objects, version)
                await response.write(b'{"type":"MODIFIED","object":' + changed + b"}\n")
            await asyncio.sleep(max(0.0, started + (portion + 1) / PORTIONS - time.perf_counter()))
        pipe.send((version, time.perf_counter() - started))
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", watch)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    uvloop.run(main())


def _renumbered(objects: list[bytes], version: int) -> bytes:
    """Return a Pod with a new version, without decoding it, so that the server is not the bottleneck."""
    index = version % len(objects)
    return objects[index].replace(b'"resourceVersion":"%d"' % (index + 1), b'"resourceVersion":"%d"' % version, 1)


def resident_mib(process: int | str = "self") -> float:
    """Return the resident memory of a process in MiB."""
    with open(f"/proc/{process}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(pipe: Connection, port: int, pods: int) -> None:
    """Run the reflector and print its cost."""
    store: Store[Pod] = Store(
        {
            "node": lambda pod: (pod.spec.node_name,),
            "owner": lambda pod: [owner.uid for owner in pod.metadata.owner_references if owner.controller],
        }
    )
    changes, newest, caught_up = 0, 0, asyncio.Event()
    expected: int | None = None

    def count(change: Change[Pod]) -> None:
        nonlocal changes, newest
        changes += change.old is not None
        newest = int(change.object.metadata.resource_version)
        if newest == expected:
            caught_up.set()

    store.subscribe(count)
    transport = AiohttpTransport(ClusterConfig(f"http://127.0.0.1:{port}"))
    reflector = Reflector(Client(transport, SystemClock()), PODS, store, decode=decode_pod, rng=Random(1))
    gc.collect()
    empty = resident_mib()
    started, cpu = time.perf_counter(), time.process_time()
    running = asyncio.create_task(reflector.run())
    await store.wait_until_ready()
    print(f"initial list: {len(store)} Pods of {len(pod_json(1, 1))} bytes in {time.perf_counter() - started:.2f} s, "
          f"{(time.process_time() - cpu) / pods * 1e6:.0f} µs of CPU each")  # fmt: skip
    gc.collect()
    print(f"memory: {empty:.0f} MiB before, {resident_mib():.0f} MiB with {len(store)} Pods in the store: "
          f"{resident_mib() - empty:.0f} MiB for them")  # fmt: skip
    pipe.send("go")
    started, cpu = time.perf_counter(), time.process_time()
    sent = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), sent.set)
    await sent.wait()
    asyncio.get_running_loop().remove_reader(pipe.fileno())
    expected, took = pipe.recv()
    behind = expected - newest
    if behind:
        await caught_up.wait()
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    print(f"changes: {changes} in {took:.1f} s ({changes / took:.0f} per s), {behind} behind when the last was sent; "
          f"{used / elapsed:.1%} of a core, {used / changes * 1e6:.0f} µs of CPU each; "
          f"{resident_mib():.0f} MiB afterwards")  # fmt: skip
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await transport.close()


def main() -> None:
    """Start the server process and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000, help="changes per second, a multiple of 100")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(there, options.pods, options.rate, options.seconds), daemon=True)
    server.start()
    try:
        uvloop.run(measure(here, here.recv(), options.pods))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
