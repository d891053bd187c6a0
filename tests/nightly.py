"""Nightly runs make every check and use all cases; others use some of them."""

from __future__ import annotations

import os
from typing import Final

NIGHTLY: Final = bool(os.environ.get("PYKRUISE_NIGHTLY"))


def examples(count: int) -> int:
    """Return how many random examples a test tries: half of ``count``, or all of it in a nightly run."""
    return count if NIGHTLY else count // 2
