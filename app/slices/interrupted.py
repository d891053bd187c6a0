"""What a command says that is interrupted in the middle of its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.kube.errors import InterruptedCommandError


@contextmanager
def left_behind(left: Callable[[], str]) -> Iterator[None]:
    """Whoever interrupts the block is told what it leaves behind, as it is at that moment."""
    try:
        yield
    except asyncio.CancelledError:
        raise InterruptedCommandError(f"interrupted; {left()}") from None
