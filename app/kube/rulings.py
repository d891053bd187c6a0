"""Types for decisions about an object with many writers, with one result per request. Pure.

``app.kube.statuses`` writes the changes.
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
    """The result of a decision for one request."""

    answer: R
    #: The object with its status after the request has consumed from it; None if the request consumes nothing.
    changed: T | None = None
    #: Whether the answer may be based on a stale copy. True for "not now", which a retry corrects. Any other answer
    #: without a write is verified with the API server first.
    provisional: bool = False


#: Decides one request; None represents an object that is gone.
Decision: TypeAlias = Callable[[T | None], Ruling[T, R]]
