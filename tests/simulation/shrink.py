"""Shrinking: find a small script and few faults with which a run still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.faults import FAULTS
from tests.simulation.runs import Outcome, Run

#: Maximum number of runs.
BUDGET = 60


def shrunk(outcome: Outcome, simulate: Callable[[Run], Outcome]) -> Outcome:
    """Remove faults and actions as long as the run still fails."""
    left = BUDGET

    def still(run: Run) -> Outcome | None:
        nonlocal left
        if left <= 0:
            return None
        left -= 1
        found = simulate(run)
        return found if found.broken else None

    for fault in FAULTS:
        if (smaller := still(replace(outcome.run, without=(*outcome.run.without, fault)))) is not None:
            outcome = smaller
    kept = sorted(outcome.run.keep if outcome.run.keep is not None else range(len(outcome.run.script)))
    size = len(kept)
    while size >= 1:
        position = 0
        while position < len(kept):
            fewer = kept[:position] + kept[position + size :]
            if (smaller := still(replace(outcome.run, keep=frozenset(fewer)))) is not None:
                outcome, kept = smaller, fewer
            else:
                position += size
        size //= 2
    return outcome
