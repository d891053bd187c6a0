"""Measure the node agent's CPU and memory on a node with 100 Pods, idle and while probing each Pod every second.

``python -m bench.agent``. The container runtime and the API server are simulated, each in its own process. The agent is
the real process and uses real sockets.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from app.api import crd
from app.daemon.objects import NODE_IMAGES, NODE_POD_PROBES
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import NODE_IMAGE
from app.features.podprobe.kind import NODE_POD_PROBE
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, PODS
from app.sandbox.apiserver.https import HttpsServer
from app.sandbox.apiserver.server import ApiServer
from tests.kit.runtime import CriServer, SimulatedRuntime

NODE, PODS_ON_NODE, SECONDS = "bench", 100, 30.0


def serve_runtime(folder: str, uids: list[str], ready: Any, commands: Any) -> None:
    """Run the simulated runtime. ``commands`` is set to the number of commands it has run."""

    async def run() -> None:
        runtime = SimulatedRuntime(SystemClock())
        for uid in uids:
            runtime.start(uid, "main", annotations={"io.kubernetes.container.hash": "1"})
        server = CriServer(runtime, f"{folder}/runtime.sock")
        await server.start()
        ready.set()
        while True:
            await asyncio.sleep(0.1)
            commands.value = len(runtime.commands)

    asyncio.run(run())


def serve_api(folder: str, ready: Any, probing: Any) -> None:
    """Run the simulated API server. Probing starts when ``probing`` is set."""

    async def run() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock, rng=Random(1))
        client = Client(api.transport(), clock)
        for kind in (NODE_IMAGE, CONTAINER_RECREATE_REQUEST, NODE_POD_PROBE):
            manifest = crd.manifest(kind)
            manifest["spec"].pop("conversion", None)
            await client.create(CUSTOMRESOURCEDEFINITIONS, manifest)
        await asyncio.sleep(2)
        await client.create(NODE_IMAGES, _object("v1beta1", "NodeImage", {}))
        await client.create(NODE_POD_PROBES, _object("v1alpha1", "NodePodProbe", {}))
        entries = []
        for number in range(PODS_ON_NODE):
            spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "nginx:1"}]}
            pod = await client.create(PODS, {"metadata": {"name": f"pod-{number}"}, "spec": spec}, "default")
            uid = pod["metadata"]["uid"]
            probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
            probes = [{"name": "ppm#p", "containerName": "main", "probe": probe}]
            entries.append(
                {"name": f"pod-{number}", "namespace": "default", "uid": uid, "IP": "10.0.0.1", "probes": probes}
            )
        async with HttpsServer.start(api, host="127.0.0.1", port=0) as server:
            _write(folder, uids="\n".join(entry["uid"] for entry in entries), kubeconfig=server.kubeconfig())
            ready.set()
            await asyncio.to_thread(probing.wait)
            await client.patch(NODE_POD_PROBES, NODE, {"spec": {"podProbes": entries}})
            await asyncio.sleep(3600)

    asyncio.run(run())


def _write(folder: str, **files: str) -> None:
    for name, text in files.items():
        Path(folder, name).write_text(text)


def _object(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"apps.kruise.io/{version}", "kind": kind, "metadata": {"name": NODE}, "spec": spec}


def main() -> None:
    """Print the figures."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ready, probing = context.Event(), context.Event()
        api = context.Process(target=serve_api, args=(folder, ready, probing), daemon=True)
        api.start()
        ready.wait(60)
        up, commands = context.Event(), context.Value("i", 0)
        uids = Path(folder, "uids").read_text().split()
        runtime = context.Process(target=serve_runtime, args=(folder, uids, up, commands), daemon=True)
        runtime.start()
        up.wait(60)
        flags = [f"--kubeconfig={folder}/kubeconfig", f"--socket-file={folder}/runtime.sock", "--addr=127.0.0.1:0"]
        agent = subprocess.Popen(
            [sys.executable, "-m", "app.cli.entry", "daemon", *flags],
            env=os.environ | {"NODE_NAME": NODE, "MALLOC_ARENA_MAX": "1"},
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(15)
            _measure(agent.pid, f"{PODS_ON_NODE} Pods, nothing to do")
            probing.set()
            time.sleep(15)
            before = commands.value
            _measure(agent.pid, f"{PODS_ON_NODE} Pods, each probed every second by a command")
            print(f"{(commands.value - before) / SECONDS:.0f} commands a second")
        finally:
            agent.terminate()
            agent.wait(10)
            for process in (runtime, api):
                process.terminate()
                process.join(10)


def _measure(pid: int, what: str) -> None:
    before = _cpu(pid)
    began = time.monotonic()
    time.sleep(SECONDS)
    used = (_cpu(pid) - before) / (time.monotonic() - began)
    print(f"{what}: {used * 100:.2f} % of a core, {_resident(pid):.1f} MiB resident", flush=True)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


if __name__ == "__main__":
    main()
