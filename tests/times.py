"""How long tests took: a table by package, and one of scenarios by kind and level."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

BUDGET_SECONDS: Final = 60
#: The number of packages in the table, slowest first.
_SHOWN: Final = 15
_LEVELS: Final = ("sandbox", "simulated-nodes", "real-containers")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _packages(terminalreporter)
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


def _packages(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.getreports(outcome):
            package = report.nodeid.partition("::")[0].removeprefix("tests/").rpartition("/")[0] or "tests"
            seconds[package] += getattr(report, "duration", 0.0)
            tests[package].add(report.nodeid)
    terminalreporter.section("seconds per package, all processes together, with the number of tests")
    for package in sorted(seconds, key=seconds.__getitem__, reverse=True)[:_SHOWN]:
        terminalreporter.write_line(f"{package:<40} {seconds[package]:7.1f} s {len(tests[package]):6}")
