"""Ordinals of Pods: slots counted from a start ordinal, skipping reserved ones. [AS-39, AS-48 … AS-50]

Slots are kept as ranges, so the cost does not depend on the number of replicas or reserved ordinals.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_ORDINAL: Final = 2**31 - 1
_range = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII).fullmatch
_written_range = re.compile(r"[0-9]+-[0-9]+", re.ASCII).fullmatch
_ordinal = re.compile(r"(?:0|[1-9][0-9]{0,9})", re.ASCII).fullmatch

#: First and last ordinal of a range.
Interval = tuple[int, int]


def ordinal_of(owner: str, pod: str) -> int:
    """Return the ordinal of the Pod with that name; -1 for a name the owner would not generate. [AS-39, AS-134]"""
    prefix, dash, digits = pod.rpartition("-")
    if prefix != owner or not dash or not _ordinal(digits):
        return -1
    found = int(digits)
    return found if found <= MAX_ORDINAL else -1


def reserve_problems(listed: Sequence[int | str]) -> Iterator[str]:
    """Yield the errors in ``reserveOrdinals``, in OpenKruise's wording. [AS-17]"""
    for index, one in enumerate(listed):
        where = f"{index} th reserve ordinal"
        if isinstance(one, int):
            if one < 0:
                yield f"{where} is invalid: {one}, must be greater than or equal to 0"
            continue
        if not _written_range(one):
            yield f"{where} is not a valid range: {one}"
        elif (bounds := [_number(end) for end in one.split("-")])[0] <= bounds[1] < 2**31:
            continue
        yield f"{where} is invalid: {one}, err = invalid range {one}"


def _number(digits: str) -> int:
    # int() rejects thousands of digits; no ordinal has more than ten.
    return int(digits.lstrip("0")[:11] or "0")


def reserved_intervals(listed: Iterable[int | str]) -> tuple[Interval, ...]:
    """Return ``reserveOrdinals`` as sorted ranges that neither overlap nor adjoin. Unparsable entries reserve
    nothing. [AS-49]"""
    found: list[Interval] = []
    for one in listed:
        if isinstance(one, int):
            if one >= 0:
                found.append((one, one))
        elif (match := _range(one)) and int(match[1]) <= int(match[2]):
            found.append((int(match[1]), int(match[2])))
    merged: list[Interval] = []
    for first, last in sorted(found):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class Slots:
    """The ordinals that must have a Pod, ascending. ``ranges`` holds the first and last ordinal of each range, and the
    number of slots before it."""

    ranges: Sequence[tuple[int, int, int]]
    count: int

    @classmethod
    def of(cls, replicas: int, start: int, reserved: Sequence[Interval]) -> Slots:
        """Return the first ``replicas`` ordinals from ``start`` that are not reserved. [AS-48]"""
        ranges: list[tuple[int, int, int]] = []
        taken, at = 0, max(0, start)
        for first, last in (*reserved, (MAX_ORDINAL * 4, MAX_ORDINAL * 4)):
            if taken >= replicas:
                break
            if last < at:
                continue
            free = min(first - at, replicas - taken)
            if free > 0:
                ranges.append((at, at + free - 1, taken))
                taken += free
            at = last + 1
        return cls(tuple(ranges), taken)

    def rank(self, ordinal: int) -> int:
        """Return the position of an ordinal among the slots, counted from 1; 0 if it is not a slot."""
        index = bisect_right(self.ranges, ordinal, key=lambda one: one[0]) - 1
        if index < 0 or ordinal > self.ranges[index][1]:
            return 0
        first, _, before = self.ranges[index]
        return before + ordinal - first + 1

    def not_last(self, ordinals: Iterable[int]) -> list[int]:
        """Return those slots to remove that must be reserved, ascending. The others are the last slots and disappear
        when replicas decreases."""
        last, found = len(self), []
        for ordinal in sorted(ordinals, reverse=True):
            if self.rank(ordinal) == last:
                last -= 1
            else:
                found.append(ordinal)
        return found[::-1]

    def __contains__(self, ordinal: int) -> bool:
        return self.rank(ordinal) > 0

    def __iter__(self) -> Iterator[int]:
        for first, last, _ in self.ranges:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return self.count

    @property
    def end(self) -> int:
        """The last slot plus one; 0 if there are no slots."""
        return self.ranges[-1][1] + 1 if self.ranges else 0
