"""Planted bugs: small changes to shells that this suite must catch: ``python -m tests.shells.planted``.

``planted.yaml`` lists them in the format of ``tests/planted.py``. ``case`` names the case that fails with the bug, or
``test`` the unit tests if no case can. Each bug runs in a process forked from one that has loaded everything.
The exit code is 1 if a bug matches no code or survives.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.deadline import slowness
from tests.planted import ROOT, PlantError, load, plant
from tests.shells.cases import cases
from tests.shells.suite import expected, report_of, started

LIST: Final = Path(__file__).with_name("planted.yaml")
#: Seconds of processor time for one case on a fast machine; a bug whose case takes longer is not caught.
LIMIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says whether a bug was caught, and what failed or why nothing did."""

    name: str
    caught: bool
    why: str


class _HangsError(KeyboardInterrupt):
    """A case does not end. This is not an Exception, so that no loop handles it."""


def _hangs(*_: object) -> None:
    raise _HangsError


def judge(name: str, path: Path = LIST) -> Verdict:
    """Run the case or tests that must fail with the bug. Changes the code of this process."""
    (bug,) = (one for one in load(path) if one.name == name)
    if test := bug.options.get("test", ""):
        command = [sys.executable, "-m", "tests.planted", str(path), name, "pytest", "-qx", "-p", "no:cacheprovider"]
        ran = subprocess.run([*command, *test.split()], cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line for line in ran.stdout.splitlines() if line.startswith("E  ")]
        return Verdict(name, caught=ran.returncode == 1 and bool(lines), why=(lines or [ran.stdout[-300:]])[0])
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGVTALRM, _hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS * slowness())
    try:
        plant(bug)
        (case,) = (one for one in cases() if one.name == bug.options["case"])
        report = report_of(case, to_first=True)
    except PlantError as error:
        return Verdict(name, caught=False, why=str(error))
    except _HangsError:
        return Verdict(name, caught=False, why="does not end")
    if report.problems:
        return Verdict(name, caught=True, why=report.problems[0])
    same = report.as_json() == expected()[case.name]
    return Verdict(name, caught=not same, why="survived" if same else "is not as recorded")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shells.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs (default: all)")
    parser.add_argument("--list", type=Path, default=LIST, help=f"another file than {LIST.name}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per CPU)")
    options = parser.parse_args()
    chosen = [one.name for one in load(options.list) if not options.names or one.name in options.names]
    survived = 0
    started()  # every process has a copy
    judged = partial(judge, path=options.list.resolve())
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for verdict in pool.imap_unordered(judged, chosen):
            survived += not verdict.caught
            print(f"{'caught  ' if verdict.caught else 'SURVIVED'} {verdict.name}: {verdict.why[:200]}", flush=True)
    print(f"{len(chosen)} planted, {survived} survived")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
