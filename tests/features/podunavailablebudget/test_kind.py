"""Conversion of budgets between versions, without loss."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.conversion import convert
from app.features.podunavailablebudget.kind import (
    DEFAULT_OPERATIONS,
    ProtectedOperation,
    canonical_v1alpha1,
    protected_operations,
    protected_total,
)
from tests.features.podunavailablebudget.writing import ALPHA, BETA, Json, budget

OPERATIONS = "kruise.io/pub-protect-operations"
TOTAL = "pub.kruise.io/protect-total-replicas"
NOTES = "kruise.io/conversion-data"
IGNORED = {"matchLabels": {"force-delete": "yes"}}


@pytest.mark.behaviour("PUB-1", "PUB-120")
def test_v1alpha1_annotations_become_fields() -> None:
    stored = convert(budget(version=ALPHA, annotations={OPERATIONS: " DELETE, EVICT,,", TOTAL: "7", "mine": "x"}), BETA)
    assert stored["spec"]["protectOperations"] == ["DELETE", "EVICT"]
    assert stored["spec"]["protectTotalReplicas"] == 7
    assert set(stored["metadata"]["annotations"]) == {"mine", NOTES}
    # A canonical annotation needs no conversion note.
    assert "annotations" not in convert(budget(version=ALPHA, annotations={OPERATIONS: "DELETE"}), BETA)["metadata"]


@pytest.mark.behaviour("PUB-2")
def test_fields_become_v1alpha1_annotations() -> None:
    shown = convert(budget(protectOperations=["UPDATE", "RESIZE"], protectTotalReplicas=3), ALPHA)
    assert shown["spec"] == budget()["spec"]
    assert shown["metadata"]["annotations"] == {OPERATIONS: "UPDATE,RESIZE", TOTAL: "3"}
    assert "annotations" not in convert(budget(), ALPHA)["metadata"]


@pytest.mark.behaviour("PUB-120")
def test_fields_that_v1alpha1_lacks_survive_an_update_through_it() -> None:
    stored = budget(ignoredPodSelector=IGNORED, protectOperations=["DELETE"])
    shown = convert(stored, ALPHA)
    assert "ignoredPodSelector" not in shown["spec"]
    shown["spec"]["maxUnavailable"] = 5
    shown["metadata"]["annotations"][OPERATIONS] = "EVICT"
    back = convert(shown, BETA)
    assert back["spec"]["ignoredPodSelector"] == IGNORED
    assert back["spec"]["maxUnavailable"] == 5
    assert back["spec"]["protectOperations"] == ["EVICT"]


@pytest.mark.behaviour("PUB-120")
@pytest.mark.parametrize(
    "annotations",
    [
        {OPERATIONS: "DELETE,FLY"},
        {OPERATIONS: ","},
        {TOTAL: "many"},
        {TOTAL: "99999999999"},
        {TOTAL: "0"},
        {TOTAL: "-1"},
    ],
)
def test_an_unusable_annotation_survives_conversion(annotations: Json) -> None:
    written = budget(version=ALPHA, annotations=annotations)
    stored = convert(written, BETA)
    assert stored["metadata"]["annotations"] == annotations
    assert stored["spec"] == written["spec"]
    assert convert(stored, ALPHA) == written


@pytest.mark.behaviour("PUB-3")
@pytest.mark.parametrize(
    ("field", "annotation", "expected"),
    [
        (None, None, DEFAULT_OPERATIONS),
        ([], None, DEFAULT_OPERATIONS),
        (["RESIZE"], "DELETE", (ProtectedOperation.RESIZE,)),
        ([], "DELETE, EVICT", (ProtectedOperation.DELETE, ProtectedOperation.EVICT)),
        (None, "FLY", DEFAULT_OPERATIONS),
        (None, "UPDATE,FLY", (ProtectedOperation.UPDATE,)),
    ],
)
def test_a_stored_budget_without_the_field_uses_the_annotation(
    field: list[str] | None, annotation: str | None, expected: tuple[ProtectedOperation, ...]
) -> None:
    annotations = {} if annotation is None else {OPERATIONS: annotation}
    assert protected_operations(field, annotations) == expected


@pytest.mark.behaviour("PUB-3")
def test_the_total_is_read_from_the_annotation_if_the_field_is_unset() -> None:
    assert protected_total(4, {TOTAL: "9"}) == 4
    assert protected_total(None, {TOTAL: " 9 "}) == 9
    assert protected_total(None, {TOTAL: "0"}) is None
    assert protected_total(None, {TOTAL: "x"}) is None
    assert protected_total(None, {}) is None


def test_v1alpha1_always_shows_the_observed_generation() -> None:
    stored = {**budget(), "status": {"unavailableAllowed": 1}}
    assert convert(stored, ALPHA)["status"]["observedGeneration"] == 0
    assert "observedGeneration" not in convert(convert(stored, ALPHA), BETA)["status"]


_annotation_values = st.sampled_from(["", "DELETE", "DELETE,UPDATE", " EVICT ,", "FLY", "7", "07", "0", "x"])
_annotations = st.none() | st.dictionaries(
    st.sampled_from([OPERATIONS, TOTAL, "mine"]), _annotation_values, min_size=1, max_size=3
)
_operations = st.lists(st.sampled_from(["DELETE", "UPDATE", "EVICT", "RESIZE"]), max_size=3)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "protectOperations": _operations,
        "protectTotalReplicas": st.integers(1, 9),
        "ignoredPodSelector": st.sampled_from([{}, IGNORED]),
        "minAvailable": st.sampled_from([0, "10%"]),
    },
)
_statuses = st.none() | st.fixed_dictionaries(
    {"unavailableAllowed": st.integers(0, 3)},
    optional={
        "observedGeneration": st.integers(0, 3),
        "disruptedPods": st.dictionaries(st.sampled_from(["p-1", "p-2"]), st.just("2026-01-01T00:00:00Z")),
    },
)


@pytest.mark.behaviour("PUB-120")
@given(annotations=_annotations, spec=_specs, status=_statuses)
def test_v1beta1_objects_round_trip_through_v1alpha1(annotations: Json | None, spec: Json, status: Json | None) -> None:
    stored = budget(annotations=annotations, **spec)
    if status is not None:
        stored["status"] = status
    assert convert(convert(copy.deepcopy(stored), ALPHA), BETA) == stored


@pytest.mark.behaviour("PUB-120")
@given(annotations=_annotations, status=_statuses)
def test_v1alpha1_objects_round_trip_through_v1beta1(annotations: Json | None, status: Json | None) -> None:
    given_ = budget(version=ALPHA, annotations=annotations)
    if status is not None:
        given_["status"] = status
    back = convert(convert(copy.deepcopy(given_), BETA), ALPHA)
    assert back == canonical_v1alpha1(copy.deepcopy(given_))
