"""The levels that all scenarios of a test run share: a real cluster each, and our manager beside it.

`python -m tests.scenarios.levels NAME FOLDER RUN` is the keeper of one (tests/cluster/shared.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from app.api import names
from tests.cluster.cluster import RUN_NAME, Cluster, left_over
from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import RECORDING
from tests.cluster.run import Run
from tests.cluster.shared import keep, shared
from tests.daemon.front import AgentProcess
from tests.scenarios.world import ROOT, manager, running

SIMULATED_NODES: Final = "simulated-nodes"
REAL_CONTAINERS: Final = "real-containers"
#: Settings that scenarios need besides the defaults.
GATES: Final = "--feature-gates=" + ",".join(
    (
        "SidecarSetPatchPodMetadataDefaultsAllowed=false",
        "ResourceDistributionGate=true",
        "ImagePullJobGate=true",
        "PreDownloadImageForInPlaceUpdate=true",
        "PodUnavailableBudgetUpdateGate=true",
        "SidecarTerminator=true",
        "EnhancedLivenessProbe=true",
        "InPlaceWorkloadVerticalScaling=true",
    )
)
#: Sync autoscalers every second, not every fifteen.
_AUTOSCALING: Final = ("--horizontal-pod-autoscaler-sync-period=1s",)
#: Where the audit logs of the manager's requests are kept for the tests that judge them.
RECORDED: Final = ROOT / "build" / "recorded"


def simulated_nodes() -> ControlPlane:
    return ControlPlane.of_run(Run.load(Path(shared("tests.scenarios.levels", SIMULATED_NODES)["run"])))


def real_containers() -> Cluster:
    """The shared cluster of nodes with real containers, and the manager."""
    shared("tests.scenarios.levels", REAL_CONTAINERS)
    found = Cluster.running()
    assert found is not None
    return found


@contextmanager
def _simulated_nodes() -> Iterator[dict[str, Any]]:
    with ControlPlane(audit_policy=RECORDING, controller_manager_args=_AUTOSCALING) as started:
        folder = _logs(started)
        nodes = ["app.sandbox.nodes", "--kubeconfig", str(started.kubeconfig), "--nodes", "3", "--bind", "--agents"]
        with running(nodes, folder / "nodes.log"), _manager(started, folder) as addresses:
            yield {"run": str(started.directory), **addresses}
        _keep_record(started, SIMULATED_NODES)


@contextmanager
def _real_containers() -> Iterator[dict[str, Any]]:
    """Use the nodes of `make cluster` if it is up (and stays up), otherwise private ones."""
    found = Cluster.running()
    if found is not None and found.nodes and found.run.owner is None:
        with _manager(found.control_plane, _logs(found.control_plane)) as addresses, _agents(found):
            yield {"run": RUN_NAME, **addresses}
        _keep_record(found.control_plane, REAL_CONTAINERS)
        return
    with Cluster() as started:
        before = started.run.before
        with _manager(started.control_plane, _logs(started.control_plane)) as addresses, _agents(started):
            yield {"run": RUN_NAME, **addresses}
        _keep_record(started.control_plane, REAL_CONTAINERS)
    if left := left_over(before):
        raise RuntimeError(f"the cluster left behind: {'; '.join(left)}")


@contextmanager
def _manager(started: ControlPlane, folder: Path) -> Iterator[dict[str, str]]:
    """The manager, and the namespace whose Secrets agents may read, which the chart creates."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.DAEMON_CONFIG_NAMESPACE}}
    started.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    with manager(started, folder, GATES) as addresses:
        yield addresses


@contextmanager
def _agents(cluster: Cluster) -> Iterator[None]:
    agents = []
    try:
        for node in cluster.nodes:
            log = _logs(cluster.control_plane) / f"agent-{node.name}.log"
            log.write_text("")
            agents.append(AgentProcess(node, cluster.kubeconfig, log))
            agents[-1].start()
        yield
    finally:
        for agent in agents:
            agent.stop()


def _logs(started: ControlPlane) -> Path:
    folder = started.directory / "logs"
    folder.mkdir(exist_ok=True)
    return folder


def _keep_record(started: ControlPlane, level: str) -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    with (RECORDED / f"{level}.jsonl").open("ab") as record, started.audit_log.open("rb") as log:
        shutil.copyfileobj(log, record)


if __name__ == "__main__":
    keep({SIMULATED_NODES: partial(_simulated_nodes), REAL_CONTAINERS: partial(_real_containers)})
