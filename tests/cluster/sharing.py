"""Groups tests that must run in one process: `pytest --numprocesses=4 --dist=loadgroup`.

A scenario runs in a namespace of its own on what all processes share (shared.py), so each goes to whichever process is
free; so does each guide, which has a sandbox of its own. A module that starts an API server for itself is not divided.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Marks the parameters of a scenario that runs on something shared.
_SHARED_LEVELS = ("simulated-nodes", "real-containers")
#: The tests of this module share nothing.
GUIDES = "tests/cli/test_guides_controlplane.py"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Replaces pytest-xdist's own groups, whose names it adds to those of the tests."""
    return _ByFixtures(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByFixtures(LoadScopeScheduling):
    """Distributes group after group, large groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return the group of a test: its module, or none for a scenario or a guide."""
    parameters = nodeid.partition("[")[2]
    if nodeid.startswith("tests/scenarios/") and any(level in parameters for level in _SHARED_LEVELS):
        return nodeid
    module = nodeid.partition("::")[0]
    return nodeid if module == GUIDES else module
