"""Mishaps: with all at rest something goes wrong for some seconds, while users do this and that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from tests.simulation.faults import TIMEOUT_SECONDS, Weather
from tests.simulation.rest import Rest
from tests.simulation.script import Action

#: How much longer than with nothing going wrong whatever users did may take: a Lease ends, connections are tried anew.
TROUBLE_SECONDS = 60.0


#: After these a request may hang.
CUT_OFF_ACTS = frozenset({"cut off at creation", "blind creation"})


@dataclass(frozen=True, slots=True)
class Mishap:
    """What goes wrong for so many ``seconds``, and what users do meanwhile (``at``: after its beginning)."""

    weather: Weather
    seconds: float
    acts: tuple[Action, ...]
    #: Whom it befalls: admission goes on where only reconciling has trouble.
    admission_too: bool

    @property
    def hangs(self) -> float:
        """How long a request may wait in vain after it, or a watch that ended time and again for its next try."""
        weather = self.weather
        lost = weather.lost_request or weather.lost_answer or weather.watch_ends
        return TIMEOUT_SECONDS if lost or any(act.what in CUT_OFF_ACTS for act in self.acts) else 0.0

    def patience(self, of: Callable[[str], float]) -> float:
        """How soon after it all must be well, in seconds. ``of``: how soon what users do must be dealt with."""
        return TROUBLE_SECONDS + self.hangs + max(of(act.what) for act in self.acts)


def happens(weather: Weather, acts: Iterable[Action], *, admission_too: bool = False, last: float = 1.0) -> Mishap:
    """One that lasts for so many seconds after the ``last`` of its acts."""
    ordered = tuple(sorted(acts, key=lambda act: act.at))
    return Mishap(weather, round(ordered[-1].at + last, 1), ordered, admission_too)


@dataclass(frozen=True, slots=True)
class Focus:
    """What a run does time after time instead of having a storm: few objects and one thing, until the moment has come
    in which it can go wrong. ``first``: what is set up; ``round``: what happens in the nth round, given what there is.

    ``calm``: nothing goes wrong, so all must be well as soon as users expect it, without a write too many.
    """

    first: Callable[[Random], Iterable[Action]]
    round: Callable[[Random, Rest, int], Mishap | None]
    rounds: int = 6
    calm: bool = False
    replicas: int | None = None


#: By what they are called.
Focuses = Mapping[str, Focus]
