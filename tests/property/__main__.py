"""The command ``python -m tests.property``; see ``--help``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.property.checks import judge
from tests.property.generate import generate
from tests.property.run import ROOT, CannotResumeError, Progress, code_digest, load, run, shortfalls, table

#: Runs of at least this many cases must reach every branch in one of a hundred; smaller runs are not conclusive.
ENOUGH = 10_000


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every case holds, else 1; 2 for invalid arguments."""
    options = _parser().parse_args(arguments)
    if options.case is not None:
        return _one(options.case)
    if options.dry_run_sample is not None:
        from tests.property.dry_run import print_sample

        return print_sample(options.dry_run_sample, options.seed, options.kubeconfig)
    return _many(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="number of cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="number of the first case (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument(
        "--progress", type=Path, default=ROOT / ".run/property.json", help="progress file (%(default)s)"
    )
    parser.add_argument("--case", type=int, metavar="SEED", help="judge one case and print all of it")
    parser.add_argument("--dry-run-sample", type=int, metavar="N", help="let a real API server judge N admitted Pods")
    parser.add_argument("--kubeconfig", help="the API server for --dry-run-sample")
    return parser


def _one(seed: int) -> int:
    outcome = judge(generate(seed))
    print(outcome.report() if outcome.problems else outcome.report().replace("FAILED", "holds", 1))
    print("branches:", ", ".join(sorted(outcome.expected.branches)))
    return 1 if outcome.problems else 0


def _many(options: argparse.Namespace) -> int:
    digest = code_digest()
    progress = Progress(options.seed, options.cases, digest)
    if options.resume:
        try:
            progress = load(options.progress, options.seed, options.cases, digest)
        except CannotResumeError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"resumed: {progress.judged} of {progress.cases} cases are judged")
    try:
        run(progress, options.progress, options.jobs, lambda text: print(text, flush=True))
    except KeyboardInterrupt:
        print(f"stopped after {progress.judged} cases; continue with --resume", file=sys.stderr)
        return 1
    print("\n".join(table(progress.branches, progress.cases)))
    rare = shortfalls(progress.branches, progress.cases) if progress.cases >= ENOUGH else []
    for branch in rare:
        print(f"reached too rarely: {branch}")
    failed = sorted(progress.failed)
    print(f"{progress.judged} cases in {progress.seconds:.0f} s, {len(failed)} failed, {len(rare)} branches too rare")
    for seed in failed[:100]:
        print(f"  python -m tests.property --case {seed}")
    return 1 if failed or rare else 0


if __name__ == "__main__":
    sys.exit(main())
