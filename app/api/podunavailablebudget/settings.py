"""What a budget says in a field of v1beta1 or, older, in an annotation (PUB-1, PUB-3, PUB-120). Pure.

An annotation counts where the field is empty: whoever wrote it in v1alpha1 through OpenKruise, which stores such an
object without converting it, meant it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from app.api import names

_INT32: Final = re.compile(r"[+-]?[0-9]{1,10}").fullmatch


class ProtectedOperation(StrEnum):
    """What a budget can be asked about."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    EVICT = "EVICT"
    RESIZE = "RESIZE"


OPERATIONS: Final = tuple(operation.value for operation in ProtectedOperation)
#: PUB-65: what is protected where nothing is said.
DEFAULT_OPERATIONS: Final = (ProtectedOperation.DELETE, ProtectedOperation.UPDATE, ProtectedOperation.EVICT)


def split_operations(text: str) -> list[str]:
    """PUB-1: the items of the annotation, trimmed, empty ones left out; they may be none of the operations."""
    return [item for part in text.split(",") if (item := part.strip())]


def parse_total(text: str) -> int | None:
    """PUB-1: the annotation as a 32-bit integer; None where it is none."""
    number = int(text) if _INT32(text) else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def protected_operations(given: Sequence[str] | None, annotations: Mapping[str, str]) -> tuple[ProtectedOperation, ...]:
    """PUB-65: the field, else what is known of the annotation, else the default."""
    found = given or split_operations(annotations.get(names.PUB_PROTECT_OPERATIONS, ""))
    known = tuple(ProtectedOperation(item) for item in dict.fromkeys(found) if item in OPERATIONS)
    return known or DEFAULT_OPERATIONS


def protected_total(given: int | None, annotations: Mapping[str, str]) -> int | None:
    """PUB-33: the field, else the annotation where it holds a number of Pods."""
    if given is not None:
        return given
    number = parse_total(annotations.get(names.PUB_PROTECT_TOTAL_REPLICAS, "").strip())
    return number if number is not None and number >= 1 else None
