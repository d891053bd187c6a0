"""UnitedDeployments against faults by seed; and mutants, each of which some seed must find."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from app.features.uniteddeployment import reconcile
from app.features.uniteddeployment.plan.subsets import Claims, claim
from app.features.uniteddeployment.writes import UnseenWorkloads
from tests.features.uniteddeployment.simulation import Simulation
from tests.features.uniteddeployment.world import REVISION, World, in_world

#: More with PYKRUISE_UNITED_SEEDS.
SEEDS = int(os.environ.get("PYKRUISE_UNITED_SEEDS", "8"))


#: A timer that was due at once, over and over; a subset that a late cache took for gone.
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


# ---- mutants


async def awaits_nothing(*_: object) -> float:
    """Creations without an answer, and those that no cache shows, are forgotten."""
    return 0.0


def with_surplus_kept(*arguments: Any) -> Claims:
    found = claim(*arguments)
    return Claims(found.existing, (), found.release, found.adopt)


class Everything(Collection[str]):
    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1


def with_all_adopted(kind: str, subsets: Collection[str], *rest: Any) -> Claims:
    """Orphans are adopted for whichever subset they name."""
    found = claim(kind, subsets, *rest)
    return Claims(found.existing, found.surplus, found.release, claim(kind, Everything(), *rest).adopt)


def without_replicas(kind: str, workload: Any, wanted: Any) -> bool:
    """Replicas that differ are not written."""
    return bool(workload.metadata.labels[REVISION] != wanted.labels[REVISION])


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any] | Callable[..., Awaitable[Any]]]] = {
    "creations are forgotten": (UnseenWorkloads, "wait", awaits_nothing),
    "surplus stays": (reconcile, "claim", with_surplus_kept),
    "everything is adopted": (reconcile, "claim", with_all_adopted),
    "replicas are not written": (reconcile, "needs_update", without_replicas),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_by_some_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(place, attribute, mutant)
    assert any(complaints(seed) for seed in range(1, 31))
