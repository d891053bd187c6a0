"""Programs that use other projects' Go modules, each in a folder here, built with the ordinary Go client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.paths import cache_dir

_UNAVAILABLE = re.compile(r"403 Forbidden|404 Not Found|dial tcp|connection refused|requires go >=|toolchain not avail")


def run(name: str, stdin: str, **environment: str) -> str:
    """Return the output of the program. Skips the test with a reason if the program cannot be built here."""
    done = subprocess.run(
        [_built(name)], input=stdin, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _built(name: str) -> Path:
    if shutil.which("go") is None:
        pytest.skip("not checked: no Go compiler found")
    target = cache_dir() / f"peer-{name}"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", str(target), "."]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    folder = Path(__file__).parent / name
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and (found := _UNAVAILABLE.search(done.stderr)):
        line = next(line for line in done.stderr.splitlines() if found.group() in line)
        pytest.skip(f"not checked: {line.strip()}")
    assert done.returncode == 0, done.stderr
    return target
