"""What is written on one Pod is true of the version that was seen."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.api import names
from app.features.cloneset.plan.settings import Settings
from app.kube.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from app.workloads.steps import PodRefresh, refresh_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def refreshed(state: str, **annotations: str) -> PodRefresh:
    metadata = ObjectMeta(
        name="web-0",
        namespace="default",
        uid="u1",
        resource_version="7",
        labels={names.LIFECYCLE_STATE: state, names.POD_TEMPLATE_HASH: "x"},
        annotations=annotations,
    )
    return refresh_pod(Pod(metadata=metadata, spec=PodSpec(node_name="n1")), Settings(), NOW, returns=False)


@pytest.mark.behaviour("PM-47")
def test_a_lifecycle_step_requires_the_observed_version() -> None:
    found = refreshed("Updated").patch
    assert found is not None
    assert (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) == ("u1", "7")


@pytest.mark.parametrize(("annotations", "completes"), [({}, False), ({names.IN_PLACE_UPDATE_STATE: "{}"}, True)])
def test_only_an_in_place_update_is_completed(annotations: dict[str, str], completes: bool) -> None:
    assert refreshed("Updated", **annotations).completes is completes


#: An update that waits for its container to run something else than it ran before.
UNDER_WAY = json.dumps({"revision": "r", "lastContainerStatuses": {"main": {"imageID": "old"}}})


def test_a_pod_that_returns_before_its_update_completes_nothing() -> None:
    """The Pod no longer needs its update, and its containers have not changed since it was requested."""
    metadata = ObjectMeta(
        name="web-0",
        namespace="default",
        uid="u1",
        resource_version="7",
        labels={names.LIFECYCLE_STATE: "PreparingUpdate", names.POD_TEMPLATE_HASH: "x"},
        annotations={names.IN_PLACE_UPDATE_STATE: UNDER_WAY},
    )
    containers = [Container(name="main", image="new")]
    statuses = [ContainerStatus(name="main", image_id="old")]
    pod = Pod(
        metadata=metadata,
        spec=PodSpec(node_name="n1", containers=containers),
        status=PodStatus(container_statuses=statuses),
    )
    found = refresh_pod(pod, Settings(), NOW, returns=True)
    assert found.writes
    assert found.completes is False


@pytest.mark.behaviour("PM-190")
@pytest.mark.parametrize(("seconds", "waits"), [(1, 3), (4, 0)])
def test_a_slow_resize_is_checked_again_and_retried(seconds: int, waits: int) -> None:
    began = NOW - timedelta(seconds=seconds)
    memory = ResourceRequirements({"memory": "1Gi"}, {"memory": "1Gi"})
    pod = Pod(
        metadata=ObjectMeta(
            name="web-0",
            namespace="default",
            uid="u1",
            resource_version="7",
            labels={names.LIFECYCLE_STATE: "Updating", names.POD_TEMPLATE_HASH: "x"},
            annotations={names.IN_PLACE_UPDATE_STATE: json.dumps({"revision": "r", "updateResources": True})},
        ),
        spec=PodSpec(node_name="n1", containers=[Container(name="main", image="x", resources=memory)]),
        status=PodStatus(
            container_statuses=[ContainerStatus(name="main", image_id="x", resources=ResourceRequirements())],
            conditions=[PodCondition("PodResizeInProgress", "True", last_transition_time=began)],
        ),
    )
    settings = Settings(gates=replace(Settings().gates, vertical_scaling=True))
    found = refresh_pod(pod, settings, NOW, returns=False)
    assert found.requeue_after == waits
    if not waits:
        assert found.patch is not None
        assert list(found.patch) == ["metadata"]
        state = json.loads(found.patch["metadata"]["annotations"][names.IN_PLACE_UPDATE_STATE])
        assert state["resizeRetried"] == "2026-01-01T00:00:00Z"


def test_a_label_alone_completes_nothing() -> None:
    """The label is written long after the update, when the gate is enabled."""
    metadata = ObjectMeta(
        name="web-0",
        namespace="default",
        uid="u1",
        resource_version="7",
        labels={names.LIFECYCLE_STATE: "Normal", names.CONTROLLER_REVISION_HASH: "web-abc"},
        annotations={names.IN_PLACE_UPDATE_STATE: "{}"},
    )
    settings = Settings(gates=replace(Settings().gates, template_hash=True))
    found = refresh_pod(Pod(metadata=metadata, spec=PodSpec(node_name="n1")), settings, NOW, returns=False)
    assert found.patch is not None
    assert names.POD_TEMPLATE_HASH in found.patch["metadata"]["labels"]
    assert found.completes is False
