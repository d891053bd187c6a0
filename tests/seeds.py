"""Which random examples Hypothesis tries: those of the commit, or those of a seed that is given; a run says how to
repeat it.

A pytest plugin. Two runs of one commit try the same examples, so that a run is red for what was changed and not by
chance; ``make property`` tries others each time. ``--hypothesis-seed=N`` repeats any of them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import core

ROOT = Path(__file__).resolve().parent.parent
_OPTION = "--hypothesis-seed"
_SEED = pytest.StashKey[int]()


def seed_of_commit() -> int:
    """Return the first digits of the commit's name as a number; 0 without a repository."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    name = found.stdout.strip()
    return int(name[:8], 16) if found.returncode == 0 and name else 0


def pytest_configure(config: pytest.Config) -> None:
    """Use the commit's seed if none is given. All processes of a run use the same seed."""
    given = config.getoption(_OPTION)
    if given is None:
        core.global_force_seed = config.stash[_SEED] = seed_of_commit()
    elif str(given).isdigit():
        config.stash[_SEED] = int(given)


def how_to_repeat(seed: int) -> str:
    """The last line of a run."""
    return f"random examples: .venv/bin/pytest {_OPTION}={seed} tries the same again"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _SEED in config.stash:
        terminalreporter.write_line(how_to_repeat(config.stash[_SEED]))
