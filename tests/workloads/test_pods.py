"""Facts about a Pod."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from app.features.cloneset.plan.settings import Settings
from app.kube.objects import Pod
from app.pods.lifecycle import Hook, Lifecycle
from app.workloads.pods import gets_initial_conditions, pod_facts
from tests.kit import objects

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def made(
    *,
    state: str = "Normal",
    ready: bool = True,
    since: int | None = 30,
    in_place: str = "True",
    phase: str = "Running",
    **metadata: Any,
) -> Pod:
    """``since``: seconds since the conditions changed; None if unknown."""
    moment = {} if since is None else {"lastTransitionTime": (NOW - timedelta(seconds=since)).isoformat()}
    conditions = [{"type": "Ready", "status": str(ready), **moment}]
    if in_place:
        conditions.append({"type": "InPlaceUpdateReady", "status": in_place, **moment})
    labels = {"controller-revision-hash": "web-abc", "pod-template-hash": "abc"}
    if state:
        labels["lifecycle.apps.kruise.io/state"] = state
    gates = {"readinessGates": [{"conditionType": "InPlaceUpdateReady"}]}
    metadata = {"uid": "u", "resourceVersion": "5", "labels": labels, **metadata}
    return objects.pod("web-1", node="n", phase=phase, conditions=conditions, spec=gates, **metadata)


@pytest.mark.behaviour("CS-78", "PM-114", "CS-80", "PM-69", "PM-78")
@pytest.mark.parametrize(("pod", "seconds", "available", "update_ready", "delete_ready"), [
    pytest.param(made(), 0, True, True, True, id="ready"),
    pytest.param(made(state=""), 0, True, True, True, id="without a state"),
    pytest.param(made(), 29, True, True, True, id="ready for long enough"),
    pytest.param(made(), 30, False, True, True, id="strictly longer"),
    pytest.param(made(since=None), 0, True, True, True, id="ready for an unknown time"),
    pytest.param(made(since=None), 1, False, True, True, id="ready for an unknown time, which counts"),
    pytest.param(made(ready=False), 0, False, False, False, id="not ready"),
    pytest.param(made(phase="Pending"), 0, False, False, False, id="not running"),
    pytest.param(made(in_place="False"), 0, False, False, False, id="update in progress"),
    pytest.param(made(in_place=""), 0, True, True, True, id="without the condition"),
    pytest.param(made(state="Updated"), 0, False, True, False, id="a state other than Normal"),
    pytest.param(made(state="x"), 0, False, True, False, id="an unknown state"),
])  # fmt: skip
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


@pytest.mark.behaviour("CS-135", "PM-74")
def test_a_new_pod_without_a_pre_normal_hook_becomes_normal_with_its_first_conditions() -> None:
    owner = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "w", "controller": True}
    new = made(state="PreparingNormal", in_place="", ownerReferences=[owner])
    assert gets_initial_conditions(new, None)
    assert not gets_initial_conditions(new, Lifecycle(pre_normal=Hook(labels={"hold": "true"})))
    found = [pod_facts(one, Settings()) for one in (new, made(state="PreparingNormal"), made(in_place=""))]
    assert [one.awaits_initial_conditions for one in found] == [True, False, False]


@pytest.mark.behaviour("CS-83", "PM-103")
def test_any_value_of_the_label_marks_a_pod_for_deletion() -> None:
    labels = {"apps.kruise.io/specified-delete": "false"}
    assert pod_facts(made(labels=labels), Settings()).marked
    assert not pod_facts(made(), Settings()).marked
