"""A SidecarSet's new image in the Pods of a native ReplicaSet: ``python -m bench.sidecarset_rollout [--pods 1000]``.

On a private control plane whose Pods simulated nodes bind and run. The ReplicaSet goes from nothing to that many ready
Pods, each with a sidecar; then the sidecar's image changes, a fifth of the Pods at once. Measured are the time, the
CPU of the manager, and what it writes, by the API server's own audit log.
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
#: What the manager writes; of SidecarSets what came of it too, and who else wrote one.
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
    """A log agent for the ReplicaSet's Pods, updated a fifth of them at once."""
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
    """What the audit log has of us since it was read last."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._version = ""

    def since(self) -> tuple[Counter[str], int]:
        """Our writes by what was written, and how many statuses among them changed nothing."""
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
    """Does one thing after the other, and prints what each took per Pod."""

    def __init__(self, meter: Meter, written: Written, pods: int) -> None:
        self._meter = meter
        self._written = written
        self._pods = pods

    async def step(self, what: str, work: Any) -> tuple[float, Counter[str]]:
        """The seconds it took, and what we wrote."""
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
    """Wait until the set's status says that all have the new image and are ready."""

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
