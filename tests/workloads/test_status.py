"""Times of conditions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.workloads.status import Condition, with_condition

THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.behaviour("CS-151")
@pytest.mark.parametrize(("reason", "moves"), [("Paused", False), ("Updated", True)])
def test_a_changed_reason_is_not_a_transition(reason: str, moves: bool) -> None:
    before = with_condition([], Condition("Progressing", "True", "Paused", "paused"), THEN)
    (after,) = with_condition(before, Condition("Progressing", "True", reason, "paused"), NOW)
    assert (after["lastUpdateTime"] != before[0]["lastUpdateTime"]) is moves
    assert after["lastTransitionTime"] == before[0]["lastTransitionTime"]
    (after,) = with_condition(before, Condition("Progressing", "False", reason, "paused"), NOW)
    assert after["lastTransitionTime"] == after["lastUpdateTime"] != before[0]["lastTransitionTime"]
