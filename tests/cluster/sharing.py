"""Groups tests that must run in one process: `pytest --numprocesses=4 --dist=loadgroup`.

A scenario runs in its own namespace of a shared server (shared.py), so any free process may run it. The same is true of
a guide, which has its own sandbox. The tests of a module that starts its own API server stay together.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Marks the parameters of a scenario that runs on a shared server.
_SHARED_LEVELS = ("simulated-nodes", "real-containers")
#: The tests of this module do not share anything.
GUIDES = "tests/cli/test_guides_controlplane.py"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Replace pytest-xdist's own groups, which would be added to the names of tests."""
    return _ByFixtures(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByFixtures(LoadScopeScheduling):
    """Distributes whole groups of tests, large groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return the group of a test: its module, or the test itself for a scenario or a guide."""
    parameters = nodeid.partition("[")[2]
    if nodeid.startswith("tests/scenarios/") and any(level in parameters for level in _SHARED_LEVELS):
        return nodeid
    module = nodeid.partition("::")[0]
    return nodeid if module == GUIDES else module
