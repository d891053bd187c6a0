"""The process of a run: its hashes, garbage collector and log."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def with_fixed_hashes(module: str, arguments: Sequence[str] | None) -> None:
    """Restart Python unless its hashes are fixed: a history depends on the iteration order of sets."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        given = sys.argv[1:] if arguments is None else arguments
        os.execve(sys.executable, [sys.executable, "-m", module, *given], {**os.environ, "PYTHONHASHSEED": "0"})


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, which would take a sixth of the time of a run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def errors_logged() -> Iterator[list[str]]:
    """Collect the errors that are logged with a traceback."""
    found: list[str] = []
    handler = _Collect(found)
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)


class _Collect(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(f"logged an error: {record.getMessage()}: {record.exc_info[1]!r}")
