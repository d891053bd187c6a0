"""Measure the time from a ContainerRecreateRequest's creation until its container is stopped, with containerd.

``python -m bench.recreate`` requires root and starts its own cluster. The requests have the defaults that the manager's
webhook would set.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import yaml

from app.daemon.cri.client import GrpcRuntime
from app.daemon.cri.types import ContainerState
from tests.cluster.cluster import Cluster
from tests.cluster.controlplane import wait_until_established
from tests.daemon.front import AgentProcess, front
from tests.daemon.test_node_cluster import KINDS, NAMESPACE, World
from tests.deploy.rendering import ROOT, render

REQUESTS = 10


async def _seconds_until_stopped(world: World, name: str) -> float:
    pod = world.get_pod(name)
    identity = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    runtime = await GrpcRuntime.connect(str(world.node.cri_socket))
    try:
        world.recreate(pod, "main", name=name)
        began = time.perf_counter()
        while (await runtime.details(identity)).state is ContainerState.RUNNING:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.002)
        return time.perf_counter() - began
    finally:
        await runtime.close()


def main() -> None:
    """Print the figures."""
    with Cluster(nodes=1) as cluster, tempfile.TemporaryDirectory() as folder, front(cluster) as registry:
        files = [str(ROOT / "deploy" / "crds" / f"apps.kruise.io_{kind}.yaml") for kind in KINDS]
        cluster.kubectl("apply", "--server-side", *(f"-f={file}" for file in files))
        wait_until_established(cluster.kubectl, *(f"crd/{kind}.apps.kruise.io" for kind in KINDS))
        chart = [one for one in render() if "daemon" in one["metadata"]["name"] and one["kind"] != "DaemonSet"]
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in ("kruise-system", NAMESPACE)
        ]
        for one in [*spaces, *chart]:
            cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(one))
        log = Path(folder, "log")
        log.touch()
        account = cluster.control_plane.kubeconfig_for_service_account("kruise-system", "kruise-daemon")
        agent = AgentProcess(cluster.nodes[0], account, log)
        agent.start()
        try:
            world = World(cluster, cluster.nodes[0], agent, registry, log, Path(folder))
            time.sleep(6)
            found = []
            for number in range(REQUESTS):
                # Use a new Pod each time, because the kubelet's back-off grows with each restart of a container.
                world.pod(f"web-{number}", {"name": "main"})
                found.append(asyncio.run(_seconds_until_stopped(world, f"web-{number}")))
                world.complete(f"web-{number}", "main", name=f"web-{number}")
        finally:
            agent.stop()
    shown = ", ".join(f"{seconds * 1000:.0f}" for seconds in sorted(found))
    print(f"median {statistics.median(found) * 1000:.0f} ms; all: {shown} ms")


if __name__ == "__main__":
    main()
