"""Context managers that control the garbage collector and the log during a run."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager


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
