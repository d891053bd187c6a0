"""Each scenario runs on a control plane with simulated nodes, and again on nodes with real containers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import World, manager, running

LEVELS = [
    pytest.param("control_plane_with_manager", marks=pytest.mark.controlplane, id="simulated-nodes"),
    pytest.param("cluster_with_manager", marks=pytest.mark.cluster, id="real-containers"),
]
GATES = "--feature-gates=SidecarSetPatchPodMetadataDefaultsAllowed=false"


@pytest.fixture(scope="session")
def control_plane_with_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane, simulated nodes and our manager."""
    folder: Path = tmp_path_factory.mktemp("scenarios")
    with ControlPlane() as control_plane:
        nodes = ["app.sandbox.nodes", "--kubeconfig", str(control_plane.kubeconfig), "--nodes", "3", "--bind"]
        with (
            running(nodes, folder / "nodes.log"),
            manager(control_plane, folder, GATES),
        ):
            yield control_plane


@pytest.fixture(scope="session")
def cluster_with_manager(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes with real containers and our manager."""
    with manager(cluster.control_plane, tmp_path_factory.mktemp("scenarios"), GATES):
        yield cluster


@pytest.fixture(params=LEVELS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace of the test's own on each level; what it made goes afterwards."""
    started = request.getfixturevalue(request.param)
    kubectl = partial(started.kubectl)
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    labels = {"team": namespace}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    yield World(kubectl, namespace, real_containers=request.param == "cluster_with_manager")
    kubectl("delete", "sidecarset", "-l", f"team={namespace}", "--wait=false", check=False)
    kubectl("delete", "namespace", namespace, "--wait=false", check=False)
