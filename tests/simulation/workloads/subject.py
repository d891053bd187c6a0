"""Subjects of runs: workloads, the actions on them, and their judges."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from app.api.kind import KindDefinition
from app.kube.client import Client, PatchType
from app.kube.errors import AlreadyExists
from app.kube.resources import Resource
from app.sandbox.nodes import Nodes
from tests.simulation.faults import CALM, FaultyTransport, Weather
from tests.simulation.incidents import Focuses, Incident
from tests.simulation.lifecycle import held_metadata
from tests.simulation.script import NAMESPACE, SQUALLS, Action
from tests.simulation.users import LABEL, UserAction, Users
from tests.simulation.workloads.judge import Judge

if TYPE_CHECKING:
    from tests.simulation.world import World

Json = dict[str, Any]

#: Maximum number of workloads at a time.
FEW = 2
#: The fault of an incident.
_SPELLS = (
    Weather(conflict=0.7),
    Weather(error=0.7),
    Weather(lost_answer=0.5),
    Weather(slow=0.6, only="pods"),
    Weather(watch_ends=0.7),
    Weather(),
    CALM,
)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run provides to actors other than managers and nodes."""

    seed: int
    #: A client without faults.
    admin: Client
    nodes: Nodes
    node_names: Sequence[str]
    judge: Judge
    #: Makes a faulty connection for the named process; the second argument kills the process.
    connect: Callable[[str, Callable[[str], None]], FaultyTransport]
    #: Starts a task that outlives its caller.
    start: Callable[[Coroutine[Any, Any, None]], Task[None]]
    say: Callable[[str], None]
    breaks: Callable[[str], None]


class Actor(Protocol):
    @property
    def user_actions(self) -> Mapping[str, UserAction]: ...

    async def run(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a run tests; no other part of the run depends on a kind."""

    folders: Sequence[str]
    judge: Callable[[], Judge]
    #: Feature gates of the managers.
    gates: Sequence[str] = ()
    #: Creates the actor of a run besides managers, nodes and users.
    actor: Callable[[RunContext], Actor] | None = None
    #: Whether controllers keep writing at rest.
    goes_on: bool = False
    #: What a run may repeat instead of having a storm.
    focuses: Focuses = field(default_factory=dict)

    @property
    def user_actions(self) -> Mapping[str, UserAction]:
        """Return the actions of users besides those of every run."""
        raise NotImplementedError

    @property
    def books(self) -> str:
        """Return the plural of the kind whose status admission writes; empty for none."""
        return ""

    def script(self, seed: int, *, seconds: float, actions: int, size: int) -> tuple[Action, ...]:
        """Return the actions of a storm in order of time. ``size``: maximum number of Pods of a new workload."""
        raise NotImplementedError

    async def after_storm(self, world: World) -> None:
        raise NotImplementedError


#: Weight, path and value of a field that users change.
Changes = Sequence[tuple[int, str, Callable[[Random], Any]]]


#: Draws the spec of an object with this name.
Drawn = Callable[[Random, str], Json]


def manifest(kind: KindDefinition, name: str, spec: Json) -> Json:
    """Return the object that a user applies."""
    resource = kind.resource()
    metadata = {"name": name, **({"namespace": NAMESPACE} if resource.namespaced else {})}
    return {"apiVersion": resource.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def template(name: str, image: str, hook: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return the Pod template of a workload. ``hook``: the kind of lifecycle hooks that hold its Pods."""
    held = held_metadata(hook)
    metadata = {**held, "labels": {LABEL: name, **(labels or {}), **held.get("labels", {})}}
    containers = [{"name": "main", "image": image}]
    return {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 1, "containers": containers, **spec}}


def target_of(kind: KindDefinition, name: str) -> Json:
    return {"apiVersion": kind.resource().api_version, "kind": kind.kind, "name": name}


def given(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Beside:
    """An object that is created before each workload, with the same name."""

    kind: KindDefinition
    spec: Drawn
    changes: Changes


@dataclass(frozen=True, slots=True)
class Shares:
    """Probabilities: of a change; otherwise of an action on Pods; of those, of one drawn by ``others``."""

    change: float = 0.45
    pods: float = 0.5
    others: float = 0.7


_USUAL = Shares()


@dataclass(frozen=True, kw_only=True)
class Workload(Subject):
    """A declared subject. ``changes`` are updates by users."""

    kind: KindDefinition
    spec: Drawn
    changes: Changes
    #: Whether users mark Pods for replacement.
    marks: bool = True
    #: Whether Pods fail by themselves; otherwise users evict them.
    fails: bool = True
    beside: Beside | None = None
    #: Actions before all others.
    first: Sequence[Action] = ()
    #: Draws an action on the named workload, besides those on its Pods.
    others: Callable[[Random, str], tuple[str, Json]] | None = None
    shares: Shares = _USUAL
    #: Draws the actions of an incident; None for the usual actions.
    acts: Callable[[Random, int], Iterable[Action]] | None = None
    #: Maximum number of workloads at a time.
    few: int = FEW
    #: Resources, besides those of the workloads, whose watches may freeze.
    watched: Sequence[str] = ("pods", "controllerrevisions")

    @property
    def user_actions(self) -> Mapping[str, UserAction]:
        """Return actions on a workload and its related object."""
        return {
            "create workload": UserAction(self._create, 600.0),
            "change workload": UserAction(self._change_own, 600.0),
            "change beside": UserAction(self._change_beside),
            "delete workload": UserAction(self._delete),
        }

    @property
    def books(self) -> str:
        return self.beside.kind.plural if self.beside is not None else ""

    async def after_storm(self, world: World) -> None:
        """Run one incident after another."""
        await world.sleep_until_unhindered()
        for number in range(world.plan.incidents + 1):
            rng = Random(f"mishap {number} {world.seed}")
            await world.run_incident(self.incident(rng, sorted(world.rest.stored(self.kind.resource())), number))
        await world.wait_for_laggards()

    async def _create(self, users: Users, name: str, spec: Json, beside: Json | None = None) -> None:
        if self.beside is not None and beside is not None:
            with suppress(AlreadyExists):
                await create(users, self.beside.kind, name, beside)
        await create(users, self.kind, name, spec)

    async def _change_own(self, users: Users, name: str, path: str, value: Any) -> None:
        await _replace(users, self.kind.resource(), name, path, value)

    async def _change_beside(self, users: Users, name: str, path: str, value: Any) -> None:
        if self.beside is not None:
            await _replace(users, self.beside.kind.resource(), name, path, value)

    async def _delete(self, users: Users, name: str) -> None:
        await users.admin.delete(self.kind.resource(), name, NAMESPACE)

    @property
    def _frozen(self) -> Sequence[str]:
        """Return the resources whose watches may freeze."""
        beside = (self.beside.kind.plural,) if self.beside is not None else ()
        return (*self.watched, self.kind.plural, *beside)

    def script(self, seed: int, *, seconds: float, actions: int, size: int) -> tuple[Action, ...]:
        del size  # spec draws it
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
        if rng.random() < self.shares.change:
            return self._change(rng, rng.choice(there))
        if rng.random() < self.shares.pods:
            return self._pod(rng, rng.choice(there))
        return self._trouble(rng)

    def _created(self, rng: Random, name: str) -> Json:
        beside = {"beside": self.beside.spec(rng, name)} if self.beside is not None else {}
        return {"name": name, "spec": self.spec(rng, name), **beside}

    def _change(self, rng: Random, name: str) -> tuple[str, Json]:
        ways = [(*change, "change workload") for change in self.changes]
        if self.beside is not None:
            ways += [(*change, "change beside") for change in self.beside.changes]
        _, path, value, what = rng.choices(ways, [weight for weight, *_ in ways])[0]
        return what, {"name": name, "path": path, "value": value(rng)}

    def _pod(self, rng: Random, name: str) -> tuple[str, Json]:
        if self.others is not None and rng.random() < self.shares.others:
            return self.others(rng, name)
        number = rng.randrange(6)
        marked = [("mark pods", {"name": name, "number": rng.randrange(3)})] if self.marks else []
        lost = ("lose pod", {"name": name, "number": number, "seconds": rng.randrange(2)})
        broken = ("break pod", {"name": name, "number": number, "seconds": round(rng.uniform(1.0, 40.0), 1)})
        thrown = ("evict pod", {"name": name, "number": number, "seconds": round(rng.uniform(1.0, 20.0), 1)})
        asked = ("drain pod", {"name": name, "number": number})
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

    def incident(self, rng: Random, names: Sequence[str], number: int) -> Incident:
        """Return a short fault during which users change a workload and Pods are deleted."""
        acts = [*self._acts(rng, names, number)]
        acts.sort(key=lambda act: act.at)
        weather = rng.choice(_SPELLS)
        return Incident(weather, round(acts[-1].at + rng.uniform(0.5, 3.0), 1), tuple(acts), rng.random() < 0.4)

    def _acts(self, rng: Random, names: Sequence[str], number: int) -> Iterator[Action]:
        if self.acts is not None:
            yield from self.acts(rng, number)
            if rng.random() < 0.3:
                yield Action(0.0, "freeze watches", {"resource": rng.choice(self._frozen), "seconds": 8.0})
            if rng.random() < 0.3:
                yield Action(round(rng.uniform(0.0, 4.0), 2), "stop leader", {"gently": rng.random() < 0.7})
            return
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


async def create(users: Users, kind: KindDefinition, name: str, spec: Json) -> None:
    await users.admin.create(kind.resource(), manifest(kind, name, spec), _scope(kind.resource()))


async def _replace(users: Users, resource: Resource, name: str, path: str, value: Any) -> None:
    patch = [{"op": "add", "path": path, "value": value}]
    await users.admin.patch(resource, name, patch, _scope(resource), kind=PatchType.JSON)


def _scope(resource: Resource) -> str:
    """Return the namespace of an object; empty for a cluster-scoped resource."""
    return NAMESPACE if resource.namespaced else ""
