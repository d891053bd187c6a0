"""``python -m tests.simulation --seeds 1-2000``: run seeds and report the first that violates an invariant.

A file records the seeds that passed with the current code, so that a stopped run can resume. The exit code is 1 if
a seed failed.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.kit.virtualtime import Stalled
from tests.simulation.faults import FAULTS
from tests.simulation.process import with_fixed_hashes
from tests.simulation.runs import Outcome, Run
from tests.simulation.script import LARGE, SMALL
from tests.simulation.shrink import shrunk
from tests.simulation.workloads import DEFAULT, SUBJECTS
from tests.simulation.world import simulate

ROOT = Path(__file__).resolve().parent.parent.parent
DONE = ROOT / ".simulation"
#: Seconds and actions of a long run.
HOUR = (3600.0, 100)


def main(arguments: Sequence[str] | None = None) -> int:
    with_fixed_hashes("tests.simulation", arguments)
    options = _options(arguments)
    logging.basicConfig(level=logging.DEBUG if options.log else logging.CRITICAL, format="%(name)s: %(message)s")
    keep = None if options.keep is None else frozenset(int(i) for i in options.keep.split(",") if i.isdigit())
    without = tuple(name for name in options.without.split(",") if name)
    if unknown := [name for name in without if name not in FAULTS]:
        print(f"--without: unknown fault {unknown[0]}, use one of {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    done = _Done(options.again or keep is not None or bool(without))
    began, virtual, cpu, ran, broken = time.perf_counter(), 0.0, 0.0, 0, 0
    seconds, actions = HOUR if options.hour else (options.seconds, options.actions)
    size = LARGE if options.hour else options.size
    abouts = [*SUBJECTS] if options.about == "all" else [options.about]
    there = SUBJECTS[abouts[0]].focuses if len(abouts) == 1 else {}
    if unknown := [name for name in options.focus if name not in (*there, "all")]:
        print(f"--focus: unknown focus {unknown[0]}, use one of {', '.join(there)}", file=sys.stderr)
        return 2
    focuses = [*there] if "all" in options.focus else options.focus or [""]
    chosen = [(about, focus, seed) for about in abouts for focus in focuses for seed in _seeds(options.seeds)]
    runs = (Run(seed, seconds, actions, keep, without, size, focus, about) for about, focus, seed in chosen)
    spent: Counter[str] = Counter()
    for outcome in _outcomes([run for run in runs if not done.has(run)], options.jobs, twice=options.twice):
        ran += 1
        virtual += outcome.virtual_seconds
        cpu += outcome.cpu_seconds
        spent[outcome.run.about] += round(1000 * outcome.cpu_seconds)
        if options.show or options.hour:
            print(
                f"seed {outcome.run.seed}: digest {outcome.digest}, {outcome.writes} writes, "
                f"at most {outcome.most_pods} Pods, {outcome.virtual_seconds:.0f} s, {outcome.cpu_seconds:.1f} s CPU"
            )
        if not outcome.broken:
            done.add(outcome.run)
            continue
        broken += 1
        _report(outcome if options.no_shrink or options.twice else shrunk(outcome, checked), ran)
        if broken >= options.failures:
            break
    took = time.perf_counter() - began
    if len(abouts) > 1:
        for about in abouts:
            print(f"{about:<24} {spent[about] / 1000:6.1f} s CPU")
    print(
        f"{ran} seeds, {broken} failed, {virtual / 3600:.1f} virtual hours in {took:.1f} s "
        f"({took / max(1, ran):.2f} s each, {cpu / max(1, ran):.2f} s CPU)"
    )
    return 1 if broken else 0


def _outcomes(runs: Sequence[Run], jobs: int, *, twice: bool) -> Iterator[Outcome]:
    one = partial(checked, twice=twice)
    if jobs == 1 or len(runs) < 2:
        yield from map(one, runs)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(one, runs)


def checked(run: Run, *, twice: bool = False) -> Outcome:
    """Simulate a run; an exception counts as a violation. ``twice``: run it again and require the same history."""
    try:
        outcome = simulate(run)
    except (Stalled, AssertionError) as error:
        return Outcome(run, (f"{type(error).__name__}: {error}",), "", 0, 0.0, ())
    if twice and (again := simulate(run)).digest != outcome.digest:
        both = (f"two histories of one seed: {outcome.digest} and {again.digest}",)
        return Outcome(run, both, outcome.digest, outcome.writes, outcome.virtual_seconds, outcome.last)
    return outcome


def _report(outcome: Outcome, ran: int) -> None:
    print(f"\nseed {outcome.run.seed} (number {ran} of this run) failed:")
    for line in outcome.broken[:10]:
        print(f"  {line}")
    print("the end of its history:")
    for line in outcome.last[-40:]:
        print(f"  {line}")
    print("script:")
    for action in outcome.run.script:
        print(f"  {action}")
    print(f"again: {outcome.run.command}")


class _Done:
    """Seeds that passed with this code."""

    def __init__(self, ignore: bool) -> None:
        self._ignore = ignore
        self._path = DONE / _code_digest()
        self._lines = set(self._path.read_text().split("\n")) if self._path.exists() and not ignore else set()

    def has(self, run: Run) -> bool:
        return run.command in self._lines

    def add(self, run: Run) -> None:
        if self._ignore:
            return
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(run.command + "\n")


def _code_digest() -> str:
    digest = hashlib.sha256()
    for folder in ("app", "tests/simulation"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _seeds(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="like 1-2000 or 7,9 (default: 1-100)")
    parser.add_argument("--seconds", type=float, help="virtual seconds of script (default: by seed, 60 to 180)")
    parser.add_argument("--actions", type=int, help="actions in that time (default: by seed, 12 to 30)")
    parser.add_argument("--size", type=int, default=SMALL, help=f"most Pods of a workload (default: {SMALL})")
    seconds, actions = HOUR
    long = f"--seconds {seconds:g} --actions {actions} --size {LARGE}: about 100 Pods"
    parser.add_argument("--hour", action="store_true", help=long)
    parser.add_argument("--keep", help="run only these actions of the script, by number")
    parser.add_argument("--without", default="", help="faults to leave out")
    parser.add_argument("--focus", action="append", default=[], help="repeat this instead of a storm; all: each")
    about = f"the subject (default: {DEFAULT}); all: each subject"
    parser.add_argument("--about", choices=[*SUBJECTS, "all"], default=DEFAULT, help=about)
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failed seeds (default: 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs (default: one per CPU)")
    parser.add_argument("--again", action="store_true", help="also run seeds that have passed")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the histories")
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten a failed seed")
    parser.add_argument("--show", action="store_true", help="print a line per seed")
    parser.add_argument("--log", action="store_true", help="print all logs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
