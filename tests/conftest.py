"""What all tests share: fixtures and division of the levels that need a real cluster, and how hypothesis runs."""

import logging
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from app.manager.features import features
from tests.nightly import examples

pytest_plugins = [
    "tests.cluster.fixtures",
    "tests.cluster.sharing",
    "tests.cluster.shared",
    "tests.times",
    "tests.seeds",
    "tests.selection",
]

# Without bytecode, each of the hundreds of processes that tests start would compile everything again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Conversion knows all kinds once the features are loaded, as in our processes.
features()

# The duration of an example depends on the machine, not the code.
settings.register_profile("untimed", deadline=None, max_examples=examples(100))
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command run within a test configures logging for its process, and thus for later tests."""
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield
    if root.handlers != before[0]:
        root.handlers[:] = before[0]
    root.setLevel(before[1])
