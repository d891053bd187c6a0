"""Mutants of liveness by the node agent: small ways to break it, each of which the seed beside it finds.

That a probe goes on through restarts of its container is found by one seed in hundreds, by another one with each change
of anybody's pace: the table of failures in ``liveness/test_plan.py`` holds that.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.features.podprobe.plan import liveness
from app.features.podprobe.plan.liveness import Failure
from app.features.podprobe.reconcile.liveness import LivenessReconciler
from app.kube.objects import Pod
from tests.features.podprobe.liveness_seeds import run
from tests.kit import virtualtime


def bears_all(*_: object) -> None:
    """No workload holds a restart back."""


async def forgets(self: LivenessReconciler) -> None:
    """What was asked for counts when a watch shows it, not before."""
    self._made.clear()


def once(pod: Pod, failure: Failure) -> str:
    return f"liveness-{pod.metadata.uid}-{failure.container}"


MUTANTS: dict[str, tuple[Any, str, Any, int]] = {
    "nothing is held back": (LivenessReconciler, "_held_back", bears_all, 1),
    "requests are forgotten": (LivenessReconciler, "_look_up_unseen", forgets, 2),
    "a container is restarted once": (liveness, "request_name", once, 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_by_its_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mutant, seed = MUTANTS[name]
    monkeypatch.setattr(place, attribute, mutant)
    assert virtualtime.run(run(seed)).breaches
