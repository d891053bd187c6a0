"""What is written on one Pod is true of the version that was seen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.api import names
from app.kube.objects import ObjectMeta, Pod, PodSpec
from app.workloads.cloneset.plan.settings import Settings
from app.workloads.engine.refresh import PodRefresh, refresh_pod

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
def test_a_step_of_the_lifecycle_insists_on_the_version_that_was_seen() -> None:
    found = refreshed("Updated").patch
    assert found is not None
    assert (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) == ("u1", "7")


@pytest.mark.parametrize(("annotations", "completes"), [({}, False), ({names.IN_PLACE_UPDATE_STATE: "{}"}, True)])
def test_only_an_update_in_place_is_completed(annotations: dict[str, str], completes: bool) -> None:
    assert refreshed("Updated", **annotations).completes is completes
