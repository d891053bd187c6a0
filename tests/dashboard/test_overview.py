"""Totals of Pods by node and revision, updated change by change, equal a full count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dashboard.overview import MAX_REVISIONS, PodTotals, state_of
from app.kube.objects import Pod
from app.kube.store import Change
from app.pods.predicates import Owner
from tests.kit import objects

pytestmark = pytest.mark.behaviour("CLI-60")


def pod(
    node: str = "n1", revision: str = "a", uid: str = "w", phase: str = "Running", *, ready: bool = True, **more: Any
) -> Pod:
    owners = [objects.reference("apps.kruise.io/v1beta1", "CloneSet", "web", uid)]
    labels = {"controller-revision-hash": revision}
    metadata = {"namespace": None, "labels": labels, "ownerReferences": owners, **more}
    return objects.pod("p", node=node, phase=phase, ready=ready, **metadata)


PODS = st.builds(
    pod,
    st.sampled_from(["", "n1", "n2"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["w", "v"]),
    st.sampled_from(["Running", "Pending", "Failed", "Succeeded"]),
    ready=st.booleans(),
)


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), PODS)), max_size=40))
def test_totals_match_the_objects_after_changes(changes: list[tuple[int, Pod | None]]) -> None:
    totals, there = PodTotals(), dict[int, Pod]()
    for key, new in changes:
        old = there.pop(key, None)
        if new is not None:
            there[key] = new
        if old is not None or new is not None:
            totals.observe(Change(old, new))
    fresh = PodTotals()
    for one in there.values():
        fresh.observe(Change(None, one))
    assert totals == fresh
    assert sum(sum(node.pods.model_dump().values()) for node in totals.nodes()) == len(there) == totals.total


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (pod(), "ready"),
        (pod(ready=False), "not_ready"),
        (pod(phase="Pending", ready=False), "pending"),
        (pod(phase="Failed"), "failed"),
        (pod(phase="Succeeded"), "finished"),
        (pod(deletionTimestamp="2026-11-22T12:00:00Z"), "terminating"),
    ],
)
def test_a_pod_is_counted_in_one_state(found: Pod, state: str) -> None:
    assert state_of(found) == state


WEB = Owner("apps.kruise.io/v1alpha1", "CloneSet", "web", "", "w")


def test_the_revision_of_new_pods_comes_first() -> None:
    totals = PodTotals()
    for one in (pod(), pod(), pod(revision="b"), pod(revision="b", ready=False), pod(phase="Failed")):
        totals.observe(Change(None, one))
    found = [(one.name, one.pods, one.ready, one.target) for one in totals.revisions(WEB, "web-b")]
    assert found == [("b", 2, 1, True), ("a", 2, 2, False)]


def test_a_row_names_ten_revisions_and_sums_the_others() -> None:
    totals = PodTotals()
    for number in range(30):
        totals.observe(Change(None, pod(revision=f"forged-{number:02}", ready=number % 2 == 0)))
    totals.observe(Change(None, pod(revision="b", ready=False)))
    for _ in range(2):
        totals.observe(Change(None, pod(revision="a")))
    found = totals.revisions(WEB, "web-b")
    assert [(one.name, one.pods, one.ready) for one in found[:3]] == [("b", 1, 0), ("a", 2, 2), ("forged-00", 1, 1)]
    assert [(one.name, one.pods, one.ready) for one in found[MAX_REVISIONS:]] == [("22 others", 22, 11)]
