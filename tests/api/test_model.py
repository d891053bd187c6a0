"""Models keep unknown fields and add nothing."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.api.model import ObjectMeta
from app.features.sidecarset.types import SidecarSet, SidecarSetStatus

SET = {
    "apiVersion": "apps.kruise.io/v1beta1",
    "kind": "SidecarSet",
    "metadata": {"name": "s", "managedFields": [{"manager": "kubectl"}]},
    "spec": {
        "containers": [{"name": "a", "image": "i", "newField": {"x": 1}, "upgradeStrategy": {"later": True}}],
        "future": [1, 2],
    },
}


def test_unknown_fields_come_back_unchanged() -> None:
    assert SidecarSet.model_validate(SET).to_dict() == SET


def test_core_fields_of_a_sidecar_can_be_read() -> None:
    container = SidecarSet.model_validate(SET).spec.all_containers[0]
    assert (container.name, container.image, container.hot, container.keeps_running) == ("a", "i", False, False)
    assert container.core == {"name": "a", "image": "i", "newField": {"x": 1}}


def test_null_counts_as_unset() -> None:
    found = SidecarSet.model_validate({**SET, "spec": {"containers": None, "updateStrategy": None}})
    assert found.spec.all_containers == []
    assert found.spec.update_strategy.partition is None
    assert found.to_dict()["spec"] == {}


@pytest.mark.behaviour("SS-106")
def test_status_counters_are_always_written() -> None:
    assert SidecarSetStatus().to_dict() == {"matchedPods": 0, "updatedPods": 0, "readyPods": 0}
    assert SidecarSet.model_validate(SET).to_dict().get("status") is None


def test_a_wrong_type_is_refused_and_not_coerced() -> None:
    with pytest.raises(ValidationError, match=r"spec\.revisionHistoryLimit"):
        SidecarSet.model_validate({**SET, "spec": {"revisionHistoryLimit": "3"}})


def test_a_parsed_object_is_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ObjectMeta(name="a").name = "b"  # type: ignore[misc]
