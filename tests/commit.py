"""A seed that all processes of a test run share, and that changes with the commit."""

import subprocess
from functools import cache
from pathlib import Path


@cache
def commit_seed() -> int:
    """The first digits of the current commit; 0 without git."""
    folder = Path(__file__).resolve().parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout[:8], 16)
