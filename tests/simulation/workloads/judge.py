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


@dataclass(frozen=True, slots=True)
class Write:
    """A write of an object, at a virtual second. ``known``: the reconcile that wrote; None: another actor."""

    at: float
    kind: str
    before: Json | None
    after: Json | None
    known: Pass | None

    @property
    def obj(self) -> Json:
        return self.after if self.after is not None else self.before or {}

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    def kept_in(self, stored: dict[str, Json], key: str = "") -> None:
        """Store the object as it is after the write, by its uid or another key; remove a deleted one."""
        if self.after is None:
            stored.pop(key or self.uid, None)
        else:
            stored[key or self.uid] = self.after


class Judge:
    """Follows objects, and returns a sentence per violation."""

    #: Whether no fault is active, so nothing excuses a delay.
    calm = False
    #: By kind: returns the invariants that a write violates.
    judged: Mapping[str, Callable[[Write], Iterable[str] | None]] = {}

    def wrote(self, write: Write) -> Iterable[str]:
        """Return the invariants that a write violates."""
        return (self.judged[write.kind](write) or ()) if write.kind in self.judged else ()

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


class Judges(Judge):
    """Several judges in one."""

    def __init__(self, *judges: Judge) -> None:
        self._judges = judges

    def wrote(self, write: Write) -> Iterator[str]:
        for judge in self._judges:
            judge.calm = self.calm
            yield from judge.wrote(write)

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
