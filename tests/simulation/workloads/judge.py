"""Base of the judges of a workload: they check its controller's writes, answers to reviews, and the state at rest."""

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
    """A review that was answered. ``seconds``: how long it took; ``failures``: how many requests about what stands
    beside the workload came to nothing meanwhile; ``known``: what whoever answered knew, as the judge asked for it."""

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
    """Remembers what users asked for and what became of it, and says what it breaks, a sentence each."""

    #: Whether nothing goes wrong at the moment: then nothing excuses whoever is late.
    calm = False

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """What a write of any object breaks. ``known``: the pass whose doing it is."""
        del at, kind, before, after, known
        return ()

    def at_rest(self, now: datetime) -> Iterable[str]:
        del now
        return ()

    def overdue(self) -> Sequence[str]:
        """What may be so for some seconds only while nothing goes wrong."""
        return ()

    def known_to(self, caches: Caches, path: str) -> Sequence[Any]:
        """Return what must be known of the caches of the process that answers a review, to judge its answer."""
        del caches, path
        return ()

    def reviewed(self, review: Review) -> Iterable[str]:
        del review
        return ()


#: What a write of an object breaks: the object, and as it was before and is after.
Judged = Callable[[Json, Json | None, Json | None], Iterable[str]]


class JudgeByKind(Judge):
    """Judges all writes, each kind by its own function."""

    #: By kind.
    judged: Mapping[str, Judged]

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        """Return the promises that a write breaks."""
        obj = after if after is not None else before
        if obj is not None and kind in self.judged:
            yield from self.judged[kind](obj, before, after)


class Judges(Judge):
    """Several at once: of kinds that come together."""

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
