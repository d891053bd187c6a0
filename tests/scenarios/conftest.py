"""Each scenario runs on the sandbox, on a real API server with simulated nodes, and on nodes with real containers."""

from __future__ import annotations

import fcntl
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.controlplane import ControlPlane
from tests.scenarios import levels
from tests.scenarios.levels import GATES
from tests.scenarios.minikubectl import MiniKubectl
from tests.scenarios.world import World, eventually, own_namespace, running

LEVELS = [
    pytest.param("sandbox_with_manager", id="sandbox"),
    pytest.param("control_plane_with_manager", marks=pytest.mark.controlplane, id="simulated-nodes"),
    pytest.param("cluster_with_manager", marks=pytest.mark.cluster, id="real-containers"),
]


class Started:
    """A running sandbox, and a client with the kubectl commands that scenarios use."""

    def __init__(self, kubectl: MiniKubectl, kubeconfig: Path) -> None:
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig


@pytest.fixture(scope="session")
def sandbox_with_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """The sandbox as users start it, without its output."""
    folder: Path = tmp_path_factory.mktemp("sandbox")
    kubeconfig, log = folder / "kubeconfig", folder / "sandbox.log"
    command = ["app.cli.main", "sandbox", "--quiet", "--no-samples", f"--kubeconfig={kubeconfig}", GATES]
    with running(command, log) as process:

        def is_ready() -> bool:
            if process.poll() is not None:
                pytest.fail(f"the sandbox ended with {process.returncode}:\n{log.read_text()}")
            return "Ready. Press" in log.read_text()

        eventually(is_ready, f"the sandbox is ready; its log is {log}", 90)
        kubectl = MiniKubectl(kubeconfig)
        yield Started(kubectl, kubeconfig)
        kubectl.close()


@pytest.fixture(scope="session")
def control_plane_with_manager() -> ControlPlane:
    """A control plane, simulated nodes and the manager, shared by all processes of the test run."""
    return levels.simulated_nodes()


@pytest.fixture(scope="session")
def cluster_with_manager() -> Cluster:
    """Nodes with real containers and the manager, shared by all processes of the test run."""
    return levels.real_containers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report the objects and log lines of a failed test's namespace, which is deleted afterwards."""
    report = yield
    world = getattr(item, "funcargs", {}).get("world")
    if report.when == "call" and report.failed and isinstance(world, World):
        report.sections.append((f"namespace {world.namespace}", world.findings()))
    return report


@contextmanager
def its_turn(level: str, *, alone: bool) -> Iterator[None]:
    """Tests marked ``alone`` wait until no other process tests on their level, and others wait for them."""
    folder = levels.ROOT / "build"
    folder.mkdir(exist_ok=True)
    with (folder / f"{level}.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture(params=LEVELS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace per test and level, which is deleted afterwards with all objects of the test."""
    started = request.getfixturevalue(request.param)
    sandbox, real = request.param == "sandbox_with_manager", request.param == "cluster_with_manager"
    with ExitStack() as stack:
        if not sandbox:  # each process has its own sandbox
            alone = request.node.get_closest_marker("alone") is not None
            stack.enter_context(its_turn(request.param, alone=alone))
        logs = None if sandbox else (started.control_plane if real else started).directory / "logs"
        yield stack.enter_context(own_namespace(started, real_containers=real, autoscales=not sandbox, logs=logs))
