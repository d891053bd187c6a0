"""Incidents in which a controller does not see, or no longer knows, part of the state. Pure.

In some runs, one of these replaces another incident. It contains no other fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from app.pods.history import OWN_WRITE_TTL as KNOWN_SECONDS
from tests.simulation.faults import Weather
from tests.simulation.incidents import Incident
from tests.simulation.script import Action
from tests.simulation.workloads.cloneset.existing import Existing

#: The share of incidents that the incidents of this module replace.
SHARE = 0.5
_Theme = Callable[[Random, Existing, int], Iterator[Action]]


def incident(rng: Random, existing: Existing, number: int) -> Incident | None:
    """Draw an incident; None if another kind is drawn, or no object fits."""
    chosen = rng.sample(_THEMES, len(_THEMES))
    if rng.random() >= SHARE:
        return None
    return next((found for theme in chosen if (found := _of(theme, rng, existing, number)) is not None), None)


def claims_going(rng: Random, existing: Existing, number: int) -> Incident | None:
    """Scale out while the claims of deleted Pods are terminating."""
    return _of(_claims_going, rng, existing, number)


def creation_unanswered(rng: Random, existing: Existing, number: int) -> Incident | None:
    """Create a Pod that the watch does not deliver."""
    return _of(_creation_unanswered, rng, existing, number)


def _of(theme: _Theme, rng: Random, existing: Existing, number: int) -> Incident | None:
    acts = tuple(sorted(theme(rng, existing, number), key=lambda act: act.at))
    if not acts:
        return None
    ends = max(act.at + act.arguments.get("seconds", 0.0) for act in acts)
    return Incident(Weather(), round(ends + 1.0, 1), acts, admission_too=True)


def _history_unseen(rng: Random, existing: Existing, number: int) -> Iterator[Action]:
    """A second rollout follows before the cache shows the revision of the first."""
    if not existing.in_place:
        return
    name, second = rng.choice(existing.in_place), round(KNOWN_SECONDS + rng.uniform(4.0, 10.0), 1)
    yield Action(0.0, "freeze watches", {"resource": "controllerrevisions", "seconds": second + 6.0})
    yield Action(0.5, "roll cloneset", {"name": name, "image": f"clone:unseen-{number}", "partition": 0})
    yield Action(second, "roll cloneset", {"name": name, "image": f"clone:unseen-{number}-again"})


def _claims_going(rng: Random, existing: Existing, _number: int) -> Iterator[Action]:
    """A new leader scales out while the claims of deleted Pods are terminating."""
    if not existing.keeping:
        return
    name, again = rng.choice(existing.keeping), round(rng.uniform(3.0, 4.5), 1)
    yield Action(0.1, "scale cloneset", {"name": name, "replicas": rng.randrange(0, 2)})
    yield Action(round(again - 0.4, 1), "stop leader", {"gently": True})
    yield Action(again, "scale cloneset", {"name": name, "replicas": rng.randrange(3, 6)})


def _creation_unanswered(rng: Random, existing: Existing, _number: int) -> Iterator[Action]:
    """The creation of a Pod gets no answer; its claims are shown first."""
    if not existing.dropping:
        return
    name = rng.choice([*existing.dropping])
    yield Action(0.0, "freeze watches", {"resource": "pods", "seconds": 20.0})
    yield Action(0.1, "cut off at creation", {"name": name, "seconds": round(rng.uniform(0.3, 1.0), 1)})
    yield Action(0.5, "scale cloneset", {"name": name, "replicas": existing.dropping[name] + rng.randrange(1, 3)})


_THEMES: Sequence[_Theme] = (_history_unseen, _claims_going, _creation_unanswered)
