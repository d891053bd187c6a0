"""Worker process for large conversions, started as ``python -m app.manager.conversion_process``.

Its arguments are the feature folders, so that it supports the same kinds as the process that started it.
"""

from __future__ import annotations

import os
import sys

from app.admission.conversion_worker import ConversionWorker, work
from app.manager.features import FOLDERS, features

MODULE = "app.manager.conversion_process"


def conversion_worker() -> ConversionWorker:
    """Return a client for the worker process."""
    return ConversionWorker(MODULE, *FOLDERS)


if __name__ == "__main__":
    FOLDERS[:] = sys.argv[1:]
    features()
    os.nice(5)  # reviews have priority
    work(sys.stdin.buffer, sys.stdout.buffer)
