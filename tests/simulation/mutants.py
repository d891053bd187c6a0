"""Mutants: small ways to break the code, each of which a seed must find: ``python -m tests.simulation.mutants``.

Each ``mutants/*.patch`` is applied to a copy of the code, and seeds are run on the copy until one breaks. A mutant that
survives, or a patch that does not apply, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PATCHES = Path(__file__).resolve().parent / "mutants"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants (default: all)")
    parser.add_argument("--seeds", type=int, default=200, help="seeds to find one with (default: 200)")
    options = parser.parse_args(arguments)
    patches = [path for path in sorted(PATCHES.glob("*.patch")) if not options.names or path.stem in options.names]
    survivors = [path.stem for path in patches if not _found(path, options.seeds)]
    print(f"{len(patches)} mutants, {len(survivors)} survived{': ' if survivors else ''}{', '.join(survivors)}")
    return 1 if survivors or not patches else 0


def _found(patch: Path, seeds: int) -> bool:
    """Whether a seed breaks with the patch applied; prints how many it took."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for folder in ("app", "tests", "policies"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "data"))
        for data in (path for path in (ROOT / "app").rglob("data") if path.is_dir()):
            (copy / data.relative_to(ROOT)).symlink_to(data)
        applied = subprocess.run(
            ["patch", "-p1", "--batch", "-i", str(patch)], cwd=copy, capture_output=True, text=True
        )
        if applied.returncode:
            print(f"{patch.stem}: the patch does not apply: {applied.stdout.strip()}")
            return False
        command = [sys.executable, "-m", "tests.simulation", "--seeds", f"1-{seeds}", "--again", "--no-shrink"]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1) or (run.returncode and "breaks:" not in run.stdout):
        print(f"{patch.stem}: the simulation failed: {run.stderr[-500:]}")
        return False
    took = re.search(r"\(the (\d+)\. of this run\)", run.stdout)
    first = next((line.strip() for line in run.stdout.splitlines() if "BROKEN" in line), "")
    print(f"{patch.stem}: {f'found by the {took[1]}. seed: {first}' if took else f'survived {seeds} seeds'}")
    return took is not None


if __name__ == "__main__":
    sys.exit(main())
