"""What is known of one Pod, and what is due on it."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import msgspec
import orjson
import pytest

from app.features.cloneset.plan.settings import Settings
from app.kube.objects import Pod, decode_pod
from app.pods.lifecycle import Hook, Lifecycle
from app.workloads.pods import pod_facts
from app.workloads.steps import refresh_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
READY_SINCE = NOW - timedelta(seconds=30)


def made(*, state: str = "Normal", ready: bool = True, in_place: str = "True", **metadata: Any) -> Pod:
    since = READY_SINCE.isoformat()
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": since}]
    if in_place:
        conditions.append({"type": "InPlaceUpdateReady", "status": in_place, "lastTransitionTime": since})
    labels = {"controller-revision-hash": "web-abc", "pod-template-hash": "abc"}
    if state:
        labels["lifecycle.apps.kruise.io/state"] = state
    return decode_pod(
        orjson.dumps(
            {
                "metadata": {"name": "web-1", "uid": "u", "resourceVersion": "5", "labels": labels, **metadata},
                "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "InPlaceUpdateReady"}]},
                "status": {"phase": "Running", "conditions": conditions},
            }
        )
    )


@pytest.mark.behaviour("CS-78", "CS-79", "CS-80", "CS-81", "CS-75")
@pytest.mark.parametrize(
    ("pod", "seconds", "available", "update_ready", "delete_ready"),
    [
        pytest.param(made(), 0, True, True, True, id="ready"),
        pytest.param(made(state=""), 0, True, True, True, id="without a state"),
        pytest.param(made(), 29, True, True, True, id="ready for long enough"),
        pytest.param(made(), 30, False, True, True, id="strictly longer"),
        pytest.param(made(ready=False), 0, False, False, False, id="not ready"),
        pytest.param(made(in_place="False"), 0, False, False, False, id="an update is under way"),
        pytest.param(made(in_place=""), 0, True, True, True, id="without the condition"),
        pytest.param(made(state="Updated"), 0, False, True, False, id="a state that is not Normal"),
    ],
)
def test_facts_of_a_pod_are_computed(
    pod: Pod, seconds: int, available: bool, update_ready: bool, delete_ready: bool
) -> None:
    facts = pod_facts(pod, Settings(min_ready_seconds=seconds))
    assert facts.available(NOW.timestamp()) == available
    assert (facts.update_ready, facts.delete_ready) == (update_ready, delete_ready)
    assert facts.revision == "abc"
    if seconds == 30:
        assert inf > facts.available_after >= NOW.timestamp()
        assert facts.available(NOW.timestamp() + 0.1)


@pytest.mark.behaviour("CS-83")
def test_any_value_of_the_label_marks_a_pod_for_deletion() -> None:
    labels = {"apps.kruise.io/specified-delete": "false"}
    assert pod_facts(made(labels=labels), Settings()).marked


@pytest.mark.behaviour("CS-122", "CS-135", "CS-136", "CS-191")
def test_completing_an_update_is_one_write() -> None:
    """Sets condition, lifecycle state and update record, conditional on the observed version of the Pod."""
    state = '{"revision":"web-abc","updateTimestamp":"2026-01-01T11:59:00Z","state":"Updating"}'
    pod = made(state="Updating", in_place="False", annotations={"apps.kruise.io/inplace-update-state": state})
    step = refresh_pod(
        made_with(pod, {"lifecycle.apps.kruise.io/state": "Updating", "controller-revision-hash": "web-abc"}),
        Settings(),
        NOW,
        returns=False,
    )
    assert step.patch is None
    assert step.status is not None
    assert step.status["metadata"]["resourceVersion"] == "5"
    assert step.status["metadata"]["labels"] == {
        "lifecycle.apps.kruise.io/state": "Normal",
        "pod-template-hash": "abc",
    }
    assert '"state":"Updated"' in step.status["metadata"]["annotations"]["apps.kruise.io/inplace-update-state"]
    (condition,) = step.status["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("InPlaceUpdateReady", "True")
    assert step.completes
    assert step.moves


def made_with(pod: Pod, labels: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


@pytest.mark.behaviour("CS-135")
def test_a_pod_that_no_longer_needs_its_update_returns_through_its_hook() -> None:
    lifecycle = Lifecycle(in_place_update=Hook(labels={"hold": "true"}))
    waiting = made(state="PreparingUpdate")
    assert not refresh_pod(waiting, Settings(lifecycle=lifecycle), NOW, returns=False).writes
    step = refresh_pod(waiting, Settings(lifecycle=lifecycle), NOW, returns=True)
    assert step.patch is not None
    assert step.patch["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] == "Updated"


@pytest.mark.behaviour("CS-122")
def test_a_settled_pod_needs_nothing() -> None:
    pod = made()
    assert pod_facts(pod, Settings()).settled
    assert not refresh_pod(pod, Settings(), NOW, returns=False).writes
