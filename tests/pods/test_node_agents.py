"""How long a Pod waits for the report of its node agent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.pods.node_agents import REPORT_SECONDS, seconds_for_report
from tests.kit import objects

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def started(seconds: float, state: str = "running") -> dict[str, Any]:
    return {
        "name": f"{state}{seconds}",
        "state": {state: {"startedAt": (NOW - timedelta(seconds=seconds)).isoformat()}},
    }


@pytest.mark.behaviour("PM-140")
@pytest.mark.parametrize(
    ("containers", "left"),
    [
        ([], 0.0),
        ([{"name": "waiting", "state": {"waiting": {}}}], 0.0),
        ([started(1)], REPORT_SECONDS - 1),
        ([started(REPORT_SECONDS + 1)], 0.0),
        ([started(9), started(1, "terminated")], REPORT_SECONDS - 1),
        ([started(-3600)], REPORT_SECONDS),
    ],
    ids=["none", "not started", "started", "overdue", "the last start counts", "a node whose clock is ahead"],
)
def test_a_report_is_expected_for_a_while_after_the_last_start(containers: list[dict[str, Any]], left: float) -> None:
    assert seconds_for_report(objects.pod(status={"containerStatuses": containers}), NOW) == left
