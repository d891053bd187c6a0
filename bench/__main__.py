"""Run the named benchmarks, or all except the soak test, which takes 20 minutes: ``python -m bench [NAME …]``.

Exits with 1 if a benchmark fails or exceeds its limit. Exit code 2 of a benchmark (other processes disturbed it) is not
a failure.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Run each benchmark (a module with a ``main``) in its own process. Returns the exit code."""
    modules = sorted(path for path in FOLDER.glob("[!_]*.py") if "\ndef main(" in path.read_text("utf-8"))
    failed = []
    for name in sys.argv[1:] or [path.stem for path in modules]:
        print(f"\n## {name}\n", flush=True)
        start = time.monotonic()
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode not in (0, 2):
            failed.append(name)
        print(f"\n{name} took {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
