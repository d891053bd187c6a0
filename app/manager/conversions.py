"""The process that large conversions run in: ``python -m app.manager.conversions`` knows the kinds of this build.

The folders of its features are its arguments, so that it knows those of whoever started it.
"""

from __future__ import annotations

import os
import sys

from app.admission.conversion_worker import ConversionWorker, work
from app.manager.features import FOLDERS, features

MODULE = "app.manager.conversions"


def conversion_worker() -> ConversionWorker:
    """The other end of such a process."""
    return ConversionWorker(MODULE, *FOLDERS)


if __name__ == "__main__":
    FOLDERS[:] = sys.argv[1:]
    features()
    os.nice(5)  # reviews come first
    work(sys.stdin.buffer, sys.stdout.buffer)
