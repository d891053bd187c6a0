"""Mutants of the sidecar terminator: small ways to break it, each with a seed that finds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.features.sidecarterminator import plan as planned
from app.features.sidecarterminator import reconcile
from app.features.sidecarterminator.plan import JobContainer, JobPod, Kind, Sidecar, Step, plan, sidecar
from app.features.sidecarterminator.reconcile import SidecarTerminatorReconciler
from tests.features.sidecarterminator.terminator_seeds import run
from tests.kit import virtualtime


def without_exit_codes(container: JobContainer) -> Sidecar:
    """The exit code of no sidecar counts."""
    found = sidecar(container)
    return replace(found, kind=Kind.IGNORED) if found.kind is Kind.SIDECAR else found


def in_one_step(pod: JobPod, *, virtual: bool) -> Step:
    """Sidecars whose exit code is ignored are stopped with the others."""
    step = plan(pod, virtual=virtual)
    running = {one.name for one in pod.status.container_statuses if one.state.terminated is None}
    ignored = [one.name for one in pod.spec.containers if sidecar(one).kind is Kind.IGNORED]
    more = tuple(name for name in ignored if name in running and name not in step.stop)
    return replace(step, stop=(*step.stop, *more)) if step.stop else step


async def sets_no_phase(*_: object) -> None:
    """The Pod keeps the phase that its last sidecars give it."""


MUTANTS: dict[str, tuple[Any, str, Any, int]] = {
    "the first main container that ends is enough": (planned, "all", any, 3),
    "exit codes do not count": (planned, "sidecar", without_exit_codes, 1),
    "both steps are taken at once": (reconcile, "plan", in_one_step, 1),
    "no phase is set": (SidecarTerminatorReconciler, "_set_phase", sets_no_phase, 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_by_its_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mutant, seed = MUTANTS[name]
    monkeypatch.setattr(place, attribute, mutant, raising=attribute != "all")
    assert virtualtime.run(run(seed)).breaches
