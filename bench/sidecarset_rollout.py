"""Roll out a SidecarSet's new image to a native ReplicaSet: ``python -m bench.sidecarset_rollout [--pods 1000]``.

Runs a private control plane with simulated nodes. The ReplicaSet scales up from zero, and each Pod gets a sidecar. Then
the sidecar's image changes, in a fifth of the Pods at a time. Prints the time, the CPU per Pod, and the manager's
writes according to the API server's audit log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client
from app.kube.resources import REPLICASETS
from bench.cloneset import CONTROL_PLANE, Meter, idle, wait_for
from bench.simulated_nodes import nodes, replica_set, until, user
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

SETS: Final = SIDECAR_SET.resource()
US: Final = "system:serviceaccount:kruise-system:kruise-manager"
_WRITES: Final = ["create", "update", "patch", "delete"]
#: Audit policy: record the manager's writes, and all clients' writes of SidecarSets with the responses.
RECORDING: Final = {
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": _WRITES,
            "resources": [{"group": SETS.group, "resources": ["sidecarsets", "sidecarsets/status"]}],
        },
        {"level": "Metadata", "users": [US], "verbs": _WRITES},
        {"level": "None"},
    ],
}


def sidecar_set(image: str) -> dict[str, Any]:
    """Return a SidecarSet with a log agent for the ReplicaSet's Pods. It updates a fifth of them at a time."""
    return {
        "apiVersion": SETS.api_version,
        "kind": SETS.kind,
        "metadata": {"name": "logs"},
        "spec": {
            "selector": {"matchLabels": {"app": "native"}},
            "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": "20%"},
            "containers": [{"name": "agent", "image": image}],
        },
    }


class Written:
    """Counts the manager's writes in the audit log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._version = ""

    def since(self) -> tuple[Counter[str], int]:
        """Return the writes since the last call by verb and resource, and how many of them did not change the set."""
        counted: Counter[str] = Counter()
        idle_writes = 0
        for event in self._events():
            what, answer = event["objectRef"], event["responseStatus"]["code"]
            ours = event["user"]["username"] == US
            resource = what["resource"] + (f"/{what['subresource']}" if "subresource" in what else "")
            if ours:
                refused = "" if answer < 300 else f" {answer}"
                counted[f"{event['verb']} {resource}{refused}"] += 1
            if what["resource"] == "sidecarsets" and answer < 300 and "responseObject" in event:
                version = event["responseObject"]["metadata"]["resourceVersion"]
                idle_writes += ours and version == self._version
                self._version = version
        return counted, idle_writes

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield json.loads(line)


class Steps:
    """Runs steps and prints the cost of each per Pod."""

    def __init__(self, meter: Meter, written: Written, pods: int) -> None:
        self._meter = meter
        self._written = written
        self._pods = pods

    async def step(self, what: str, work: Any) -> tuple[float, Counter[str]]:
        """Run a step. Returns its seconds and the manager's writes."""
        self._written.since()
        before, began = await self._meter.read(), time.monotonic()
        await work
        seconds = time.monotonic() - began
        await asyncio.sleep(2.0)
        after = await self._meter.read()
        counted, unchanged = self._written.since()
        cpu = ", ".join(f"{name} {(after[2][name] - before[2][name]) / self._pods * 1e3:.2f}" for name in after[2])
        shown = ", ".join(f"{key} {count}" for key, count in counted.most_common())
        print(f"| {what} | {seconds:.1f} | {cpu} | {shown} | {unchanged} |", flush=True)
        return seconds, counted


async def rolled_out(client: Client, pods: int) -> None:
    """Wait until the SidecarSet's status reports that all Pods are updated and ready."""

    async def done() -> bool:
        found = await client.get(SETS, "logs")
        status = found.get("status") or {}
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return bool(seen and status.get("updatedPods") == status.get("updatedReadyPods") == pods)

    await until(done)


async def measure(kubeconfig: str, processes: dict[str, int], log: Path, pods: int) -> None:
    async with user(kubeconfig) as client:
        meter = Meter(client, processes)
        steps = Steps(meter, Written(log), pods)
        await client.create(SETS, sidecar_set("agent:1"))
        await client.create(REPLICASETS, replica_set("native"), "default")
        await idle(meter)
        print(
            "| what | seconds | CPU ms per Pod | writes of ours | of them statuses that change nothing |\n"
            "|---|---|---|---|---|"
        )

        async def out() -> None:
            await client.patch(REPLICASETS, "native", {"spec": {"replicas": pods}}, "default")
            await wait_for(client, REPLICASETS, "native", pods, updated=False)

        async def roll(image: str) -> None:
            await client.patch(SETS, "logs", {"spec": {"containers": [{"name": "agent", "image": image}]}})
            await rolled_out(client, pods)

        native, _ = await steps.step(f"ReplicaSet 0 → {pods}, ready, with a sidecar", out())
        await rolled_out(client, pods)
        for image in ("agent:2", "agent:3"):
            seconds, counted = await steps.step(f"another image of the sidecar ({image})", roll(image))
            updates = sum(count for key, count in counted.items() if key.split()[1].startswith("pods"))
            print(f"\n{seconds / native:.2f} × the ReplicaSet's time, {updates / pods:.2f} writes per Pod by us\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    options = parser.parse_args()
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    with (
        ControlPlane(controller_manager_args=limits, audit_policy=RECORDING) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        nodes(control_plane, Path(folder)) as simulated,
        manager(control_plane, Path(folder) / "manager") as addresses,
    ):
        processes = {"manager": int(addresses["pid"]), "nodes": simulated.pid}
        processes |= {name: control_plane.run.processes[name].pid for name in CONTROL_PLANE}
        asyncio.run(measure(str(control_plane.kubeconfig), processes, control_plane.audit_log, options.pods))


if __name__ == "__main__":
    main()
