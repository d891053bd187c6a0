"""pytest fixtures for the two levels, for `pytest_plugins = ["tests.cluster.fixtures"]` in tests/conftest.py.

A test declares its level with `@pytest.mark.controlplane` or `@pytest.mark.cluster`; the levels are selected with
`-m controlplane` and `-m cluster`.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import RUN_NAME, Cluster, left_over
from tests.cluster.controlplane import ControlPlane
from tests.cluster.run import Run

#: Do not garbage-collect Pods of missing nodes during tests. The controllers' names are those before Kubernetes 1.28,
#: which every later version accepts too.
_CONTROLLERS = ["--controllers=*,-podgc"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share the cluster last, because others may start and stop their own."""

    def shares_the_cluster(item: pytest.Item) -> bool:
        return item.get_closest_marker("cluster") is not None and "no_cluster" not in getattr(item, "fixturenames", ())

    items.sort(key=shares_the_cluster)


@pytest.fixture
def no_cluster() -> None:
    """Fail if a cluster is up: the test starts its own, and a machine has room for only one."""
    if (run := Run.named(RUN_NAME)) is not None and not run.is_stale():
        pytest.fail("a cluster is up; this test starts and ends its own. First: python -m tests.cluster down")


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Return a control plane without nodes, private to this test run. Each test uses its own namespaces."""
    with ControlPlane(controller_manager_args=_CONTROLLERS) as started:
        yield started


@pytest.fixture(scope="module")
def empty() -> Iterator[ControlPlane]:
    """Return a module's own control plane, for tests of CRDs and webhooks, which are cluster-wide."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return a cluster with three nodes: that of `make cluster` if it is up (it stays up), otherwise a private one."""
    running = Cluster.running()
    if running is not None and running.nodes and running.run.owner is None:
        yield running
        return
    with Cluster() as started:
        before = started.run.before
        yield started
    if left := left_over(before):
        pytest.fail(f"the cluster left behind: {'; '.join(left)}")
