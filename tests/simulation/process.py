"""What a run needs of the process it is in: its garbage collector and its log."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Garbage waits for the end of a run: a collector in its midst costs a sixth of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class errors_logged:
    """Collects what is logged as a mistake of ours (an error with a stack) while it is entered."""

    def __enter__(self) -> list[str]:
        self._found: list[str] = []
        self._handler = _Collect(self._found)
        self._root = logging.getLogger()
        self._level = self._root.level
        self._root.addHandler(self._handler)
        return self._found

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self._handler)


class _Collect(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(f"logged as a mistake: {record.getMessage()}: {record.exc_info[1]!r}")
