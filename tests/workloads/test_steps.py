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
from app.workloads.steps import refresh_pod
from tests.kit import objects

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATE = names.IN_PLACE_UPDATE_STATE


def pod(state: str, *, labels: dict[str, str] | None = None, record: Any = None, **given: Any) -> Pod:
    """``record``: its record of an in-place update."""
    own = labels or {names.POD_TEMPLATE_HASH: "x"}
    annotations = {} if record is None else {STATE: json.dumps(record)}
    metadata = {"uid": "u1", "resourceVersion": "7", "labels": {names.LIFECYCLE_STATE: state, **own}}
    return objects.pod(node="n1", annotations=annotations, **metadata, **given)


@pytest.mark.behaviour("PM-47")
def test_a_lifecycle_step_requires_the_observed_version() -> None:
    found = refresh_pod(pod("Updated"), Settings(), NOW, returns=False).patch
    assert found is not None
    assert (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) == ("u1", "7")


@pytest.mark.parametrize(("record", "completes"), [(None, False), ({}, True)])
def test_only_an_in_place_update_is_completed(record: Any, completes: bool) -> None:
    assert refresh_pod(pod("Updated", record=record), Settings(), NOW, returns=False).completes is completes


def test_a_pod_that_returns_before_its_update_completes_nothing() -> None:
    """The Pod no longer needs its update, and its containers have not changed since it was requested."""
    waiting = pod(
        "PreparingUpdate",
        record={"revision": "r", "lastContainerStatuses": {"main": {"imageID": "old"}}},
        spec={"containers": [{"name": "main", "image": "new"}]},
        status={"containerStatuses": [{"name": "main", "imageID": "old"}]},
    )
    found = refresh_pod(waiting, Settings(), NOW, returns=True)
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
    settings = Settings(gates=replace(Settings().gates, vertical_scaling=True))
    found = refresh_pod(resized, settings, NOW, returns=False)
    assert found.requeue_after == waits
    if not waits:
        assert found.patch is not None
        assert list(found.patch) == ["metadata"]
        state = json.loads(found.patch["metadata"]["annotations"][STATE])
        assert state["resizeRetried"] == "2026-01-01T00:00:00Z"


def test_a_label_alone_completes_nothing() -> None:
    """The label is written long after the update, when the gate is enabled."""
    unlabeled = pod("Normal", labels={names.CONTROLLER_REVISION_HASH: "web-abc"}, record={})
    settings = Settings(gates=replace(Settings().gates, template_hash=True))
    found = refresh_pod(unlabeled, settings, NOW, returns=False)
    assert found.patch is not None
    assert names.POD_TEMPLATE_HASH in found.patch["metadata"]["labels"]
    assert found.completes is False
