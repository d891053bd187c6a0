"""State of a workload between reconciles."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.cloneset.plan.settings import Settings
from app.kube.resources import ObjectKey
from app.workloads.pods import pod_facts
from app.workloads.state import WorkloadState
from tests.kit import objects


@pytest.mark.behaviour("PM-10")
def test_missing_revisions_are_remembered_while_a_pod_names_them() -> None:
    """Users may label a Pod with any number of revisions, one after another."""
    state: WorkloadState[Any] = WorkloadState("uid", ObjectKey("ns", "web"))

    def missing(*hashes: str) -> list[str]:
        labels = ({"controller-revision-hash": f"web-{one}"} for one in hashes)
        return state.missing_revisions([pod_facts(objects.pod(labels=one), Settings()) for one in labels], "", ())

    assert missing("a", "b") == ["web-a", "web-b"]
    state.unrecorded.update(("web-a", "web-b"))
    assert missing("a", "b") == []
    assert missing("a") == []
    assert state.unrecorded == {"web-a"}
    assert missing("a", "b") == ["web-b"]
