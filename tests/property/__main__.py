"""The command ``python -m tests.property``; see ``--help``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.property.checks import judge
from tests.property.generate import generate
from tests.property.run import Progress, run, shortfalls, table

#: Runs of at least this many cases must reach every branch in one of a hundred; smaller runs are not conclusive.
ENOUGH = 10_000


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every case holds, else 1; 2 for invalid arguments."""
    options = _parser().parse_args(arguments)
    return _many(options) if options.case is None else _one(options.case)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="number of cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="number of the first case (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--case", type=int, metavar="SEED", help="judge one case and print all of it")
    return parser


def _one(seed: int) -> int:
    outcome = judge(generate(seed))
    print(outcome.report() if outcome.problems else outcome.report().replace("FAILED", "holds", 1))
    print("branches:", ", ".join(sorted(outcome.expected.branches)))
    return 1 if outcome.problems else 0


def _many(options: argparse.Namespace) -> int:
    progress, started = Progress(), time.monotonic()
    try:
        run(progress, options.seed, options.cases, options.jobs, lambda text: print(text, flush=True))
    except KeyboardInterrupt:
        rest = f"--seed {options.seed + progress.judged} --cases {options.cases - progress.judged}"
        print(f"stopped after {progress.judged} cases; continue with {rest}", file=sys.stderr)
        for seed in progress.failed:
            print(f"  python -m tests.property --case {seed}", file=sys.stderr)
        return 1
    print("\n".join(table(progress.branches, options.cases)))
    rare = shortfalls(progress.branches, options.cases) if options.cases >= ENOUGH else []
    for branch in rare:
        print(f"reached too rarely: {branch}")
    failed, seconds = progress.failed, time.monotonic() - started
    print(f"{progress.judged} cases in {seconds:.0f} s, {len(failed)} failed, {len(rare)} branches too rare")
    for seed in failed[:100]:
        print(f"  python -m tests.property --case {seed}")
    return 1 if failed or rare else 0


if __name__ == "__main__":
    sys.exit(main())
