"""UnitedDeployments against faults by seed; and a mutant that some seed must find."""

from __future__ import annotations

import os

import pytest

from app.features.uniteddeployment.writes import UnseenWorkloads
from tests.features.uniteddeployment.simulation import Simulation
from tests.features.uniteddeployment.world import World, in_world
from tests.nightly import examples

#: More with PYKRUISE_UNITED_SEEDS.
SEEDS = int(os.environ.get("PYKRUISE_UNITED_SEEDS", examples(8)))


#: Seeds that found bugs: a timer that fired in a loop; a subset missing in a stale cache.
FOUND = (14, 32)


def complaints(seed: int) -> list[str]:
    """Return the findings of a seed."""
    found: list[str] = []

    async def scenario(there: World) -> None:
        simulation = Simulation(there, seed)
        await simulation.run()
        found.extend(simulation.complaints)

    in_world(scenario)()
    return found


@pytest.mark.behaviour("UD-32", "UD-33", "UD-49")
@pytest.mark.parametrize("seed", [*range(1, 1 + SEEDS), *FOUND])
def test_everything_settles_as_specified(seed: int) -> None:
    assert complaints(seed) == []


# ---- a mutant


async def awaits_nothing(*_: object) -> float:
    """Creations without an answer, and those that no cache shows, are forgotten."""
    return 0.0


def test_a_forgotten_creation_is_found_by_some_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnseenWorkloads, "wait", awaits_nothing)
    assert any(complaints(seed) for seed in range(1, 31))
