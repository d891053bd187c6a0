"""What an update does with a Pod now: steps that a workload's plan lists and the engine carries out. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.pods.lifecycle import Lifecycle, UpdateAction, update_action
from app.workloads.engine.pods import PodFacts

#: Why a Pod cannot be updated in place: the first field that stands in the way; None: it can.
Obstacle: TypeAlias = Callable[[PodFacts], str | None]


class StepKind(StrEnum):
    """What an update does with a Pod now."""

    PREPARE = "Prepare"
    """Its hook is on: it says it is about to be updated and waits (PreparingUpdate)."""
    REARM = "Rearm"
    """Updated, but another revision has come: back to PreparingUpdate with the hook put on again (PM-73)."""
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"
    """It is replaced: marked for deletion, or deleted, as the workload has it."""
    REFUSE = "Refuse"
    """Somebody has put it into a state from which no update starts: an error, which the others do not wait for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One Pod and what is done with it. ``obstacle``: what keeps it from being updated in place."""

    kind: StepKind
    pod: PodFacts
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Steps in order. ``failure``: what then ends the update with an error; ``obstacle``: the field it is for."""

    #: The short hash of the revision Pods are taken to.
    target: str = ""
    steps: tuple[Step, ...] = ()
    failure: str = ""
    obstacle: str = ""


def in_place_step(pod: PodFacts, lifecycle: Lifecycle | None) -> Step | None:
    """CS-130: the step of a Pod that can be updated in place, by where it stands in its lifecycle; None: none yet."""
    if pod.awaits_initial_conditions:
        return None
    match update_action(pod.pod, lifecycle.in_place_update if lifecycle is not None else None):
        case UpdateAction.START:
            return Step(StepKind.IN_PLACE, pod)
        case UpdateAction.PREPARE:
            return Step(StepKind.PREPARE, pod)
        case UpdateAction.REARM:
            return Step(StepKind.REARM, pod)
        case UpdateAction.REFUSE:
            return Step(StepKind.REFUSE, pod, f"not allowed in lifecycle state {pod.lifecycle!r}")
    return None
