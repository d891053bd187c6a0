"""Counts that may be percentages. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

DEFAULT_MAX_UNAVAILABLE: Final = "20%"
"""What an unset maxUnavailable means."""

_percent = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)%", re.ASCII).fullmatch


def share(value: int | str, total: int, *, round_up: bool) -> int | None:
    """``value`` as a count: an integer as it is, a percentage of ``total`` rounded; None for any other text.

    Percentages may have decimals (B-5); they are scaled in exact arithmetic.
    """
    if isinstance(value, int):
        return value
    match = _percent(value)
    if match is None:
        return None
    part = Fraction(match[1]) * total / 100
    return -((-part).__floor__()) if round_up else part.__floor__()
