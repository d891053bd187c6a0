"""Types for decisions about objects whose status many processes write. ``app.kube.statuses`` writes the changes."""

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
    #: The object with the status that the request changes; None if it changes nothing.
    changed: T | None = None
    #: Whether the answer may be based on a stale copy. This is allowed for "not now", because a retry corrects it. Any
    #: other answer that writes nothing is first verified with the API server.
    provisional: bool = False


#: Decides one request; None represents an object that is gone.
Decision: TypeAlias = Callable[[T | None], Ruling[T, R]]
