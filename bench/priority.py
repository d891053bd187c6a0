"""Precedence over other work on the machine, where the scheduler groups processes by session (autogroup)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def take_precedence(nice: int, others: Iterable[int] = ()) -> None:
    """Give this process's session, and those of ``others`` (process ids), a share of the processors as ``nice`` says.

    The session must be our own: start the measurement with ``setsid``. Without the right to do so nothing changes.
    """
    if not nice or (os.getsid(0) != os.getpid() and os.getsid(0) != os.getppid()):
        return
    for pid in (os.getpid(), *others):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), "ascii")
