"""Compare a CloneSet with a native ReplicaSet of the same size: ``python -m bench.cloneset [--pods 1000]``.

Runs a private control plane with simulated nodes. Both workloads scale up from zero and back down to zero; in between,
the CloneSet updates its image in place. Prints the time, the writes per Pod by verb and resource, and the CPU time of
the manager, the nodes and the control plane.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from app.features.cloneset.kind import CLONE_SET
from app.kube.client import Client
from app.kube.resources import PODS, REPLICASETS, Resource
from bench.simulated_nodes import cpu_seconds, nodes, replica_set, user
from bench.watch import resident_mib
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

CLONESETS = CLONE_SET.resource()
#: Theoretical minimum of requests per Pod.
MINIMUM = {
    "scale out": "4: create, bind, our conditions, the kubelet's report (ReplicaSet: 3)",
    "in place": "5: not ready, new image, restarted, ready again, the kubelet's Ready",
    "scale in": "2: delete, the kubelet's final delete",
}
#: Control plane processes whose CPU time is printed.
CONTROL_PLANE = ("kube-apiserver", "etcd", "kube-controller-manager")
_REQUEST = re.compile(
    r'^apiserver_request_total\{code="(?P<code>\d+)".*?resource="(?P<resource>[a-z]*)".*?'
    r'subresource="(?P<sub>[a-z]*)",verb="(?P<verb>[A-Z]+)"[^}]*\} (?P<count>[0-9.e+]+)$',
    re.MULTILINE,
)
_WEBHOOK = re.compile(r"^apiserver_admission_webhook_request_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


class Meter:
    """Reads the API server's request metrics and the CPU time of processes."""

    def __init__(self, client: Client, processes: dict[str, int]) -> None:
        self._client = client
        self.processes = processes

    async def read(self) -> tuple[Counter[str], int, dict[str, float]]:
        text = (await self._client.raw("/metrics")).decode()
        requests: Counter[str] = Counter()
        for found in _REQUEST.finditer(text):
            if found["verb"] in ("GET", "LIST", "WATCH"):
                continue
            what = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
            refused = f" {found['code']}" if not found["code"].startswith("2") else ""
            requests[f"{found['verb'].lower()} {what}{refused}"] += int(float(found["count"]))
        calls = sum(int(float(count)) for count in _WEBHOOK.findall(text))
        return (
            requests,
            calls,
            {name: sum(map(cpu_seconds, family(process))) for name, process in self.processes.items()},
        )


def family(process: int) -> list[int]:
    """Return the process IDs of a process and its descendants. The manager has several processes."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in children for one in family(int(child)))]


async def wait_for(client: Client, resource: Resource, name: str, pods: int, updated: bool) -> None:
    field = "updatedReadyReplicas" if updated else "readyReplicas"
    while True:
        found = await client.get(resource, name, "default")
        status = found.get("status") or {}
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        if pods and seen and status.get(field, 0) == pods:
            return
        # The status does not count terminating Pods, but the scale-down ends only when all Pods are gone.
        if not pods and not (await client.list_page(PODS, "default", label_selector=f"app={name}", limit=1)).items:
            return
        await asyncio.sleep(0.1)


async def step(meter: Meter, client: Client, resource: Resource, name: str, change: Any, pods: int, what: str) -> float:
    """Patch the workload and wait until the change is complete. Prints its cost and returns the seconds it took."""
    total = max(pods, step.size)  # type: ignore[attr-defined]
    before = await meter.read()
    began = time.monotonic()
    await client.patch(resource, name, change, "default")
    await wait_for(client, resource, name, pods, what == "in place")
    seconds = time.monotonic() - began
    await asyncio.sleep(1.0)
    after = await meter.read()
    requests = Counter({key: count - before[0][key] for key, count in after[0].items() if count > before[0][key]})
    per_pod = ", ".join(f"{key} {count / total:.2f}" for key, count in requests.most_common() if count >= total * 0.01)
    cpu = ", ".join(f"{key} {(after[2][key] - before[2][key]) / total * 1e3:.2f}" for key in after[2])
    calls = (after[1] - before[1]) / total
    print(
        f"| {resource.kind} {what} | {seconds:.1f} | {sum(requests.values()) / total:.2f} | {calls:.2f} | {cpu} |"
        f" {sum(map(resident_mib, family(meter.processes['manager']))):.0f} MiB | {per_pod} |",
        flush=True,
    )
    return seconds


def clone_set(name: str) -> dict[str, Any]:
    """Return a CloneSet like ``replica_set``, updated in place."""
    body = replica_set(name)
    rolling = {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "20%", "partition": 0, "maxSurge": 0}
    body["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return {"apiVersion": CLONESETS.api_version, "kind": "CloneSet", **body}


async def measure(kubeconfig: str, processes: dict[str, int], pods: int) -> None:
    async with user(kubeconfig) as client:
        meter = Meter(client, processes)
        step.size = pods  # type: ignore[attr-defined]
        await client.create(REPLICASETS, replica_set("native"), "default")
        await client.create(CLONESETS, clone_set("clone"), "default")
        await idle(meter)
        print(
            "| what | seconds | writes per Pod | webhook calls per Pod | CPU ms per Pod | manager's memory |"
            " writes per Pod by type |\n|---|---|---|---|---|---|---|"
        )
        native_out = await step(meter, client, REPLICASETS, "native", {"spec": {"replicas": pods}}, pods, "scale out")
        native_in = await step(meter, client, REPLICASETS, "native", {"spec": {"replicas": 0}}, 0, "scale in")
        out = await step(meter, client, CLONESETS, "clone", {"spec": {"replicas": pods}}, pods, "scale out")
        containers = {"containers": [{"name": "main", "image": "nginx:2"}]}
        change = {"spec": {"template": {"spec": containers}}}
        in_place = await step(meter, client, CLONESETS, "clone", change, pods, "in place")
        back = await step(meter, client, CLONESETS, "clone", {"spec": {"replicas": 0}}, 0, "scale in")
    ratios = (out / native_out, in_place / native_out, back / native_in)
    print("\nscale out {:.2f} ×, in place {:.2f} × the native scale out, scale in {:.2f} ×".format(*ratios))
    for what, minimum in MINIMUM.items():
        print(f"theoretical minimum, {what}: {minimum}")


async def idle(meter: Meter, seconds: float = 5.0) -> None:
    """Print the CPU time of idle processes per second. The figures of each step include it."""
    before = await meter.read()
    await asyncio.sleep(seconds)
    after = await meter.read()
    used = ", ".join(f"{name} {(after[2][name] - before[2][name]) / seconds * 1e3:.1f} ms" for name in after[2])
    print(f"CPU per idle second: {used}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    options = parser.parse_args()
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    with (
        ControlPlane(controller_manager_args=limits) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        nodes(control_plane, Path(folder)) as simulated,
        manager(control_plane, Path(folder) / "manager") as addresses,
    ):
        processes = {"manager": int(addresses["pid"]), "nodes": simulated.pid}
        processes |= {name: control_plane.run.processes[name].pid for name in CONTROL_PLANE}
        asyncio.run(measure(str(control_plane.kubeconfig), processes, options.pods))


if __name__ == "__main__":
    main()
