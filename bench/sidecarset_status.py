"""Measure what a Pod event costs the SidecarSet controller: ``python -m bench.sidecarset_status [--rate 1000]``.

The cache holds 1,000 Pods of one SidecarSet and 20,000 other Pods. Events arrive at a constant rate: readiness changes
of the set's Pods, irrelevant changes of the set's Pods, and changes of other Pods. Prints the CPU time per event,
without decoding, of the controller and of the store alone, and the number of requests. With ``--sets 1000`` there are
1,000 SidecarSets whose selectors match the same Pods.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Sequence
from typing import Any

import orjson
import uvloop

from app.api import names
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.feature import FEATURE
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.kind import read_sidecar_set
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.objects import Pod, decode_namespace, decode_pod
from app.kube.store import Store
from tests.kit.features import controller_of, part_of, stores_of
from tests.kit.transports import Noting
from tests.kube.fakes import until

OWN, OTHERS = 1_000, 20_000
PORTIONS = 50


def pod(number: int, version: int, hash_: str, *, ready: bool = True) -> Pod:
    """Return Pod ``number``. Pods with numbers below OWN have the set's sidecar."""
    record = {"hash": hash_, "sidecarSetName": "s", "sidecarList": ["shipper"], "controllerRevision": "s-1"}
    own = {names.SIDECARSET_INJECTED_LIST: "s", names.SIDECARSET_HASH: json.dumps({"s": record})}
    containers = [{"name": "shipper", "image": "a:1"}, {"name": "main", "image": "b:1"}]
    metadata = {
        "name": f"web-{number}",
        "namespace": "shop",
        "uid": f"uid-{number}",
        "resourceVersion": str(version),
        "labels": {"app": "web"},
        "annotations": own if number < OWN else {},
    }
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [container | {"imageID": "id"} for container in containers],
    }
    return decode_pod(orjson.dumps({"metadata": metadata, "spec": {"containers": containers}, "status": status}))


def sidecar_set(number: int) -> dict[str, Any]:
    """Return the SidecarSet "s" (number 0) or another one."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "shipper", "image": "a:1"}]}
    spec = with_defaults({"spec": spec})["spec"]
    name = f"other-{number}" if number else "s"
    annotations = {names.SIDECARSET_HASH: sidecarset_hashes(spec["containers"], None).hash}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def matched(server: Noting) -> int:
    """Return the number of matched Pods in the last status written for the set, or -1 if none was written."""
    statuses = [body["status"] for _, path, body in server.requests if path.endswith("/sidecarsets/s/status")]
    return int(statuses[-1].get("matchedPods", 0)) if statuses else -1


async def play(pods: Store[Pod], events: Sequence[Pod], rate: int) -> float:
    """Put the events into the store at this rate. Returns the CPU seconds used."""
    gc.collect()
    began, portion = time.process_time(), rate // PORTIONS
    for index, event in enumerate(events):
        pods.put(event)
        if index % portion == portion - 1:
            await asyncio.sleep(1 / PORTIONS)
    await asyncio.sleep(0.5)
    return time.process_time() - began


async def measure(rate: int, count: int, sets: int) -> None:
    server, stores = Noting(), stores_of(part_of(FEATURE)).by_name
    for store in stores.values():
        store.replace([])
    made = [sidecar_set(number) for number in range(sets)]
    for one in made:
        stores["SidecarSets"].put(read_sidecar_set(orjson.dumps(one)))
    stores["Namespaces"].put(decode_namespace(b'{"metadata": {"name": "shop", "uid": "ns", "resourceVersion": "1"}}'))
    hash_, pods = made[0]["metadata"]["annotations"][names.SIDECARSET_HASH], stores["Pods"]
    version = 0
    for version in range(OWN + OTHERS):
        pods.put(pod(version, version, hash_))

    def events(kind: str) -> list[Pod]:
        nonlocal version
        made = []
        for index in range(count):
            version += 1
            number = index % OWN if kind != "others" else OWN + index % OTHERS
            ready = kind != "flipping" or (index // OWN) % 2 == 1
            made.append(pod(number, version, hash_, ready=ready))
        return made

    alone = {kind: await play(pods, events(kind), rate) for kind in ("flipping", "unchanged", "others")}
    controller = controller_of(FEATURE, Client(server, SystemClock()), stores)
    began = time.process_time()
    task = asyncio.create_task(controller.run())
    await until(lambda: matched(server) == OWN)
    print(f"start: {(time.process_time() - began) * 1e3:.0f} ms of CPU until the first true status\n")
    print("| events | CPU per event, controller | store alone | requests | seconds |\n|---|---|---|---|---|")
    for kind in ("flipping", "unchanged", "others"):
        before = len(server.requests)
        cpu = await play(pods, events(kind), rate)
        spent = (cpu - alone[kind]) / count * 1e6
        requests, seconds = len(server.requests) - before, count / rate
        print(f"| {kind} | {spent:.1f} µs | {alone[kind] / count * 1e6:.1f} µs | {requests} | {seconds:.0f} |")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    parser.add_argument("--events", type=int, default=20_000, help="how many of each kind")
    parser.add_argument("--sets", type=int, default=1, help="how many SidecarSets there are")
    options = parser.parse_args()
    uvloop.run(measure(options.rate, options.events, options.sets))


if __name__ == "__main__":
    main()
