"""Writes due on a Pod, and whether they complete its update."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.api import names
from app.features.cloneset.plan.settings import Settings
from app.kube.objects import Pod
from app.pods.lifecycle import Hook, Lifecycle
from app.workloads.pods import pod_facts
from app.workloads.steps import PodRefresh, refresh_pod
from tests.kit import objects

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATE = names.IN_PLACE_UPDATE_STATE


def pod(state: str, *, labels: dict[str, str] | None = None, record: Any = None, **given: Any) -> Pod:
    """``record``: its record of an in-place update."""
    own = {**(labels or {names.POD_TEMPLATE_HASH: "x"}), **({names.LIFECYCLE_STATE: state} if state else {})}
    annotations = {} if record is None else {STATE: json.dumps(record)}
    return objects.pod(node="n1", annotations=annotations, uid="u1", resourceVersion="7", labels=own, **given)


def in_service(status: str) -> dict[str, Any]:
    """Return the readiness gate of in-place updates, and its condition."""
    conditions = [{"type": "InPlaceUpdateReady", "status": status}]
    return {"conditions": conditions, "spec": {"readinessGates": [{"conditionType": "InPlaceUpdateReady"}]}}


def refreshed(found: Pod, *, returns: bool = False, **settings: Any) -> PodRefresh:
    gates = replace(Settings().gates, **settings.pop("gates", {}))
    return refresh_pod(found, Settings(gates=gates, **settings), NOW, returns=returns)


UPDATING = {"revision": "web-abc", "updateTimestamp": "2025-12-31T23:59:00Z", "state": "Updating"}


@pytest.mark.behaviour("CS-122", "CS-135", "PM-72", "PM-47")
def test_completing_an_update_is_one_write() -> None:
    """Sets condition, lifecycle state and update record, conditional on the observed version of the Pod."""
    found = refreshed(
        pod(
            "Updating",
            labels={names.CONTROLLER_REVISION_HASH: "web-abc"},
            record=UPDATING,
            **in_service("False"),
        )
    )
    assert found.patch is None
    assert found.status is not None
    assert found.status["metadata"]["resourceVersion"] == "7"
    assert found.status["metadata"]["labels"] == {names.LIFECYCLE_STATE: "Normal", names.POD_TEMPLATE_HASH: "abc"}
    assert '"state":"Updated"' in found.status["metadata"]["annotations"][STATE]
    (condition,) = found.status["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("InPlaceUpdateReady", "True")
    assert found.completes


@pytest.mark.behaviour("PM-55")
def test_an_update_without_a_lifecycle_state_is_completed_in_its_record() -> None:
    given = pod("", record=UPDATING, **in_service("True"))
    assert not pod_facts(given, Settings()).settled
    found = refreshed(given)
    assert found.patch is not None
    assert "labels" not in found.patch["metadata"]
    assert '"state":"Updated"' in found.patch["metadata"]["annotations"][STATE]


@pytest.mark.behaviour("CS-135")
def test_a_pod_that_no_longer_needs_its_update_returns_through_its_hook() -> None:
    lifecycle = Lifecycle(in_place_update=Hook(labels={"hold": "true"}))
    waiting = pod("PreparingUpdate", **in_service("True"))
    assert not refreshed(waiting, lifecycle=lifecycle).writes
    found = refreshed(waiting, lifecycle=lifecycle, returns=True)
    assert found.patch is not None
    assert found.patch["metadata"]["labels"][names.LIFECYCLE_STATE] == "Updated"


@pytest.mark.behaviour("CS-122")
def test_a_settled_pod_needs_nothing() -> None:
    given = pod("Normal", **in_service("True"))
    assert pod_facts(given, Settings()).settled
    assert not refreshed(given).writes


@pytest.mark.behaviour("PM-47")
def test_a_lifecycle_step_requires_the_observed_version() -> None:
    found = refreshed(pod("Updated")).patch
    assert found is not None
    assert (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) == ("u1", "7")


@pytest.mark.parametrize(("record", "completes"), [(None, False), ({}, True)])
def test_only_an_in_place_update_is_completed(record: Any, completes: bool) -> None:
    assert refreshed(pod("Updated", record=record)).completes is completes


def test_a_pod_that_returns_before_its_update_completes_nothing() -> None:
    """The Pod no longer needs its update, and its containers have not changed since it was requested."""
    waiting = pod(
        "PreparingUpdate",
        record={"revision": "r", "lastContainerStatuses": {"main": {"imageID": "old"}}},
        spec={"containers": [{"name": "main", "image": "new"}]},
        status={"containerStatuses": [{"name": "main", "imageID": "old"}]},
    )
    found = refreshed(waiting, returns=True)
    assert found.writes
    assert found.completes is False


@pytest.mark.behaviour("PM-190")
@pytest.mark.parametrize(("seconds", "waits"), [(1, 3), (4, 0)])
def test_a_slow_resize_is_checked_again_and_retried(seconds: int, waits: int) -> None:
    began = (NOW - timedelta(seconds=seconds)).isoformat()
    memory = {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
    resized = pod(
        "Updating",
        record={"revision": "r", "updateResources": True},
        spec={"containers": [{"name": "main", "image": "x", "resources": memory}]},
        status={"containerStatuses": [{"name": "main", "imageID": "x", "resources": {}}]},
        conditions=[{"type": "PodResizeInProgress", "status": "True", "lastTransitionTime": began}],
    )
    found = refreshed(resized, gates={"vertical_scaling": True})
    assert found.requeue_after == waits
    if not waits:
        assert found.patch is not None
        assert list(found.patch) == ["metadata"]
        state = json.loads(found.patch["metadata"]["annotations"][STATE])
        assert state["resizeRetried"] == "2026-01-01T00:00:00Z"


def test_a_label_alone_completes_nothing() -> None:
    """The label is written long after the update, when the gate is enabled."""
    unlabeled = pod("Normal", labels={names.CONTROLLER_REVISION_HASH: "web-abc"}, record={})
    found = refreshed(unlabeled, gates={"template_hash": True})
    assert found.patch is not None
    assert names.POD_TEMPLATE_HASH in found.patch["metadata"]["labels"]
    assert found.completes is False
