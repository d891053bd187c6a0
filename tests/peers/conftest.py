"""A real API server with simulated nodes and our manager, as in scenarios."""

from collections.abc import Iterator

import pytest

from tests.scenarios import levels
from tests.scenarios.world import World, own_namespace


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a new namespace for each test."""
    with own_namespace(levels.simulated_nodes(), real_containers=False, autoscales=True) as world:
        yield world
