"""``python -m tests.shells [--write] [case ...]`` runs cases and prints problems, or updates ``expected.json``."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.shells.cases import cases
from tests.shells.suite import EXPECTED, expected, report_of, write_expected


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shells", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases (default: all)")
    parser.add_argument("--write", action="store_true", help=f"rewrite {EXPECTED.name}")
    parser.add_argument("--first", action="store_true", help="stop each case at its first problem")
    parser.add_argument("--show", type=int, default=20, help="problems of each case")
    parser.add_argument("--verbose", action="store_true", help="show what the shells log")
    options = parser.parse_args()
    if not options.verbose:
        logging.disable(logging.CRITICAL)
    found, wrong = dict(expected()), 0
    for case in cases():
        if options.names and case.name not in options.names:
            continue
        began = time.process_time()
        report = report_of(case, to_first=options.first)
        found[case.name] = report.as_json()
        wrong += len(report.problems)
        print(f"{case.name}: {report.runs} runs, {time.process_time() - began:.1f} s")
        for problem in report.problems[: options.show]:
            print("   ", problem)
        if not options.write and report.as_json() != expected().get(case.name):
            wrong += 1
            print("    is not as recorded:", report.as_json())
    if options.write:
        write_expected(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
