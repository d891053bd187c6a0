"""pytest fixtures for the two levels, for `pytest_plugins = ["tests.cluster.fixtures"]` in tests/conftest.py.

A test says which level it needs by `@pytest.mark.controlplane` or `@pytest.mark.cluster`; the levels are selected with
`-m controlplane` and `-m cluster`.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster, left_over
from tests.cluster.controlplane import ControlPlane


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what shares the cluster last: before that, tests may start and end clusters of their own."""
    items.sort(key=lambda item: "cluster" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane without nodes, private to this test run. Tests keep to namespaces of their own."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes with real containers: those of `make cluster` if it is up (and stays up), else private ones."""
    running = Cluster.running()
    if running is not None and running.nodes:
        yield running
        return
    with Cluster() as started:
        before = started.run.before
        yield started
    if left := left_over(before):
        pytest.fail(f"the cluster left behind: {'; '.join(left)}")
