"""Counts in the status of a StatefulSet."""

from __future__ import annotations

import pytest

from app.features.statefulset.plan.status import base_status
from app.pods.revisions import Revision
from app.workloads.settings import Revisions
from tests.features.statefulset.samples import NEW, NOW, OLD, pod, replicas, settings


def counts(current: str, update: str, *revisions: str, marked: int, begun: set[int]) -> tuple[int, int]:
    """Return currentReplicas and updatedReplicas of Pods at these revisions. ``marked`` is to be deleted."""
    pods = [pod(ordinal, revision, marked=ordinal == marked) for ordinal, revision in enumerate(revisions)]
    found = replicas(settings(len(pods) + 1), pods)
    status = base_status(
        found,
        Revisions(Revision(f"web-{current}", 1, b""), Revision(f"web-{update}", 2, b""), ()),
        generation=1,
        label_selector="",
        now=NOW,
        begun={one.facts for one in found.wanted if one.ordinal in begun},
    )
    return status["currentReplicas"], status["updatedReplicas"]


@pytest.mark.behaviour("AS-84", "AS-92")
def test_pods_whose_update_or_deletion_has_begun_no_longer_count() -> None:
    assert counts(OLD, NEW, OLD, OLD, NEW, NEW, marked=2, begun={1, 2, 3}) == (1, 1)
    assert counts(OLD, NEW, OLD, OLD, OLD, NEW, marked=2, begun={2}) == (2, 1)
    # Of equal revisions, the Pod counts at the update revision until it is gone.
    assert counts(NEW, NEW, NEW, "third", marked=0, begun={0}) == (0, 1)
