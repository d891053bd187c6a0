"""Focused runs: few objects, and one situation repeated until its timing is right. Pure.

A run with a focus has no storm. It sets up what the focus needs and runs its rounds; after each, everything must
settle. A mutant names the focus with which nearly any seed finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.faults import CALM, Weather
from tests.simulation.incidents import Focus, Focuses, Incident, happens
from tests.simulation.lifecycle import FINALIZERS, LABELS
from tests.simulation.script import APPS, Action
from tests.simulation.workloads.cloneset import incidents, unseen
from tests.simulation.workloads.cloneset.existing import Existing
from tests.simulation.workloads.cloneset.manifests import spec_by_seed

Json = dict[str, Any]


def _clone_sets(count: int = 1, **wanted: Any) -> Callable[[Random], Iterator[Action]]:
    """Return a function that creates random CloneSets with the fields in ``wanted``; a tuple lists the choices."""

    def first(rng: Random) -> Iterator[Action]:
        for number in range(count):
            chosen = {key: rng.choice(value) if isinstance(value, tuple) else value for key, value in wanted.items()}
            yield Action(0.0, "create cloneset", {"name": f"clone-{number}", **spec_by_seed(rng), **chosen})

    return first


def _act(at: float, what: str, /, **arguments: Any) -> Action:
    return Action(round(at, 2), what, arguments)


# ---- requests


def _refused(rng: Random, existing: Existing, number: int) -> Incident | None:
    """All writes are refused for some seconds while Pods must change, and no event follows."""
    name, clear = rng.choice(existing.clones), rng.uniform(2.0, 4.0)
    acts = [_act(0.0, "roll cloneset", name=name, image=f"clone:refused-{number}", partition=0)]
    if rng.random() < 0.5:
        acts.append(_act(rng.uniform(0.0, 1.0), "scale cloneset", name=name, replicas=rng.randrange(1, 6)))
    weather = rng.choice((Weather(conflict=1.0), Weather(error=1.0), Weather(conflict=0.7), Weather(error=0.7)))
    return happens(weather, acts, last=clear)


def _slow(rng: Random, existing: Existing, number: int) -> Incident | None:
    """Requests take seconds, and users do not wait for them."""
    name = rng.choice(existing.clones)
    acts = [_act(rng.uniform(0.0, 6.0), "scale cloneset", name=name, replicas=rng.randrange(1, 6)) for _ in range(4)]
    acts.append(_act(rng.uniform(0.0, 6.0), "roll cloneset", name=name, image=f"clone:slow-{number}", partition=0))
    return happens(Weather(slow=0.7), acts)


# ---- claims


def _claims_wanted_again(rng: Random, existing: Existing, _number: int) -> Incident | None:
    """Pods with claims are deleted, and their successors must get the claims."""
    if not existing.keeping:
        return None
    name = rng.choice(existing.keeping)
    if rng.random() < 0.3:
        return unseen.claims_going(rng, existing, _number)
    lost = [
        _act(rng.uniform(0.0, 2.0), "lose pod", name=name, number=rng.randrange(8), seconds=1)
        for _ in range(rng.randrange(1, 4))
    ]
    if rng.random() < 0.5:
        lost.append(_act(rng.uniform(0.0, 2.0), "scale cloneset", name=name, replicas=rng.randrange(1, 7)))
    return happens(rng.choice((Weather(), Weather(error=0.4))), lost)


def _creation_given_up(rng: Random, existing: Existing, _number: int) -> Incident | None:
    """A Pod cannot be created and is no longer needed; then one with claims is deleted and must be recreated."""
    name, replicas = next(iter(sorted(existing.staffed.items())), ("", 0))
    if not name:
        return None
    over = rng.uniform(0.6, 1.6)
    acts = (
        _act(0.0, "squall", fault="error", seconds=over),
        _act(0.1, "scale cloneset", name=name, replicas=replicas + 1),
        _act(over - rng.uniform(0.05, 0.5), "scale cloneset", name=name, replicas=replicas),
        _act(over + rng.uniform(0.0, 0.3), "lose pod", name=name, number=rng.randrange(8), seconds=1),
    )
    return happens(Weather(slow=0.01), acts, last=6.0)


# ---- caches


def _creation_unanswered(rng: Random, existing: Existing, number: int) -> Incident | None:
    """The creation of a Pod is neither answered nor shown; its claims, if any, are shown first."""
    return unseen.creation_unanswered(rng, replace(existing, dropping=existing.staffed), number)


def _cut_off(rng: Random, existing: Existing, number: int) -> Incident | None:
    """The managers are cut off, and the cluster changes meanwhile and afterwards."""
    acts = [_act(0.0, "cut off", seconds=round(rng.uniform(2.0, 6.0), 1), lost=rng.randrange(6))]
    if rng.random() < 0.5:
        name = rng.choice(existing.clones)
        acts.append(_act(rng.uniform(0.0, 2.0), "scale cloneset", name=name, replicas=rng.randrange(1, 6)))
    return happens(Weather(), acts, admission_too=True, last=7.0)


def _set_gone(rng: Random, existing: Existing, number: int) -> Incident | None:
    """A CloneSet is deleted with its Pods, and no watch shows its deletion."""
    for name in existing.clones:
        acts = (
            _act(0.0, "freeze watches", resource="clonesets", seconds=25.0),
            _act(rng.uniform(0.5, 1.5), "delete cloneset", name=name),
        )
        return happens(Weather(), acts, admission_too=True, last=26.0)
    return happens(Weather(), _clone_sets(replicas=(3, 4, 5), hook="")(rng), admission_too=True)


# ---- hooks


def _marked_while_others_go(rng: Random, existing: Existing, _number: int) -> Incident | None:
    return incidents.marked_while_others_go(
        rng, [incidents.Staffed(*one, revives=True) for one in existing.staffed.items()]
    )


def _left_behind(rng: Random, existing: Existing, number: int) -> Incident | None:
    """A leader ends while its patches are in flight. They arrive after the next leader has decided otherwise, or it
    does not see their effect."""
    name, replicas = rng.choice(sorted(existing.staffed.items()) or [("", 0)])
    if replicas < 2:
        return happens(Weather(), [_act(0.0, "scale cloneset", name=name, replicas=3)]) if name else None
    fewer = _act(0.1, "scale cloneset", name=name, replicas=rng.randrange(1, replicas))
    if rng.random() < 0.5:  # Pods that have nearly returned from their hook must be deleted again
        acts = [
            fewer,
            _act(0.35, "scale cloneset", name=name, replicas=replicas),
            _act(0.4, "squall", fault="slow", seconds=0.7),
            _act(rng.uniform(0.8, 1.1), "stop leader", gently=True),
            _act(rng.uniform(1.2, 2.5), "scale cloneset", **fewer.arguments),
        ]
    else:  # the next leader does not see that Pods wait for their hook
        acts = [
            _act(0.0, "squall", fault="slow", seconds=0.6),
            fewer,
            _act(rng.uniform(0.3, 0.5), "stop leader", gently=True),
            _act(1.0, "scale cloneset", name=name, replicas=replicas),
            _act(2.2, "freeze watches", resource="pods", seconds=10.0),
            _act(rng.uniform(6.0, 9.0), "roll cloneset", name=name, image=f"clone:behind-{number}", partition=0),
        ]
    return happens(Weather(only="pods"), acts, last=9.0)


# ---- limits


def _rolled_while_others_go(rng: Random, existing: Existing, number: int) -> Incident | None:
    """A rollout begins while Pods that wait for their preDelete hook are unavailable."""
    name = rng.choice(existing.clones)
    marked = _act(0.0, "mark pods", name=name, number=rng.randrange(2))
    roll = _act(rng.uniform(0.1, 1.5), "roll cloneset", name=name, image=f"clone:rolled-{number}", partition=0)
    return happens(Weather(), [marked, roll], admission_too=True)


def _marked_while_limited(rng: Random, existing: Existing, _number: int) -> Incident | None:
    """Pods must be replaced under a scaleStrategy.maxUnavailable."""
    name = rng.choice(existing.clones)
    marked = _act(0.0, "mark pods", name=name, number=rng.randrange(3))
    return happens(Weather(), [marked], admission_too=True)


# ---- SidecarSets, the Lease, certificates


def _sets_and_pods(rng: Random) -> Iterator[Action]:
    for number, app in enumerate(APPS):
        yield Action(0.0, "create set", {"name": f"set-{number}", "app": app, "image": "shipper:0"})
    for number in range(4):
        yield Action(0.0, "create pod", {"name": f"pod-{number}", "app": rng.choice(APPS), "ordered": False})


def _statuses_refused(rng: Random, existing: Existing, number: int) -> Incident | None:
    """The status of a SidecarSet is refused while its Pods are created, deleted and relabeled."""
    acts = [
        _act(rng.uniform(0.0, 1.0), "create pod", name=f"pod-{number}-{position}", app=rng.choice(APPS), ordered=False)
        for position in range(2)
    ]
    acts += [_act(rng.uniform(0.0, 1.0), "delete pod", name=name) for name in rng.sample(list(existing.pods), 2)]
    if rng.random() < 0.5:
        acts.append(
            _act(rng.uniform(0.0, 1.0), "update set", name=rng.choice(existing.sets), image=f"shipper:{number}")
        )
    return happens(rng.choice((CALM, Weather(conflict=0.6))), acts)


def _set_replaced(rng: Random, existing: Existing, number: int) -> Incident | None:
    """A SidecarSet is replaced by a namesake while its first status is in flight."""
    name = rng.choice(existing.sets)
    acts = [_act(0.0, "replace set", name=name, app=rng.choice(APPS), image=f"shipper:{number}")]
    acts.append(_act(rng.uniform(0.2, 4.0), "replace set", name=name, app=rng.choice(APPS), image="shipper:other"))
    return happens(Weather(slow=0.9, only="sidecarsets"), acts, last=5.0)


def _status_unseen(rng: Random, _there: Existing, number: int) -> Incident | None:
    """Pods are created one by one, and the cache shows the resulting status late."""
    acts = [
        _act(rng.uniform(0.5, 3.0), "create pod", name=f"pod-{number}-{position}", app=rng.choice(APPS), ordered=False)
        for position in range(3)
    ]
    acts.append(_act(0.0, "freeze watches", resource="sidecarsets", seconds=5.0))
    return happens(Weather(), acts)


def _leader_stops(_rng: Random, _there: Existing, _number: int) -> Incident | None:
    """The leader releases its Lease while several replicas compete for it."""
    return happens(CALM, [_act(0.0, "stop leader", gently=True)])


def _certificates_end(rng: Random, _there: Existing, _number: int) -> Incident | None:
    """The CA changes, and the writes that publish it are refused."""
    weather = rng.choice((Weather(conflict=0.7), Weather(error=0.7), Weather(lost_request=0.6)))
    return happens(weather, [_act(0.0, "end certificates")], last=4.0)


def _configuration_deleted(rng: Random, _there: Existing, _number: int) -> Incident | None:
    """A user deletes a webhook configuration."""
    return happens(CALM, [_act(0.0, "delete configuration", kind=rng.choice(("mutating", "validating")))])


def _focus(
    first: Callable[[Random], Iterator[Action]], one: Callable[[Random, Existing, int], Incident | None], **rest: Any
) -> Focus:
    return Focus(first, lambda rng, found, number: one(rng, Existing.of(found), number), **rest)


_IN_PLACE = ("InPlaceIfPossible", "InPlaceOnly")
FOCUSES: Focuses = {
    "requests refused": _focus(_clone_sets(2, policy=_IN_PLACE, grace=0, min_ready=0, max_surge=0), _refused),
    "answers slow": _focus(_clone_sets(2), _slow),
    "claims wanted again": _focus(
        _clone_sets(claims=(1, 2), reuse=True, hook=("", FINALIZERS), replicas=(4, 5)), _claims_wanted_again
    ),
    "creation given up": _focus(
        _clone_sets(claims=1, reuse=True, hook=FINALIZERS, replicas=(2, 3), max_surge=0, limit=0), _creation_given_up
    ),
    "creation unanswered": _focus(
        _clone_sets(claims=(0, 1, 2), reuse=False, max_surge=0, limit=0), _creation_unanswered
    ),
    "cut off": _focus(_clone_sets(2), _cut_off),
    "set gone": _focus(_clone_sets(replicas=(3, 4, 5), hook=""), _set_gone, rounds=4),
    "marked while others go": _focus(
        _clone_sets(2, replicas=(3, 4, 5), hook=LABELS, mark=False), _marked_while_others_go
    ),
    "left behind": _focus(
        _clone_sets(2, replicas=(3, 4), max_unavailable=4, hook=LABELS, mark=False, policy=_IN_PLACE, claims=0),
        _left_behind,
        rounds=8,
    ),
    "rolled while others go": _focus(
        _clone_sets(replicas=(4, 5), max_unavailable=(1, 2), max_surge=0, min_ready=0, hook=LABELS),
        _rolled_while_others_go,
    ),
    "marked while limited": _focus(
        _clone_sets(replicas=(3, 4), limit=1, hook=LABELS, max_surge=0, exclude=False), _marked_while_limited, rounds=3
    ),
    "statuses refused": _focus(_sets_and_pods, _statuses_refused),
    "set replaced": _focus(_sets_and_pods, _set_replaced, rounds=8),
    "status unseen": _focus(_sets_and_pods, _status_unseen, calm=True),
    "leader stops": _focus(_sets_and_pods, _leader_stops, rounds=10, replicas=3),
    "certificates end": _focus(_sets_and_pods, _certificates_end, rounds=2),
    "configuration deleted": _focus(_sets_and_pods, _configuration_deleted, rounds=4, calm=True),
}
