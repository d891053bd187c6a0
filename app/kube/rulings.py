"""Decisions about an object that many writers share: what each says of one request. Pure.

``app.kube.statuses`` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from app.kube.objects import Object

T = TypeVar("T", bound=Object)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Ruling(Generic[T, R]):
    """What a decision says of one request."""

    answer: R
    #: The object with the status that the answer is about to take from; None: it takes nothing.
    changed: T | None = None
    #: Whether the answer may rest on a copy that others may have changed since. True for "not now", which the next
    #: try sets right. An answer that lets something happen without a write is checked against the API server first.
    provisional: bool = False


#: Decides one request; None stands for an object that is gone.
Decision: TypeAlias = Callable[[T | None], Ruling[T, R]]
