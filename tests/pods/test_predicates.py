from __future__ import annotations

from typing import Any

import pytest

from app.kube.objects import ObjectMeta
from app.pods.predicates import (
    adoption_patch,
    controller_reference,
    is_unschedulable,
    ready_since,
    release_patch,
    transfer_patch,
)
from tests.kit import objects


@pytest.mark.behaviour("PM-107", "PM-109", "PM-112")
def test_owner_patches_change_one_reference_of_one_object() -> None:
    metadata = ObjectMeta("x", uid="u1")
    reference = controller_reference("apps.kruise.io/v1beta1", "CloneSet", "web", "me")
    assert adoption_patch(metadata, reference)["metadata"] == {"uid": "u1", "ownerReferences": [reference]}
    gone = {"$patch": "delete", "uid": "me"}
    assert release_patch(metadata, "me")["metadata"] == {"uid": "u1", "ownerReferences": [gone]}
    assert transfer_patch(metadata, "me", reference)["metadata"]["ownerReferences"] == [reference, gone]


@pytest.mark.behaviour("WS-65", "UD-55")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"phase": "Failed"}, False),
        ({"node": "n"}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
        ({"conditions": []}, False),
    ],
    ids=["pending", "ended", "on a node", "terminating", "not tried"],
)
def test_a_pod_is_unschedulable_while_it_waits_for_a_node(change: dict[str, Any], expected: bool) -> None:
    told = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    assert is_unschedulable(objects.pod(**{"phase": "Pending", "conditions": told, **change})) is expected


@pytest.mark.parametrize(("status", "known"), [("True", True), ("False", False), ("Unknown", False)])
def test_only_a_ready_pod_has_been_ready_for_some_time(status: str, known: bool) -> None:
    told = [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    assert (ready_since(objects.pod(conditions=told)) is not None) is known
