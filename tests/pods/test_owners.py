from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.kube.objects import ObjectMeta, OwnerReference
from app.pods.owners import (
    Ownership,
    adoption_patch,
    controller_reference,
    ownership,
    release_patch,
    transfer_patch,
)

OURS = (OwnerReference("apps.kruise.io/v1alpha1", "CloneSet", "web", "me", controller=True),)
OTHERS = (OwnerReference("apps/v1", "ReplicaSet", "web", "other", controller=True),)
MEMBER = (OwnerReference("v1", "X", "x", "other"),)
GOING = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("owners", "matches", "deleting", "going", "expected"),
    [
        pytest.param(OTHERS, True, False, None, Ownership.IGNORED, id="somebody else's"),
        pytest.param(OURS, True, False, None, Ownership.CLAIMED, id="ours"),
        pytest.param(OURS, True, True, None, Ownership.CLAIMED, id="ours while we go"),
        pytest.param(OURS, False, False, None, Ownership.RELEASE, id="ours, no match"),
        pytest.param(OURS, False, True, None, Ownership.IGNORED, id="ours, no match, while we go"),
        pytest.param((), True, False, None, Ownership.ADOPT, id="nobody's"),
        pytest.param(MEMBER, True, False, None, Ownership.ADOPT, id="without controller"),
        pytest.param((), True, True, None, Ownership.IGNORED, id="nobody's while we go"),
        pytest.param((), True, False, GOING, Ownership.IGNORED, id="nobody's and going"),
        pytest.param((), False, False, None, Ownership.IGNORED, id="nobody's, no match"),
    ],
)
@pytest.mark.behaviour("PM-105", "PM-106", "PM-107", "PM-108", "PM-109", "PM-110", "PM-112")
def test_whose_an_object_is(owners: Any, matches: bool, deleting: bool, going: Any, expected: Ownership) -> None:
    metadata = ObjectMeta("x", owner_references=owners, deletion_timestamp=going)
    assert ownership(metadata, "me", matches=matches, owner_deleting=deleting) is expected


@pytest.mark.behaviour("PM-107", "PM-109")
def test_patches_of_owners_touch_one_reference_of_one_object() -> None:
    metadata = ObjectMeta("x", uid="u1")
    reference = controller_reference("apps.kruise.io/v1beta1", "CloneSet", "web", "me")
    assert adoption_patch(metadata, reference)["metadata"] == {"uid": "u1", "ownerReferences": [reference]}
    gone = {"$patch": "delete", "uid": "me"}
    assert release_patch(metadata, "me")["metadata"] == {"uid": "u1", "ownerReferences": [gone]}
    assert transfer_patch(metadata, "me", reference)["metadata"]["ownerReferences"] == [reference, gone]
