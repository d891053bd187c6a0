"""The same commit uses the same random examples, and a run prints how to repeat them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.seeds import ROOT, seed_of_commit

TEST = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=20, database=None)
@given(st.integers())
def test_tries(number):
    with open("tried.txt", "a") as file:
        file.write(f"{number} ")
"""


def run(folder: Path, *options: str) -> tuple[str, str]:
    (folder / "test_it.py").write_text(TEST, "utf-8")
    tried = folder / "tried.txt"
    tried.unlink(missing_ok=True)
    plugins = ("-p", "tests.seeds", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, "test_it.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    return tried.read_text("utf-8"), found.stdout


def test_a_commit_repeats_its_examples_and_a_seed_repeats_a_run(tmp_path: Path) -> None:
    once, printed = run(tmp_path)
    [seed] = re.findall(r"--hypothesis-seed=(\d+)", printed)
    assert int(seed) == seed_of_commit()
    assert run(tmp_path, f"--hypothesis-seed={seed}")[0] == once
    other, printed = run(tmp_path, "--hypothesis-seed=7")
    assert other != once
    assert "--hypothesis-seed=7" in printed
