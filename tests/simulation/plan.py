"""Plans: which phases a run has and how long they are, decided by a seed. Pure.

Every run has its storm and comes to rest after it. Of what may follow it has one thing or two: many seeds are worth
more than long ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

#: Seconds of a storm, and how much users do in it.
_STORMS = ((60.0, 12), (60.0, 12), (90.0, 16), (120.0, 22), (180.0, 30))
#: What follows: something that goes wrong on and on, nothing that goes wrong, or one mishap after the other.
TROUBLE, CALM, MISHAPS = "trouble", "calm", "mishaps"
_LATER = ((TROUBLE,), (CALM,), (MISHAPS,), (TROUBLE, CALM), (TROUBLE, MISHAPS), (CALM, MISHAPS))


@dataclass(frozen=True, slots=True)
class Plan:
    """``seconds`` of storm with so many ``actions``, then the ``phases``, in which so much is done."""

    seconds: float
    actions: int
    phases: tuple[str, ...]
    calm_acts: int
    mishaps: int


def plan(seed: int, seconds: float | None = None, actions: int | None = None) -> Plan:
    """That of a run; ``seconds`` and ``actions``: where they are given."""
    rng = Random(f"plan {seed}")
    made = Plan(*rng.choice(_STORMS), rng.choice(_LATER), rng.randrange(1, 4), rng.randrange(1, 4))
    made = made if seconds is None else replace(made, seconds=seconds)
    return made if actions is None else replace(made, actions=actions)
