"""Which tests one process runs together where several run a level: `pytest --numprocesses=2 --dist=loadgroup`.

Every process has an API server of its own, and a module may start more. So a module is never divided; nor are the
scenarios, the last of which judge what the manager asked of the API server in all of them.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Folders that are not divided.
_UNDIVIDED = ("tests/scenarios/",)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Take the place of pytest-xdist's own groups, whose names it adds to those of the tests."""
    return _ByFixtures(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByFixtures(LoadScopeScheduling):
    """Hands out group after group, those of many tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """What a test is run together with: its module, or a folder."""
    return next((folder for folder in _UNDIVIDED if nodeid.startswith(folder)), nodeid.partition("::")[0])
