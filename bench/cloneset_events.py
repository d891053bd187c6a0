"""Measure what reconciles and Pod events cost the CloneSet controller: ``python -m bench.cloneset_events``.

The controller runs in this process, with an API server that only records requests. The cache holds the ready Pods of a
CloneSet and other Pods. Prints the CPU time, without decoding, of a reconcile with nothing to do, of an event of one of
the CloneSet's Pods (including its share of a reconcile, which handles the 50 events of 50 ms), and of an event of
another Pod. ``--memory`` prints the memory used for a CloneSet instead.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from statistics import median
from typing import Any

import orjson

from app.kube.objects import Pod, decode_pod
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.workloads.reconciler import COALESCE_SECONDS
from bench.podsample import pod_json
from bench.watch import resident_mib
from tests.features.cloneset.shell import Shell
from tests.features.cloneset.writing import clone_set, rolling

ROUNDS = 9
#: Events per second of one CloneSet.
RATE = 1_000
BURST = int(RATE * COALESCE_SECONDS)
READY = [
    {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "KruisePodReady", "InPlaceUpdateReady")
]
KEY = ObjectKey("shop", "cs")


async def cluster(own: int, others: int) -> tuple[Shell, list[dict[str, Any]]]:
    """Return a shell with a stable CloneSet of ``own`` Pods and with ``others`` other Pods, and the CloneSet's Pods."""
    shell = Shell()
    shell.show(clone_set(replicas=own, updateStrategy=rolling(policy="InPlaceIfPossible"), metadata={"generation": 1}))
    store = shell.caches.pods
    for number in range(others):
        store.put(decode_pod(pod_json(number, 1)))

    def mapped(change: Change[Pod]) -> None:
        shell.reconciler.mappers.keys_for_pod(change)

    shell.caches.pods.subscribe(mapped)
    pods: list[dict[str, Any]] = []
    while made := await _created(shell):
        for path, body in made:
            _show_created(shell, path, body, pods)
    return shell, pods


async def _created(shell: Shell) -> list[tuple[str, dict[str, Any]]]:
    """Reconcile and return the path and body of each created object. One reconcile creates a limited number."""
    shell.server.requests.clear()
    await shell.reconciler(KEY)
    return [(path, body) for method, path, body in shell.server.requests if method == "POST"]


def _show_created(shell: Shell, path: str, body: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    """Put a created object into the cache. Pods are ready."""
    body["metadata"] |= {
        "uid": f"uid-{len(pods)}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if path.endswith("/controllerrevisions"):
        shell.show({"kind": "ControllerRevision", **body})
    elif path.endswith("/pods"):
        body["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] = "Normal"
        body["spec"]["nodeName"] = "node"
        body["status"] = {"phase": "Running", "conditions": READY}
        pods.append(body)
        shell.show({**body, "kind": "Pod"})


def changed(pods: list[dict[str, Any]], version: int) -> list[Any]:
    """Return the Pods with changed readiness, decoded."""
    status = "True" if version % 2 else "False"
    for pod in pods:
        pod["metadata"]["resourceVersion"] = str(version)
        pod["status"]["conditions"] = [{"type": "Ready", "status": status}, *READY[1:]]
    return [decode_pod(orjson.dumps(pod)) for pod in pods]


async def measure(own: int, others: int) -> None:
    shell, pods = await cluster(own, others)
    requests = len(shell.server.requests)
    idle = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(20):
            await shell.reconciler(KEY)
        idle.append((time.process_time() - began) / 20)
    requests = len(shell.server.requests) - requests
    events, elsewhere = [], []
    for turn in range(2, ROUNDS + 2):
        burst = changed(pods[:BURST], turn)
        began = time.process_time()
        for pod in burst:
            shell.caches.pods.put(pod)
        await shell.reconciler(KEY)
        events.append((time.process_time() - began) / len(burst))
        burst = [decode_pod(pod_json(number, turn)) for number in range(min(others, BURST))]
        began = time.process_time()
        for pod in burst:
            shell.caches.pods.put(pod)
        elsewhere.append((time.process_time() - began) / max(1, len(burst)))
    print(
        f"| {own:,} | {others:,} | {median(idle) * 1e3:.2f} ms, {requests} requests | {median(events) * 1e6:.0f} µs"
        f" | {median(elsewhere) * 1e6:.0f} µs |",
        flush=True,
    )


async def memory(pods: int) -> None:
    """Print the memory used for a CloneSet with this many Pods, including the controller's state."""
    gc.collect()
    before = resident_mib()
    shell, made = await cluster(pods, 0)
    shell.server.requests.clear()
    made.clear()
    gc.collect()
    print(f"\n{pods:,} Pods of one CloneSet: {resident_mib() - before:.0f} MiB more, {resident_mib():.0f} in all")
    assert len(shell.caches.pods) == pods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, default=0, help="measure the memory of this many Pods instead")
    options = parser.parse_args()
    if options.memory:
        asyncio.run(memory(options.memory))
        return
    print("| own Pods | of others | pass with nothing to do | event of an own Pod | of a Pod of others |")
    print("|---|---|---|---|---|")
    for own, others in ((100, 1_000), (1_000, 1_000), (1_000, 20_000), (2_000, 1_000)):
        asyncio.run(measure(own, others))


if __name__ == "__main__":
    main()
