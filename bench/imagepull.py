"""Measure an ImagePullJob on many nodes: ``python -m bench.imagepull [--nodes 500] [--parallelism 50]``.

Simulated agents pull an image for a job on all nodes of a real API server. The benchmark watches all NodeImages and the
job, and prints how many nodes were pulling at once and how many writes changed nothing. It then prints the memory that
NodeImages use, decoded as in the controllers' caches.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec

from app.features.imagepull.kind import IMAGE_PULL_JOB, NODE_IMAGE
from app.features.imagepull.objects import BY_JOB, NodeImage, decode_node_image, job_uids
from app.kube.client import Client
from app.kube.objects import decode_metadata
from app.kube.reflector import Reflector
from app.kube.store import Change, Store
from bench.daemonset import Bench, cluster, measure, named, until

JOBS: Final = IMAGE_PULL_JOB.resource()
NODE_IMAGES: Final = NODE_IMAGE.resource()
#: Number of tags and labels of each NodeImage in the memory measurement.
TAGS, LABELS = 20, 12
KEPT = 1_000
PARALLELISM: Final = 50


class Watcher:
    """Watches every change of the NodeImages and the job, in order."""

    def __init__(self, client: Client, image: str) -> None:
        self._client = client
        self._image = image
        self._asked: set[str] = set()
        #: Maximum number of nodes with an unfinished pull.
        self.most = 0
        #: Number of observed changes, by resource.
        self.changes: Counter[str] = Counter()

    async def run(self) -> None:
        """Watch until canceled."""
        node_images: Store[NodeImage] = Store()
        jobs: Store[Any] = Store()
        node_images.subscribe(self._node_image)
        jobs.subscribe(self._job)
        async with asyncio.TaskGroup() as tasks:
            for resource, store, decode in (
                (NODE_IMAGES, node_images, decode_node_image),
                (JOBS, jobs, decode_metadata),
            ):
                reflector: Reflector[Any] = Reflector(
                    self._client,
                    resource,
                    store,
                    decode=decode,
                    rng=Random(1),
                )
                tasks.create_task(reflector.run())

    def _node_image(self, change: Change[NodeImage]) -> None:
        if change.old is not None and change.new is not None:
            self.changes["nodeimages"] += 1
        found = change.new
        if found is None or (entry := found.spec.images.get(self._image)) is None:
            return
        (tag,) = entry.tags
        statuses = found.status.image_statuses.get(self._image)
        status = statuses.by_tag.get(tag.tag) if statuses is not None else None
        if status is not None and status.version == tag.version and status.completion_time:
            self._asked.discard(found.metadata.name)
        else:
            self._asked.add(found.metadata.name)
        self.most = max(self.most, len(self._asked))

    def _job(self, change: Change[Any]) -> None:
        if change.old is not None and change.new is not None:
            self.changes["imagepulljobs"] += 1


async def pull(bench: Bench, total: int, parallelism: int) -> None:
    """Measure an ImagePullJob on all nodes."""
    client = bench.client

    async def there() -> bool:
        found = (await client.list(NODE_IMAGES)).items
        # Each agent initializes its status at startup; that write is not part of the job.
        return len(found) >= total and all("desired" in (one.get("status") or {}) for one in found)

    async def done() -> bool:
        status = (await client.get(JOBS, "warm", "default")).get("status") or {}
        return bool(status.get("completionTime"))

    await until(there)
    watcher = Watcher(client, "nginx")
    watching = asyncio.create_task(watcher.run())
    await asyncio.sleep(2.0)
    watcher.changes.clear()
    before = (await bench.meter.read())[0]
    spec = {"image": "nginx:1", "parallelism": parallelism, "completionPolicy": {"type": "Always"}}
    made = client.create(JOBS, named(JOBS, "warm", spec), "default")
    await bench.step(f"ImagePullJob on {total}, {parallelism} at once", total, made, done)
    await asyncio.sleep(2.0)
    after = (await bench.meter.read())[0]
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    status = (await client.get(JOBS, "warm", "default"))["status"]
    print(f"\n{status['succeeded']} of {status['desired']} succeeded; asked and not done at once: {watcher.most}")
    for kind, changes in sorted(watcher.changes.items()):
        writes = {key: after[key] - before[key] for key in after if kind in key and key.startswith("p")}
        updates = sum(count for key, count in writes.items() if not key.startswith("post"))
        shown = ", ".join(f"{key} {count:g}" for key, count in sorted(writes.items()) if count)
        print(f"{kind}: {updates:g} writes, {changes} changes ({shown})")


def memory() -> None:
    """Print the memory that NodeImages use in the manager's store."""
    raw = [msgspec.json.encode(_node_image(number)) for number in range(KEPT)]
    gc.collect()
    tracemalloc.start()
    store: Store[NodeImage] = Store({BY_JOB: job_uids})
    for one in raw:
        store.put(decode_node_image(one))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    size = sum(map(len, raw)) / KEPT / 1024
    print(f"\n{KEPT} NodeImages of {size:.1f} KiB, {TAGS} tags each: {taken / 2**20:.1f} MiB in memory")


def _node_image(number: int) -> dict[str, Any]:
    """Return a NodeImage as the API server sends it, after its pulls have succeeded."""
    # NodeImages that a job updates in one batch have the same timestamps.
    turn = number // PARALLELISM
    time = f"2030-01-01T00:{turn:02}:00Z"
    images: dict[str, Any] = {}
    statuses: dict[str, Any] = {}
    for index in range(TAGS):
        name = f"registry.example:5000/team/application-{index}"
        owner = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "namespace": "default"}
        owner |= {"name": f"warm-{index}", "uid": f"00000000-0000-4000-8000-{index:012}"}
        policy = {"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 2400 + turn}
        tag = {"tag": "v1.27.3", "version": 1, "createdAt": time, "imagePullPolicy": "IfNotPresent"}
        images[name] = {"tags": [{**tag, "pullPolicy": policy, "ownerReferences": [owner]}]}
        status = {"tag": "v1.27.3", "phase": "Succeeded", "progress": 100, "version": 1, "startTime": time}
        statuses[name] = {"tags": [{**status, "completionTime": time, "imageID": f"{name}@sha256:{index:064}"}]}
    labels = {f"topology.example/label-{index}": f"value-{number}-{index}" for index in range(LABELS)}
    metadata = {"name": f"node{number}", "uid": f"00000000-0000-4000-8001-{number:012}", "resourceVersion": str(number)}
    return {
        "apiVersion": NODE_IMAGES.api_version,
        "kind": NODE_IMAGES.kind,
        "metadata": {**metadata, "creationTimestamp": time, "labels": labels},
        "spec": {"images": images},
        "status": {"desired": TAGS, "succeeded": TAGS, "failed": 0, "pulling": 0, "imageStatuses": statuses},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--parallelism", type=int, default=PARALLELISM)
    options = parser.parse_args()
    gate = ("--feature-gates=ImagePullJobGate=true", "--nodeimage-creation-delay=1s")
    with cluster(options.nodes, *gate, agents=True) as (kubeconfig, processes):
        asyncio.run(measure(kubeconfig, processes, lambda bench: pull(bench, options.nodes, options.parallelism)))
    memory()


if __name__ == "__main__":
    main()
