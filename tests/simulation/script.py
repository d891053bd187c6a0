"""Scripts: what users, operators and saboteurs do in one run, decided by a seed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.clonesets import spec_by_seed

Json = dict[str, Any]

NAMESPACE = "shop"
APPS = ("web", "api")
#: What makes handshakes fail until it is repaired, by nobody's fault but the saboteur's.
CERTIFICATE_SABOTAGE = frozenset({"delete secret", "garble secret", "empty bundle", "delete configuration"})


@dataclass(frozen=True, slots=True)
class Action:
    """Something somebody does ``at`` so many virtual seconds after the start."""

    at: float
    what: str
    arguments: Json

    def __str__(self) -> str:
        details = " ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.at:7.1f} s  {self.what} {details}".rstrip()


def script(seed: int, *, seconds: float, actions: int) -> tuple[Action, ...]:
    """The actions of a run, in order of time."""
    rng = Random(f"script {seed}")
    state = _State()
    made = []
    for at in sorted(rng.uniform(0.0, seconds) for _ in range(actions)):
        what = rng.choices(list(_ACTIONS), [weight for weight, _ in _ACTIONS.values()])[0]
        arguments = _ACTIONS[what][1](rng, state)
        if arguments is not None:
            made.append(Action(round(at, 1), what, arguments))
    return tuple(made)


class _State:
    """What the script believes to be there."""

    def __init__(self) -> None:
        self.sets: list[str] = []
        self.pods: list[str] = []
        self.clones: list[str] = []
        self.made = 0


def _create_set(rng: Random, state: _State) -> Json | None:
    state.made += 1
    name = f"set-{state.made}"
    state.sets.append(name)
    return {"name": name, "app": rng.choice(APPS), "image": f"shipper:{rng.randrange(3)}"}


def _of_set(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.sets), "image": f"shipper:{rng.randrange(5)}"} if state.sets else None


def _delete_set(rng: Random, state: _State) -> Json | None:
    if not state.sets:
        return None
    return {"name": state.sets.pop(rng.randrange(len(state.sets)))}


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
    if len(state.clones) >= 2:
        return None
    state.made += 1
    state.clones.append(f"clone-{state.made}")
    return {"name": state.clones[-1], **spec_by_seed(rng)}


def _scale(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "replicas": rng.randrange(0, 8)} if state.clones else None


def _roll(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "image": f"clone:{rng.randrange(6)}"} if state.clones else None


def _partition(rng: Random, state: _State) -> Json | None:
    return {"name": rng.choice(state.clones), "partition": rng.choice((0, 0, 1, 3))} if state.clones else None


def _configuration(rng: Random, _state: _State) -> Json | None:
    return {"kind": rng.choice(("mutating", "validating"))}


def _nothing(_rng: Random, _state: _State) -> Json | None:
    return {}


def _replica(rng: Random, _state: _State) -> Json | None:
    return {"replica": rng.randrange(2), "process": rng.choice(("webhook-0", "reconciler", "reconciler"))}


#: What → how often, and its arguments (None: it makes no sense now).
_ACTIONS: dict[str, tuple[int, Callable[[Random, _State], Json | None]]] = {
    "create set": (5, _create_set),
    "update set": (4, _of_set),
    "delete set": (1, _delete_set),
    "garble status": (1, _of_set),
    "create pod": (20, _create_pod),
    "delete pod": (4, _delete_pod),
    "relabel pod": (3, _relabel_pod),
    "create cloneset": (8, _create_cloneset),
    "scale cloneset": (4, _scale),
    "roll cloneset": (5, _roll),
    "partition cloneset": (2, _partition),
    "kill": (3, _replica),
    "forget history": (2, _nothing),
    "end certificates": (1, _nothing),
    "delete secret": (1, _nothing),
    "garble secret": (1, _nothing),
    "empty bundle": (1, _configuration),
    "delete configuration": (1, _configuration),
}
