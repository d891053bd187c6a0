"""How long the scenarios of each kind took on each level: a table after the tests. A kind has a minute on each."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

BUDGET_SECONDS: Final = 60
_LEVELS: Final = ("sandbox", "simulated-nodes", "real-containers")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if scenarios ran."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    scenarios: dict[tuple[str, str], set[str]] = defaultdict(set)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            file, _, name = report.nodeid.partition("::")
            level = next((level for level in _LEVELS if level in name.partition("[")[2]), None)
            if not file.startswith("tests/scenarios/") or level is None or report.when == "setup":
                continue  # the first set-up of a level starts it for all
            key = (file.removeprefix("tests/scenarios/test_").removesuffix(".py"), level)
            seconds[key] += report.duration
            scenarios[key].add(name)
    if not seconds:
        return
    terminalreporter.section("seconds per kind and level, with the number of scenarios")
    for kind in sorted({kind for kind, _ in seconds}):
        cells = [
            f"{level} {seconds[kind, level]:.0f} s ({len(scenarios[kind, level])})"
            + (" OVER BUDGET" if seconds[kind, level] > BUDGET_SECONDS else "")
            for level in _LEVELS
            if (kind, level) in seconds
        ]
        terminalreporter.write_line(f"{kind:<24} {', '.join(cells)}")
