"""Judges check the writes of a controller, answers to admission reviews, and the state at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from app.manager.process import Caches
from tests.simulation.passes import Pass
from tests.simulation.replicas import parsed

Json = dict[str, Any]


@dataclass(frozen=True)
class Review:
    """An answered admission review. ``seconds``: how long it took; ``failures``: how many requests for the related
    object failed meanwhile; ``known``: what the answering replica's caches held (:meth:`Judge.known_to`)."""

    path: str
    body: bytes
    answer: bytes
    seconds: float
    failures: int
    known: Sequence[Any]

    @cached_property
    def request(self) -> Json:
        return dict(parsed(self.body)["request"])

    @cached_property
    def response(self) -> Json:
        return dict(parsed(self.answer)["response"])


class Judge:
    """Follows objects, and returns a sentence per violation."""

    #: Whether no fault is active, so nothing excuses a delay.
    calm = False

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """Return the violations of a write. ``known``: the reconcile that wrote; None: another actor."""
        del at, kind, before, after, known
        return ()

    def at_rest(self, now: datetime) -> Iterable[str]:
        del now
        return ()

    def overdue(self) -> Sequence[str]:
        """Return problems that may last only a few seconds while no fault is active."""
        return ()

    def known_to(self, caches: Caches, path: str) -> Sequence[Any]:
        """Return what the judge needs from the caches of the process that answers a review."""
        del caches, path
        return ()

    def reviewed(self, review: Review) -> Iterable[str]:
        del review
        return ()


#: Judges a write: the object, and its state before and after.
Judged = Callable[[Json, Json | None, Json | None], Iterable[str]]


def keep(stored: dict[str, Json], key: str, after: Json | None) -> None:
    """Store an object as it is after a write; None removes it."""
    if after is None:
        stored.pop(key, None)
    else:
        stored[key] = after


class JudgeByKind(Judge):
    """Judges each kind with its own function."""

    judged: Mapping[str, Judged]

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        """Return the invariants that a write violates."""
        obj = after if after is not None else before
        if obj is not None and kind in self.judged:
            yield from self.judged[kind](obj, before, after)


class Judges(Judge):
    """Several judges in one."""

    def __init__(self, *judges: Judge) -> None:
        self._judges = judges

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        for judge in self._judges:
            judge.calm = self.calm
            yield from judge.wrote(at, kind, before, after, known)

    def at_rest(self, now: datetime) -> Iterator[str]:
        for judge in self._judges:
            yield from judge.at_rest(now)

    def overdue(self) -> Sequence[str]:
        return [sentence for judge in self._judges for sentence in judge.overdue()]

    def known_to(self, caches: Caches, path: str) -> Sequence[Any]:
        return [judge.known_to(caches, path) for judge in self._judges]

    def reviewed(self, review: Review) -> Iterator[str]:
        for judge, known in zip(self._judges, review.known or [()] * len(self._judges), strict=True):
            yield from judge.reviewed(replace(review, known=known))
