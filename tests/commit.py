"""A seed that all processes of a test run agree on, and that changes from commit to commit."""

import subprocess
from functools import cache
from pathlib import Path


@cache
def commit_seed() -> int:
    """The first digits of the commit that is checked out; 0 where there is no git."""
    folder = Path(__file__).resolve().parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout[:8], 16)
