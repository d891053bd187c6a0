"""A liveness defect that only a randomized run detects."""

from __future__ import annotations

import pytest

from app.features.podprobe.reconcile.liveness import LivenessReconciler
from tests.features.podprobe.liveness_seeds import run
from tests.kit import virtualtime


async def forgets(self: LivenessReconciler) -> None:
    """Count a restart request only once the watch has delivered it."""
    self._made.clear()


def test_a_forgotten_request_is_found_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LivenessReconciler, "_look_up_unseen", forgets)
    assert virtualtime.run(run(2)).breaches
