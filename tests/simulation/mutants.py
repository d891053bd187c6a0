"""Mutants: small ways to break the code, each of which a seed must find: ``python -m tests.simulation.mutants``.

Each ``mutants/*.patch`` is applied to a copy of the code, and seeds run on the copy until one breaks. A patch begins
with a sentence that says what goes wrong with it, and may name the seed to begin with (``Seeds: 38``). A mutant that
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PATCHES = Path(__file__).resolve().parent / "mutants"
_FIRST = re.compile(r"^Seeds: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a mutant. ``seed`` is the one that found it, None: none did."""

    name: str
    seed: int | None
    took: int
    why: str

    def __str__(self) -> str:
        text = f"found by seed {self.seed}, the {self.took}. tried" if self.seed is not None else "SURVIVED"
        return f"{self.name}: {text}: {self.why}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants (default: all)")
    parser.add_argument("--seeds", type=int, default=20, help="seeds to find one with (default: 20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per CPU)")
    parser.add_argument("--first", type=int, help="the seed to begin with, whatever a patch says")
    options = parser.parse_args(arguments)
    patches = [path for path in sorted(PATCHES.glob("*.patch")) if not options.names or path.stem in options.names]
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda path: judged(path, options.seeds, options.first), patches):
            print(found, flush=True)
            if found.seed is None:
                survivors.append(found.name)
    print(f"{len(patches)} mutants, {len(survivors)} survived{': ' if survivors else ''}{', '.join(survivors)}")
    return 1 if survivors or not patches else 0


def judged(patch: Path, seeds: int, first: int | None = None) -> Found:
    """Whether a seed breaks with the patch applied."""
    if first is None:
        named = _FIRST.search(patch.read_text())
        first = int(named[1]) if named else 1
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        copied(copy)
        applying = ["patch", "-p1", "--batch", "--fuzz=0", "-i", str(patch)]
        applied = subprocess.run(applying, cwd=copy, capture_output=True, text=True, check=False)
        if applied.returncode:
            return Found(patch.stem, None, 0, f"the patch does not apply: {applied.stdout.strip()}")
        command = [sys.executable, "-m", "tests.simulation", "--again", "--no-shrink", "--jobs", "1"]
        command += ["--seeds", f"{first}-{first + seeds - 1}"]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return Found(patch.stem, None, seeds, f"seeds {first} to {first + seeds - 1} hold")
    broken = re.search(r"^seed (\d+) \(the (\d+)\. of this run\) breaks:\n +(.*)$", run.stdout, re.MULTILINE)
    if broken is None or " BROKEN: " not in broken[3]:
        return Found(patch.stem, None, 0, f"the simulation failed: {(run.stdout + run.stderr)[-800:]}")
    return Found(patch.stem, int(broken[1]), int(broken[2]), broken[3].partition(" BROKEN: ")[2][:160])


def copied(to: Path) -> None:
    """The code and what is compiled of it, without data, which is linked."""
    folders = [ROOT / "app", ROOT / "policies", ROOT / "tests/simulation"]
    data = [path for folder in folders for path in folder.rglob("data") if path.is_dir()]
    for folder in folders:
        shutil.copytree(folder, to / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("data", "mutants"))
    for path in data:
        (to / path.relative_to(ROOT)).symlink_to(path)
    shutil.copy2(ROOT / "tests/__init__.py", to / "tests/__init__.py")


if __name__ == "__main__":
    sys.exit(main())
