"""Run all faults, or those named: `python -m tests.chaos [--seconds 60] [FAULT …]`. Prints a table. The exit code is 1
if a Pod had an outcome that its fault does not allow, or if something did not recover."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.faults import FAULTS, HEAD, problems, run, site


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="part of a name: " + "; ".join(FAULTS))
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the load for each")
    options = parser.parse_args()
    wanted = [name for name in FAULTS if not options.faults or any(part in name for part in options.faults)]
    if not wanted:
        parser.error(f"no fault is named {' or '.join(options.faults)}")
    failed = False
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as made:
        print(HEAD, flush=True)
        for fault in wanted:
            report = run(made, fault, before=5.0, after=options.seconds - 5.0)
            print(report.row(), flush=True)
            for message, count in report.creations.messages().most_common(4):
                print(f"  {count} x {message}", flush=True)
            for problem in problems(report):
                failed = True
                print(f"  FAILED: {problem}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
