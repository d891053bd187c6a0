"""Folders for builds and runs of the test cluster, outside the clone, in the user's cache folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parent


def cache_dir() -> Path:
    """Return `$PYKRUISE_CACHE`, or `pykruise` in the user's cache folder; create it if missing."""
    named = os.environ.get("PYKRUISE_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(named) if named else Path(user_cache) / "pykruise"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def runs_dir() -> Path:
    """Return the folder of all runs; each running or crashed control plane or cluster has a subfolder."""
    path = cache_dir() / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@contextmanager
def locked(lock_file: Path) -> Iterator[None]:
    """Hold `lock_file` against other processes; the kernel releases it even if this process is killed."""
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
