"""Int-or-string fields that hold a count or a percentage of one: ``maxUnavailable: 1`` or ``"25%"``.

Percentages are scaled in exact integers. Go computes the same in floating point, which gives the same result for every
count a cluster can have.
"""

from __future__ import annotations

import re

from app.kube.gotext import quote

# strconv.Atoi: an optional sign and ASCII digits.
_percent = re.compile(r"([+-]?[0-9]{1,18})%").fullmatch


class IntOrPercentError(ValueError):
    """A value that is neither an integer nor a percentage."""


def is_percent(value: int | str | None) -> bool:
    """Whether ``value`` is text that ends in a percent sign and begins with an integer."""
    return isinstance(value, str) and _percent(value) is not None


def percentage(value: str) -> int:
    """The number before the percent sign. Raises :class:`IntOrPercentError`."""
    match = _percent(value)
    if match is None:
        raise IntOrPercentError(f'{quote(value)} is neither an integer nor a percentage such as "25%"')
    return int(match[1])


def scaled(value: int | str | None, total: int, round_up: bool) -> int:
    """``value`` as a count: an integer as it is, a percentage of ``total`` rounded up or down.

    Raises :class:`IntOrPercentError` for None and for text that is not a percentage.
    """
    if isinstance(value, bool) or value is None:
        raise IntOrPercentError(f"{'null' if value is None else value} is neither an integer nor a percentage")
    if isinstance(value, int):
        return value
    part = percentage(value) * total
    return -(-part // 100) if round_up else part // 100


def is_more_than_all(value: object) -> bool:
    """Whether it is a percentage over 100, as somebody wrote it: of anything it means no more than 100 % does."""
    number = value.removesuffix("%") if isinstance(value, str) and value.endswith("%") else ""
    return number.replace(".", "", 1).isdecimal() and float(number) > 100
