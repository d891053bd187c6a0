"""Incidents: short faults in an idle cluster while users act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from tests.simulation.faults import TIMEOUT_SECONDS, Weather
from tests.simulation.rest import Rest
from tests.simulation.script import Action

#: Extra seconds to handle actions during an incident: a Lease expires, connections are retried.
EXTRA_SECONDS = 60.0


#: Actions after which a request may hang.
CUT_OFF_ACTS = frozenset({"cut off at creation", "blind creation"})


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault of a few seconds, and the actions of users during it (``at`` counts from its start)."""

    weather: Weather
    seconds: float
    acts: tuple[Action, ...]
    #: Whether admission is affected, not only reconciling.
    admission_too: bool

    @property
    def hangs(self) -> float:
        """Return for how many seconds after the incident a request may hang or a watch may wait for its next retry."""
        weather = self.weather
        lost = weather.lost_request or weather.lost_answer or weather.watch_ends
        return TIMEOUT_SECONDS if lost or any(act.what in CUT_OFF_ACTS for act in self.acts) else 0.0

    def seconds_to_settle(self, of: Callable[[str], float]) -> float:
        """Return the seconds within which everything must settle. ``of`` returns the same for one action."""
        return EXTRA_SECONDS + self.hangs + max(of(act.what) for act in self.acts)


def happens(weather: Weather, acts: Iterable[Action], *, admission_too: bool = False, last: float = 1.0) -> Incident:
    """Return an incident that ends ``last`` seconds after its last action."""
    ordered = tuple(sorted(acts, key=lambda act: act.at))
    return Incident(weather, round(ordered[-1].at + last, 1), ordered, admission_too)


@dataclass(frozen=True, slots=True)
class Focus:
    """Actions that a run repeats instead of a storm. ``first``: the setup; ``round``: the nth round.

    ``calm``: without faults, so everything must settle at once and without a superfluous write.
    """

    first: Callable[[Random], Iterable[Action]]
    round: Callable[[Random, Rest, int], Incident | None]
    rounds: int = 6
    calm: bool = False
    replicas: int | None = None


Focuses = Mapping[str, Focus]
