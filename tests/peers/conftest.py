"""A real API server with simulated nodes and our manager, as scenarios have it."""

from collections.abc import Iterator

import pytest

from tests.scenarios import levels
from tests.scenarios.world import World, own_namespace


@pytest.fixture
def world() -> Iterator[World]:
    """A new namespace for each test."""
    with own_namespace(levels.simulated_nodes(), real_containers=False, autoscales=True) as world:
        yield world
