"""Scripts: the actions of users, operators and saboteurs in one run, drawn from a seed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.simulation.script import APPS, SMALL, SQUALLS, Action
from tests.simulation.users import CERTIFICATE_SABOTAGE
from tests.simulation.workloads.cloneset.manifests import spec_by_seed

Json = dict[str, Any]

#: The resources whose watches may freeze.
FROZEN = ("pods", "clonesets", "controllerrevisions", "persistentvolumeclaims", "sidecarsets")


#: Maximum number of CloneSets at a time, depending on their size.
FEW, MANY = 2, 4
#: The first actions of a script create the objects for the others.
FIRST = ("create cloneset", "create set", "create pod")


def script(seed: int, *, seconds: float, actions: int, size: int = SMALL) -> tuple[Action, ...]:
    """Return the actions of a run in order of time. ``size``: maximum number of Pods of a new CloneSet."""
    rng = Random(f"script {seed}")
    state = _State(size)
    made = []
    peaceful = rng.random() < 0.6
    for number, at in enumerate(sorted(rng.uniform(0.0, seconds) for _ in range(actions))):
        what = rng.choices(list(_ACTIONS), [weight for weight, _ in _ACTIONS.values()])[0]
        if number < len(FIRST):
            what = FIRST[number]
        if peaceful and what in CERTIFICATE_SABOTAGE:
            what = "end certificates"
        arguments = _ACTIONS[what][1](rng, state)
        if arguments is not None:
            made.append(Action(round(at, 1), what, arguments))
    return tuple(made)


def drizzle_script(rng: Random, clones: Sequence[str]) -> Action:
    """Draw an action for a phase in which requests are occasionally refused."""
    name = rng.choice(clones)
    what, arguments = rng.choice(
        (
            ("roll cloneset", {"name": name, "image": "clone:wet"}),
            ("roll cloneset", {"name": name, "image": "clone:wet", "partition": 0, "marked": rng.randrange(2)}),
            ("mark pods", {"name": name, "number": rng.randrange(3)}),
            ("scale cloneset", {"name": name, "replicas": rng.randrange(1, SMALL + 2)}),
            ("scale cloneset", {"name": name, "replicas": 1}),
        )
    )
    return Action(0.0, what, arguments)


def blind_script(rng: Random, clones: Sequence[str]) -> Iterator[Action]:
    """Draw the actions while the managers' watch of one resource is frozen: a spec change, then an event."""
    name, seconds = rng.choice(clones), rng.choice((25.0, 90.0))
    draw = rng.random()
    if draw < 0.2:  # a creation without an answer is not shown either
        yield Action(0.0, "freeze watches", {"resource": "pods", "seconds": 25.0})
        yield Action(1.0, "scale cloneset", {"name": name, "replicas": SMALL + rng.randrange(1, 3)})
        return
    if draw < 0.4:  # the cache shows the revision of neither rollout
        yield Action(0.0, "freeze watches", {"resource": "controllerrevisions", "seconds": 90.0})
        yield Action(1.0, "roll cloneset", {"name": name, "image": "clone:dark", "partition": 0})
        yield Action(round(rng.uniform(5.0, 40.0), 1), "roll cloneset", {"name": name, "image": "clone:light"})
        return
    resource = rng.choice(("clonesets", "clonesets", "pods", "pods", *FROZEN))
    yield Action(0.0, "freeze watches", {"resource": resource, "seconds": seconds})
    wish = rng.choice(
        (
            ("roll cloneset", {"name": name, "image": "clone:dark"}),
            ("scale cloneset", {"name": name, "replicas": rng.randrange(1, SMALL + 2)}),
        )
    )
    yield Action(round(rng.uniform(0.5, 3.0), 1), *wish)
    what = rng.choice(("lose pod", "lose pod", "mark pods"))
    rest = {"seconds": rng.choice((0, 1))} if what == "lose pod" else {}
    yield Action(round(rng.uniform(0.5, 3.0), 1), what, {"name": name, "number": rng.randrange(3), **rest})
    if rng.random() < 0.3:
        yield Action(seconds - 10.0, "roll cloneset", {"name": name, "image": "clone:light"})


#: After a shorter wait, an action does not wait until the last one has been handled.
HASTE_SECONDS = 4.0


def calm_script(
    rng: Random, sets: Sequence[str], pods: Sequence[str], clones: Sequence[str], staffed: Sequence[str], *, number: int
) -> Iterator[Action]:
    """Draw actions that follow one another once everything is at rest.

    ``staffed``: CloneSets with Pods; ``number``: maximum number of actions. ``at`` counts from the last action; below
    HASTE_SECONDS, the action does not wait for rest.
    """
    choices: list[tuple[str, Json]] = [("delete configuration", {"kind": rng.choice(("mutating", "validating"))})]
    choices.append(("create pod", {"name": "pod-calm", "app": rng.choice(APPS), "ordered": rng.random() < 0.5}))
    if sets:
        choices.append(("update set", {"name": rng.choice(sets), "image": "shipper:calm"}))
    if pods:
        choices.append(("delete pod", {"name": rng.choice(pods)}))
    if clones:
        name = rng.choice(clones)
        choices.append(("scale cloneset", {"name": name, "replicas": rng.randrange(0, 8)}))
        marked = {"marked": rng.randrange(2)} if rng.random() < 0.5 else {}
        choices.append(("roll cloneset", {"name": name, "image": "clone:calm", **marked}))
        choices.append(("mark pods", {"name": name, "number": rng.randrange(3)}))
        choices.append(("lose pod", {"name": name, "number": rng.randrange(8), "seconds": rng.choice((0, 1))}))
    if staffed and (number == 1 or rng.random() < 0.5):
        held_back = {"name": rng.choice(staffed), "image": "clone:part", "partition": rng.randrange(1, 4)}
        yield Action(HASTE_SECONDS, "roll cloneset", held_back)
    for what, arguments in rng.sample(choices, min(number, len(choices))):
        yield Action(round(rng.uniform(HASTE_SECONDS, 20.0), 1), what, arguments)
        if what == "scale cloneset" and rng.random() < 0.7:
            hasty = {"name": arguments["name"], "image": "clone:hasty"}
            yield Action(round(rng.uniform(0.1, HASTE_SECONDS - 1.0), 1), "roll cloneset", hasty)


class _State:
    def __init__(self, size: int) -> None:
        self.size = size
        self.sets: list[str] = []
        self.free: list[str] = []
        self.pods: list[str] = []
        self.clones: list[str] = []
        self.free_clones: list[str] = []
        self.made = 0


def _create_set(rng: Random, state: _State) -> Json | None:
    if state.free and rng.random() < 0.6:
        name = state.free.pop()  # a namesake of a deleted set
    else:
        state.made += 1
        name = f"set-{state.made}"
    state.sets.append(name)
    return {"name": name, "app": rng.choice(APPS), "image": f"shipper:{rng.randrange(3)}"}


def _of_set(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.sets), "image": f"shipper:{rng.randrange(5)}"} if state.sets else None


def _delete_set(rng: Random, state: _State) -> Json | None:
    if not state.sets:
        return None
    name = state.sets.pop(rng.randrange(len(state.sets)))
    state.free.append(name)
    return {"name": name}


def _create_pod(rng: Random, state: _State) -> Json | None:
    if len(state.pods) >= 20:
        return None
    state.made += 1
    name = f"pod-{state.made}"
    state.pods.append(name)
    return {"name": name, "app": rng.choice((*APPS, "other")), "ordered": rng.random() < 0.3}


def _delete_pod(rng: Random, state: _State) -> Json | None:
    if not state.pods:
        return None
    return {"name": state.pods.pop(rng.randrange(len(state.pods)))}


def _relabel_pod(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.pods), "app": rng.choice((*APPS, "other"))} if state.pods else None


def _create_cloneset(rng: Random, state: _State) -> Json | None:
    if len(state.clones) >= (FEW if state.size == SMALL else MANY):
        return None
    if state.free_clones and rng.random() < 0.6:
        state.clones.append(state.free_clones.pop())
    else:
        state.made += 1
        state.clones.append(f"clone-{state.made}")
    return {"name": state.clones[-1], **spec_by_seed(rng, largest=state.size)}


def _delete_cloneset(rng: Random, state: _State) -> Json | None:
    if not state.clones:
        return None
    name = state.clones.pop(rng.randrange(len(state.clones)))
    state.free_clones.append(name)
    return {"name": name}


def _scale(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "replicas": rng.randrange(0, state.size + 2)} if state.clones else None


def _roll(rng: Random, state: _State) -> Json | None:
    if not state.clones:
        return None
    marked = {"marked": rng.randrange(2)} if rng.random() < 0.25 else {}
    return {"name": rng.choice(state.clones), "image": f"clone:{rng.randrange(6)}", **marked}


def _partition(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "partition": rng.choice((0, 0, 1, 3))} if state.clones else None


def _lose_clone(rng: Random, state: _State) -> Json | None:
    if not state.clones:
        return None
    return {"name": rng.choice(state.clones), "number": rng.randrange(state.size), "seconds": rng.choice((0, 1))}


def _break_clone(rng: Random, state: _State) -> Json | None:
    if not state.clones:
        return None
    seconds = round(rng.choice((rng.uniform(1.0, 10.0), rng.uniform(10.0, 60.0))), 1)
    return {"name": rng.choice(state.clones), "number": rng.randrange(state.size), "seconds": seconds}


def _squall(rng: Random, _state: _State) -> Json | None:
    return {"fault": rng.choice(SQUALLS), "seconds": round(rng.uniform(2.0, 20.0), 1)}


def _freeze(rng: Random, _state: _State) -> Json | None:
    return {"resource": rng.choice(FROZEN), "seconds": rng.choice((5.0, 25.0, 90.0, 150.0))}


def _mark_clones(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "number": rng.randrange(3)} if state.clones else None


def _configuration(rng: Random, _state: _State) -> Json | None:
    return {"kind": rng.choice(("mutating", "validating"))}


def _nothing(_rng: Random, _state: _State) -> Json | None:
    return {}


def _replica(rng: Random, _state: _State) -> Json | None:
    return {"replica": rng.randrange(2), "process": rng.choice(("webhook-0", "reconciler", "reconciler"))}


def _cut_off(rng: Random, _state: _State) -> Json | None:
    return {"seconds": round(rng.uniform(2.0, 8.0), 1), "lost": rng.randrange(6)}


#: Action → its weight and its arguments (None: not possible now).
_ACTIONS: dict[str, tuple[int, Callable[[Random, _State], Json | None]]] = {
    "create set": (5, _create_set),
    "update set": (4, _of_set),
    "delete set": (2, _delete_set),
    "garble status": (1, _of_set),
    "create pod": (20, _create_pod),
    "delete pod": (4, _delete_pod),
    "relabel pod": (3, _relabel_pod),
    "create cloneset": (8, _create_cloneset),
    "delete cloneset": (1, _delete_cloneset),
    "scale cloneset": (4, _scale),
    "roll cloneset": (5, _roll),
    "partition cloneset": (2, _partition),
    "lose pod": (2, _lose_clone),
    "break pod": (4, _break_clone),
    "evict pod": (1, _break_clone),
    "mark pods": (2, _mark_clones),
    "squall": (3, _squall),
    "freeze watches": (3, _freeze),
    "kill": (3, _replica),
    "stop": (2, _replica),
    "cut off": (2, _cut_off),
    "forget history": (1, _nothing),
    "end certificates": (1, _nothing),
    "delete secret": (1, _nothing),
    "garble secret": (1, _nothing),
    "empty bundle": (1, _configuration),
    "delete configuration": (1, _configuration),
}
