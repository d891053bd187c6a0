from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.kube.objects import ObjectMeta, Pod, PodCondition, PodStatus
from app.pods.predicates import is_specified_delete, is_update_ready, ready_for, seconds_until_available

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    ready: str = "True", since: float | None = 60, phase: str = "Running", in_place: str = "", **labels: str
) -> Pod:
    """``since``: how many seconds ago Ready changed."""
    moment = None if since is None else NOW - timedelta(seconds=since)
    conditions = [PodCondition("Ready", ready, last_transition_time=moment)]
    if in_place:
        conditions.append(PodCondition("InPlaceUpdateReady", in_place))
    return Pod(ObjectMeta("web-0", labels=labels), status=PodStatus(phase, conditions=tuple(conditions)))


@pytest.mark.parametrize(
    ("given", "seconds", "ready"),
    [
        pytest.param(pod(), 0, True, id="no time asked for"),
        pytest.param(pod(since=None), 0, True, id="no time asked for, none known"),
        pytest.param(pod(since=None), 1, False, id="no time known"),
        pytest.param(pod("False"), 0, False, id="not ready"),
        pytest.param(pod(), 59, True, id="long enough"),
        pytest.param(pod(), 60, False, id="strictly longer"),
        pytest.param(pod(), 61, False, id="not long enough"),
    ],
)
@pytest.mark.behaviour("PM-114")
def test_ready_for_a_time(given: Pod, seconds: int, ready: bool) -> None:
    assert ready_for(given, seconds, NOW) is ready
    assert is_update_ready(given, seconds, NOW) is ready


@pytest.mark.behaviour("PM-114")
def test_an_update_under_way_or_another_phase_is_not_available() -> None:
    assert not is_update_ready(pod(in_place="False"), 0, NOW)
    assert is_update_ready(pod(in_place="True"), 0, NOW)
    assert not is_update_ready(pod(phase="Pending"), 0, NOW)


@pytest.mark.behaviour("PM-171")
def test_when_to_look_again_for_availability() -> None:
    wait = seconds_until_available(pod(), 90, NOW)
    assert wait is not None
    assert 30 < wait < 31
    assert not ready_for(pod(), 90, NOW + timedelta(seconds=30))
    assert ready_for(pod(), 90, NOW + timedelta(seconds=wait))
    for given, seconds in ((pod("False"), 90), (pod(), 10), (pod(), 0), (pod(since=None), 9)):
        assert seconds_until_available(given, seconds, NOW) is None


@pytest.mark.parametrize(("labels", "marked"), [({}, False), ({"apps.kruise.io/specified-delete": "false"}, True)])
@pytest.mark.behaviour("PM-103")
def test_any_value_of_the_label_marks_a_pod_for_deletion(labels: Any, marked: bool) -> None:
    assert is_specified_delete(pod(**labels)) is marked
