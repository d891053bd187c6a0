"""Plans: the phases of a run and their lengths, drawn from a seed. Pure.

Every run has a storm, settles, and has one or two more phases. Many short runs find more than a few long ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

#: Seconds and actions of a storm.
_STORMS = ((60.0, 12), (60.0, 12), (90.0, 16), (120.0, 22), (180.0, 30))
#: Phases after the storm: a lasting fault, no fault, incidents.
TROUBLE, CALM, INCIDENTS = "trouble", "calm", "incidents"
_LATER = ((TROUBLE,), (CALM,), (INCIDENTS,), (TROUBLE, CALM), (TROUBLE, INCIDENTS), (CALM, INCIDENTS))


@dataclass(frozen=True, slots=True)
class Plan:
    """A storm of ``seconds`` with ``actions``, then ``phases`` of ``calm_acts`` actions or of ``incidents``."""

    seconds: float
    actions: int
    phases: tuple[str, ...]
    calm_acts: int
    incidents: int


def plan(seed: int, seconds: float | None = None, actions: int | None = None) -> Plan:
    """Draw the plan of a run; ``seconds`` and ``actions`` override it."""
    rng = Random(f"plan {seed}")
    made = Plan(*rng.choice(_STORMS), rng.choice(_LATER), rng.randrange(1, 4), rng.randrange(1, 4))
    made = made if seconds is None else replace(made, seconds=seconds)
    return made if actions is None else replace(made, actions=actions)
