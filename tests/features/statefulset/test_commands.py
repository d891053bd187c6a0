"""Progress of a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.statefulset.commands import parsed, progress_of
from tests.features.statefulset.writing import rolling, stateful_set


def status(**values: Any) -> dict[str, Any]:
    whole = {"observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 0}
    return {**whole, "updatedReplicas": 3, "updatedAvailableReplicas": 3, **values}


@pytest.mark.behaviour("AS-122")
@pytest.mark.parametrize(("spec", "given", "done", "text"), [
    ({}, status(), True, "3 of 3 Pods updated, 3 available"),
    ({}, status(observedGeneration=1), False, "waiting for the controller to observe the change"),
    ({}, status(updatedReplicas=1), False, "1 of 3 Pods updated"),
    ({}, status(availableReplicas=2), False, "3 of 3 Pods updated"),
    ({"updateStrategy": rolling(partition=2)}, status(updatedReplicas=1), True, "the partition keeps 2"),
    ({"updateStrategy": rolling(paused=True)}, status(updatedReplicas=1), False, "rollout resume statefulset web"),
    ({"updateStrategy": {"type": "OnDelete"}}, status(updatedReplicas=1), False, "when they are deleted"),
    ({"replicas": 5}, status(), False, "3 Pods for 5 replicas"),
    ({}, status(updatedReplicas=0, conditions=[{"type": "FailedCreatePod", "status": "True", "message": "quota"}]),
     False, "quota"),
])  # fmt: skip
def test_the_progress_of_a_rollout_is_shown(spec: dict[str, Any], given: dict[str, Any], done: bool, text: str) -> None:
    obj = {**stateful_set(metadata={"generation": 2}, **spec), "status": given}
    found = progress_of(parsed(obj))
    assert found.done is done
    assert text in found.text
