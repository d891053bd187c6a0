"""What all tests share: fixtures of the levels that need a real cluster, how hypothesis runs, what runs together."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.cluster.fixtures"]

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Where all files share what is expensive to start, or judge together what all of them did.
SHARING = ("scenarios",)


@pytest.hookimpl(wrapper=True)  # before all others: xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Of the processes that run the tests, one gets all of a file, so that what the file starts is started once."""
    for item in items:
        path = Path(item.path).relative_to(Path(__file__).parent)
        group = path.parts[0] if path.parts[0] in SHARING else str(path)
        item.add_marker(pytest.mark.xdist_group(group))
    return (yield)
