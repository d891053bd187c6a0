"""Planted bugs, small changes of shells that this suite catches: ``python -m tests.shells.planted --sample 8``.

``planted.json`` holds them: a file, exact text that occurs once in it and what takes its place, and the case that
fails. Each runs in a process of its own, over a copy of the code. The sample is decided by ``--by``, for CI the hash of
the commit. A bug that no longer applies, or that survives, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = Path(__file__).with_name("planted.json")
#: Seconds for one case.
LIMIT_SECONDS: Final = 300.0


class Planted(msgspec.Struct, frozen=True):
    """One bug. ``case``: the cases that fail with it; ``test`` the unit test that does, where no case can."""

    name: str
    file: str
    old: str
    new: str
    case: str = ""
    test: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a bug: caught, survived, or does not apply."""

    name: str
    caught: bool
    why: str


def planted() -> list[Planted]:
    """All of them."""
    return msgspec.json.decode(LIST.read_bytes(), type=list[Planted])


def judge(bug: Planted) -> Verdict:
    """Plant one in a copy of the code and run what should fail."""
    text = (ROOT / bug.file).read_text()
    if text.count(bug.old) != 1:
        return Verdict(bug.name, caught=False, why=f"the text occurs {text.count(bug.old)} times in {bug.file}")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for folder in ("app", "tests/shells", "tests/kube"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.patch"))
        for one in ROOT.iterdir():
            if one.name != "app" and one.name != "tests":
                (copy / one.name).symlink_to(one)
        for one in (ROOT / "tests").iterdir():
            if not (copy / "tests" / one.name).exists():
                (copy / "tests" / one.name).symlink_to(one)
        (copy / bug.file).write_text(text.replace(bug.old, bug.new))
        command = [sys.executable, "-m", "tests.shells", bug.case] if bug.case else [
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", bug.test,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Verdict(bug.name, caught=True, why="does not end")
    found = [line.strip() for line in ran.stdout.splitlines() if line.startswith(("    ", "E  "))]
    if ran.returncode == 2 or (ran.returncode and not found and not ran.stderr):
        return Verdict(bug.name, caught=False, why=ran.stdout[-300:])
    return Verdict(bug.name, caught=bool(ran.returncode), why=(found or [ran.stderr[-200:] or "survived"])[0])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.shells.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs (default: all)")
    parser.add_argument("--sample", type=int, default=0, help="so many of them only")
    parser.add_argument("--by", default="", help="what decides the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per CPU)")
    options = parser.parse_args()
    chosen = [one for one in planted() if not options.names or one.name in options.names]
    if options.sample:
        chosen = Random(options.by).sample(chosen, min(options.sample, len(chosen)))
    survived = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(judge, one) for one in chosen]):
            verdict = done.result()
            survived += not verdict.caught
            print(f"{'caught  ' if verdict.caught else 'SURVIVED'} {verdict.name}: {verdict.why[:200]}", flush=True)
    print(f"{len(chosen)} planted, {survived} survived")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
