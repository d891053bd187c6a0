"""When a Pod counts as available: running, ready for long enough, in service, and with no update under way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.api import names
from app.features.cloneset.plan.settings import Settings
from app.kube.objects import ObjectMeta, Pod, PodCondition, PodStatus
from app.workloads.pods import pod_facts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    ready: str = "True", since: float | None = 60, phase: str = "Running", in_place: str = "", state: str = ""
) -> Pod:
    """``since``: how many seconds ago Ready changed."""
    moment = None if since is None else NOW - timedelta(seconds=since)
    conditions = [PodCondition("Ready", ready, last_transition_time=moment)]
    if in_place:
        conditions.append(PodCondition("InPlaceUpdateReady", in_place))
    labels = {names.LIFECYCLE_STATE: state} if state else {}
    return Pod(ObjectMeta("web-0", labels=labels), status=PodStatus(phase, conditions=tuple(conditions)))


def is_available(given: Pod, seconds: int, now: datetime = NOW) -> bool:
    return pod_facts(given, Settings(min_ready_seconds=seconds)).available(now.timestamp())


@pytest.mark.parametrize(
    ("given", "seconds", "available"),
    [
        pytest.param(pod(), 0, True, id="no time asked for"),
        pytest.param(pod(since=None), 0, True, id="no time asked for, none known"),
        pytest.param(pod(since=None), 1, False, id="no time known"),
        pytest.param(pod("False"), 0, False, id="not ready"),
        pytest.param(pod(), 59, True, id="long enough"),
        pytest.param(pod(), 60, False, id="strictly longer"),
        pytest.param(pod(), 61, False, id="not long enough"),
        pytest.param(pod(in_place="False"), 0, False, id="an update is under way"),
        pytest.param(pod(in_place="True"), 0, True, id="no update is under way"),
        pytest.param(pod(phase="Pending"), 0, False, id="not running"),
    ],
)
@pytest.mark.behaviour("PM-114")
def test_ready_duration(given: Pod, seconds: int, available: bool) -> None:
    assert is_available(given, seconds) is available


@pytest.mark.behaviour("PM-69")
@pytest.mark.parametrize(("state", "available"), [("", True), ("Normal", True), ("Updating", False), ("x", False)])
def test_only_pods_in_service_are_available(state: str, available: bool) -> None:
    assert is_available(pod(state=state), 0) is available


def test_the_facts_have_the_time_the_pod_becomes_available() -> None:
    after = pod_facts(pod(), Settings(min_ready_seconds=90)).available_after
    assert after == (NOW + timedelta(seconds=30)).timestamp()
    assert not is_available(pod(), 90, NOW + timedelta(seconds=30))
    assert is_available(pod(), 90, NOW + timedelta(seconds=30.01))
