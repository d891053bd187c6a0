"""A few randomized liveness runs; for more: ``python -m tests.features.podprobe.liveness_seeds 1 100``."""

import pytest

from app.features.podprobe.reconcile.liveness import LivenessReconciler
from tests.features.podprobe.liveness_seeds import run
from tests.kit import virtualtime
from tests.nightly import NIGHTLY


@pytest.mark.behaviour("PPM-51", "PPM-52", "PPM-53")
@pytest.mark.parametrize("seed", [13, 25, 35, 171] if NIGHTLY else [13])
def test_live_containers_are_not_restarted_and_limits_hold(seed: int) -> None:
    judge = virtualtime.run(run(seed))
    assert judge.breaches == []
    assert judge.restarts > 10


# ---- a defect that only a randomized run detects


async def forgets(self: LivenessReconciler) -> None:
    """Count a restart request only once the watch has delivered it."""
    self._made.clear()


def test_a_forgotten_request_is_found_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LivenessReconciler, "_look_up_unseen", forgets)
    assert virtualtime.run(run(2)).breaches
