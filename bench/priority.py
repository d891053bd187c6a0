"""Scheduling priority over other processes, where the Linux scheduler groups processes by session (autogroup)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def take_precedence(nice: int, others: Iterable[int] = ()) -> None:
    """Set the autogroup niceness of this process's session and of the sessions of ``others`` (process IDs).

    Does nothing without permission, or if the session belongs to another program; start the benchmark with ``setsid``.
    """
    if not nice or (os.getsid(0) != os.getpid() and os.getsid(0) != os.getppid()):
        return
    for pid in (os.getpid(), *others):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), "ascii")
