"""What a run can be about: a workload, what is done with it, and who judges what its controller does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Protocol

from app.kube.resources import Resource
from tests.simulation.faults import CALM, Weather
from tests.simulation.mishaps import Mishap
from tests.simulation.passes import Pass
from tests.simulation.script import SQUALLS, Action

Json = dict[str, Any]

#: Workloads at once.
FEW = 2
#: What goes wrong in a mishap, alone.
_SPELLS = (
    Weather(conflict=0.7),
    Weather(error=0.7),
    Weather(lost_answer=0.5),
    Weather(slow=0.6, only="pods"),
    Weather(watch_ends=0.7),
    Weather(),
    CALM,
)


class Judge(Protocol):
    """Remembers what users asked for and what became of it, and says what a write breaks."""

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """What a write of any object breaks. ``known``: the pass whose doing it is."""
        ...

    def at_rest(self, now: datetime) -> Iterable[str]:
        """What keeps the workloads from being at rest."""
        ...


class JudgeOfReviews(Judge, Protocol):
    """Judges answers to reviews, too."""

    def reviewed(self, seconds: float, path: str, response: Json, failures: int) -> Iterable[str]:
        """What an answer breaks. ``seconds``: how long it took; ``failures``: how many requests about what stands
        beside the workload came to nothing meanwhile."""
        ...


#: What users change, how often: the path of a field and its value.
Changes = Mapping[str, tuple[int, Callable[[Random], tuple[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Beside:
    """An object that stands beside each workload, by the same name, and is created before it."""

    resource: Resource
    spec: Callable[[Random], Json]
    manifest: Callable[..., Json]
    changes: Changes


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload. ``spec``: how a user sets one up; ``manifest``: the object of that name; ``changes``: what users
    change of one that is there."""

    folders: Sequence[str]
    resource: Resource
    judge: Callable[[], Judge]
    spec: Callable[[Random], Json]
    manifest: Callable[..., Json]
    changes: Changes
    #: Feature gates of the managers, and whether Pods are replaced when a user marks them.
    gates: Sequence[str] = ()
    marks: bool = True
    #: Whether Pods fail by themselves; else users evict them instead.
    fails: bool = True
    beside: Beside | None = None
    #: What is there before all else, and what else happens to a workload of that name, beside what befalls its Pods.
    first: Sequence[Action] = ()
    others: Callable[[Random, str], tuple[str, Json]] | None = None
    #: How many there are at once, and whether they have always something to do.
    few: int = FEW
    goes_on: bool = False
    #: Beside the workloads: of what the watches may stand still.
    watched: Sequence[str] = ("pods", "controllerrevisions")

    @property
    def _frozen(self) -> Sequence[str]:
        """The kinds whose watches may stand still."""
        beside = (self.beside.resource.plural,) if self.beside is not None else ()
        return (*self.watched, self.resource.plural, *beside)

    def script(self, seed: int, *, seconds: float, actions: int) -> tuple[Action, ...]:
        """The actions of a storm, in order of time."""
        rng = Random(f"script {seed}")
        there: list[str] = []
        free: list[str] = []
        made = [*self.first]
        for number, at in enumerate(sorted(rng.uniform(0.0, seconds) for _ in range(actions))):
            what, arguments = self._drawn(rng, there, free, first=number == 0)
            made.append(Action(round(at, 1), what, arguments))
        return tuple(made)

    def _drawn(self, rng: Random, there: list[str], free: list[str], *, first: bool) -> tuple[str, Json]:
        if first or (len(there) < self.few and rng.random() < 0.2):
            name = free.pop() if free and rng.random() < 0.6 else f"one-{len(there) + len(free)}"
            there.append(name)
            return "create workload", self._created(rng, name)
        if there and rng.random() < 0.05:
            free.append(there.pop(rng.randrange(len(there))))
            return "delete workload", {"name": free[-1]}
        if not there:
            return self._trouble(rng)
        if rng.random() < 0.45:
            return self._change(rng, rng.choice(there))
        if rng.random() < 0.5:
            return self._pod(rng, rng.choice(there))
        return self._trouble(rng)

    def _created(self, rng: Random, name: str) -> Json:
        beside = {"beside": self.beside.spec(rng)} if self.beside is not None else {}
        return {"name": name, **self.spec(rng), **beside}

    def _change(self, rng: Random, name: str) -> tuple[str, Json]:
        ways = [(weight, make, "change workload") for weight, make in self.changes.values()]
        if self.beside is not None:
            ways += [(weight, make, "change beside") for weight, make in self.beside.changes.values()]
        _, change, what = rng.choices(ways, [weight for weight, _, _ in ways])[0]
        path, value = change(rng)
        return what, {"name": name, "path": path, "value": value}

    def _pod(self, rng: Random, name: str) -> tuple[str, Json]:
        if self.others is not None and rng.random() < 0.7:
            return self.others(rng, name)
        number = rng.randrange(6)
        marked = [("mark clones", {"name": name, "number": rng.randrange(3)})] if self.marks else []
        lost = ("lose clone", {"name": name, "number": number, "seconds": rng.randrange(2)})
        broken = ("break clone", {"name": name, "number": number, "seconds": round(rng.uniform(1.0, 40.0), 1)})
        thrown = ("evict clone", {"name": name, "number": number, "seconds": round(rng.uniform(1.0, 20.0), 1)})
        asked = ("drain clone", {"name": name, "number": number})
        by_themselves = (broken, thrown) if self.fails else (asked, asked)
        return rng.choice((*marked, lost, *by_themselves))

    def _trouble(self, rng: Random) -> tuple[str, Json]:
        replica = {"replica": rng.randrange(2), "process": rng.choice(("webhook-0", "reconciler", "reconciler"))}
        frozen = rng.choice(self._frozen)
        return rng.choice(
            (
                ("squall", {"fault": rng.choice(SQUALLS), "seconds": round(rng.uniform(2.0, 20.0), 1)}),
                ("freeze watches", {"resource": frozen, "seconds": rng.choice((5.0, 25.0, 90.0))}),
                ("kill", replica),
                ("stop", replica),
                ("cut off", {"seconds": round(rng.uniform(2.0, 8.0), 1), "lost": rng.randrange(6)}),
                ("forget history", {}),
            )
        )

    def mishap(self, rng: Random, names: Sequence[str], number: int) -> Mishap:
        """With all at rest one thing goes wrong while users change something and Pods go."""
        acts = [*self._acts(rng, names, number)]
        acts.sort(key=lambda act: act.at)
        weather = rng.choice(_SPELLS)
        return Mishap(weather, round(acts[-1].at + rng.uniform(0.5, 3.0), 1), tuple(acts), rng.random() < 0.4)

    def _acts(self, rng: Random, names: Sequence[str], number: int) -> Iterator[Action]:
        if not names:
            yield Action(0.0, "create workload", self._created(rng, f"late-{number}"))
            return
        name = rng.choice(names)
        if rng.random() < 0.3:
            yield Action(0.0, "freeze watches", {"resource": rng.choice(self._frozen), "seconds": 8.0})
        for _ in range(rng.randrange(1, 4)):
            yield Action(round(rng.uniform(0.0, 4.0), 2), *self._change(rng, name))
        for _ in range(rng.randrange(3)):
            what, arguments = self._pod(rng, name)
            yield Action(round(rng.uniform(0.0, 4.0), 2), what, arguments)
        if rng.random() < 0.3:
            yield Action(round(rng.uniform(0.0, 4.0), 2), "stop leader", {"gently": rng.random() < 0.7})
