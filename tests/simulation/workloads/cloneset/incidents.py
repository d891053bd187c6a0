"""Incidents of CloneSets: short faults in an idle cluster while users act. Pure.

In a storm, later events make up for one that a controller missed because of a fault. An incident is followed by no such
events, and everything must settle soon, so the omission is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.faults import CALM, Weather
from tests.simulation.incidents import Incident
from tests.simulation.script import APPS, Action
from tests.simulation.workloads.cloneset.existing import Existing

Json = dict[str, Any]

#: The fault. It lasts long enough to fail a request and its retry, but not long enough for a Lease to expire.
_SPELLS = (
    Weather(conflict=0.7),
    Weather(overload=0.7),
    Weather(error=0.7),
    Weather(lost_request=0.5),
    Weather(lost_answer=0.5),
    *(Weather(slow=0.5),) * 3,
    Weather(watch_stalls=1.0),
    Weather(watch_ends=0.7),
    Weather(watch_repeats=1.0),
    CALM,
)
#: All actions of users happen within these seconds.
BURST_SECONDS = 2.0


def incident(rng: Random, existing: Existing, number: int) -> Incident:
    """Draw an incident. ``number`` makes the names of its objects unique."""
    weather = rng.choice(_SPELLS)
    chosen = rng.sample(_THEMES, len(_THEMES))
    acts = next(found for theme in chosen if (found := [*theme(rng, existing, number)]))
    acts.sort(key=lambda act: act.at)
    return Incident(weather, round(acts[-1].at + rng.uniform(0.5, 3.0), 1), tuple(acts), rng.random() < 0.4)


@dataclass(frozen=True, slots=True)
class Staffed:
    """A CloneSet with Pods. ``revives``: whether Pods that wait for their preDelete hook may return."""

    name: str
    replicas: int
    revives: bool


def aimed(rng: Random, clones: Sequence[Staffed]) -> Incident | None:
    """Return an incident whose actions happen in a fixed order; None if no CloneSet is suitable."""
    themes = rng.sample(_AIMED, len(_AIMED))
    return next((found for theme in themes if (found := theme(rng, clones)) is not None), None)


def _seen_together(rng: Random, clones: Sequence[Staffed]) -> Incident | None:
    """The status is written before the cache shows a spec change, and a relist shows both as one change."""
    if not clones:
        return None
    one = rng.choice(clones)
    wish = _act(rng, "scale cloneset", name=one.name, replicas=one.replicas + rng.choice((-1, 1, 2)))
    lost = _act(rng, "lose pod", BURST_SECONDS, name=one.name, number=rng.randrange(8), seconds=rng.randrange(2))
    frozen = Action(0.0, "freeze watches", {"resource": "clonesets", "seconds": 8.0})
    return Incident(Weather(), 9.0, (frozen, wish, lost), admission_too=True)


def marked_while_others_go(rng: Random, clones: Sequence[Staffed]) -> Incident | None:
    """All active Pods must be replaced while others, which must not return, wait for their preDelete hook."""
    hooked = [one for one in clones if one.revives and one.replicas > 1]
    if not hooked:
        return None
    one = rng.choice(hooked)
    fewer = Action(0.0, "scale cloneset", {"name": one.name, "replicas": rng.randrange(1, one.replicas)})
    at = round(rng.choice((rng.uniform(0.05, 0.2), rng.uniform(0.2, BURST_SECONDS))), 2)
    marked = Action(at, "mark pods", {"name": one.name, "number": 2, "serving": True})
    return Incident(Weather(), 4.0, (fewer, marked), admission_too=True)


_AIMED: Sequence[Callable[[Random, Sequence[Staffed]], Incident | None]] = (_seen_together, marked_while_others_go)


def _changed_sets(rng: Random, existing: Existing, number: int) -> Iterator[Action]:
    """A user changes a set and replaces it with a namesake before the manager is done."""
    name = rng.choice(existing.sets) if existing.sets else "set-mishap"
    images = (f"shipper:mishap-{number}-{version}" for version in range(3))
    if existing.sets and rng.random() < 0.5:
        yield _act(rng, "update set", name=name, image=next(images))
    else:
        yield _act(rng, "replace set", name=name, app=rng.choice(APPS), image=next(images))
    for image in images:
        if rng.random() < 0.5:
            yield _act(rng, "replace set", BURST_SECONDS, name=name, app=rng.choice(APPS), image=image)


def _pods_at_once(rng: Random, existing: Existing, number: int) -> Iterator[Action]:
    """Pods of one app are created, deleted and relabeled."""
    app = rng.choice(APPS)
    for position in range(rng.randrange(2, 5)):
        yield _act(rng, "create pod", name=f"pod-mishap-{number}-{position}", app=app, ordered=rng.random() < 0.2)
    for name in rng.sample(existing.pods, min(2, len(existing.pods))):
        what: Json = {"app": app} if rng.random() < 0.5 else {}
        yield _act(rng, "relabel pod" if what else "delete pod", name=name, **what)


def _changed_clones(rng: Random, existing: Existing, number: int) -> Iterator[Action]:
    """A user rolls out without a partition, scales and deletes a Pod."""
    if not existing.clones:
        return
    name = rng.choice(existing.clones)
    yield _act(rng, "roll cloneset", name=name, image=f"clone:mishap-{number}", partition=0)
    yield _act(rng, "scale cloneset", name=name, replicas=rng.randrange(1, 6))
    yield _act(rng, "lose pod", name=name, number=rng.randrange(8), seconds=rng.choice((0, 1)))


def _second_thoughts(rng: Random, existing: Existing, _number: int) -> Iterator[Action]:
    """A user scales back and forth: new Pods are deleted, and Pods that wait for deletion return."""
    if not existing.clones:
        return
    name, few, many = rng.choice(existing.clones), rng.randrange(0, 3), rng.randrange(4, 7)
    moments = sorted(round(rng.uniform(0.0, 2 * BURST_SECONDS), 2) for _ in range(4))
    begins = rng.randrange(2)
    for position, at in enumerate(moments):
        if position == 2 and begins == 0:
            yield Action(at, "mark pods", {"name": name, "number": rng.randrange(2)})
        else:
            replicas = few if position % 2 == begins else many
            yield Action(at, "scale cloneset", {"name": name, "replicas": replicas})


def _history_lost(rng: Random, _there: Existing, _number: int) -> Iterator[Action]:
    """The managers are cut off, and the cluster changes meanwhile."""
    yield _act(rng, "cut off", seconds=round(rng.uniform(2.0, 6.0), 1), lost=rng.randrange(6))


def _another_leader(rng: Random, existing: Existing, number: int) -> Iterator[Action]:
    """The leader ends with unfinished work."""
    yield _act(rng, "stop leader", gently=rng.random() < 0.7)
    yield from _pods_at_once(rng, existing, number)


_THEMES: Sequence[Callable[[Random, Existing, int], Iterator[Action]]] = (
    _changed_sets,
    _changed_sets,
    _pods_at_once,
    _changed_clones,
    _second_thoughts,
    _history_lost,
    _another_leader,
)


def _act(rng: Random, what: str, after: float = 0.0, /, **arguments: Any) -> Action:
    return Action(round(after + rng.uniform(0.0, BURST_SECONDS), 2), what, arguments)
