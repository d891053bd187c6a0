from __future__ import annotations

import pytest

from app.kube.objects import ObjectMeta
from app.pods.predicates import adoption_patch, controller_reference, release_patch, transfer_patch


@pytest.mark.behaviour("PM-107", "PM-109", "PM-112")
def test_owner_patches_change_one_reference_of_one_object() -> None:
    metadata = ObjectMeta("x", uid="u1")
    reference = controller_reference("apps.kruise.io/v1beta1", "CloneSet", "web", "me")
    assert adoption_patch(metadata, reference)["metadata"] == {"uid": "u1", "ownerReferences": [reference]}
    gone = {"$patch": "delete", "uid": "me"}
    assert release_patch(metadata, "me")["metadata"] == {"uid": "u1", "ownerReferences": [gone]}
    assert transfer_patch(metadata, "me", reference)["metadata"]["ownerReferences"] == [reference, gone]
