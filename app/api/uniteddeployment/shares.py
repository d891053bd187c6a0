"""Shares of a UnitedDeployment's replicas as users write them (UD-34). Pure."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

#: A share as users write it: a number, or a percentage of the replicas.
Share: TypeAlias = int | str

#: More than any workload has; stands for "no limit".
UNLIMITED: Final = 1_000_000
_PERCENT: Final = re.compile(r"[+-]?[0-9]{1,9}%")


class ShareError(ValueError):
    """A share that is none; the text says why."""


def count_of(share: Share, replicas: int | None) -> int:
    """UD-34: a share as a number; percentages are rounded half up. Raises ShareError."""
    if isinstance(share, int):
        if share < 0:
            raise ShareError(f"{share} should not be less than 0")
        return share
    if not _PERCENT.fullmatch(share):
        raise ShareError(f"{share[:64]!r} is neither a number nor a percentage such as 30%")
    if replicas is None:
        raise ShareError(f"{share} of nothing: spec.replicas is not set")
    percent = int(share[:-1])
    if not 0 <= percent <= 100:
        raise ShareError(f"{share} should be between 0% and 100%")
    return (percent * replicas * 2 + 100) // 200
