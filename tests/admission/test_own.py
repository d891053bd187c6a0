"""Reviews of our own kinds: what was stored while nobody judged is readable, what is too large is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from app.admission.own import MAX_STORED_BYTES, prepared
from app.api.jsonvalue import nested_deeper
from app.kube.admission import Denied, GroupVersionKind, GroupVersionResource, Operation, Review
from tests.fuzz.objects import nested

KIND = GroupVersionKind("apps.kruise.io", "v1beta1", "CloneSet")
RESOURCE = GroupVersionResource("apps.kruise.io", "v1beta1", "clonesets")


def review(obj: Any, old: Any = None, operation: Operation = Operation.UPDATE, kind: GroupVersionKind = KIND) -> Review:
    return Review("u", operation, kind, RESOURCE, object=obj, old_object=old)


@pytest.mark.behaviour("MGR-45")
def test_fields_of_a_wrong_type_in_a_stored_object_count_as_not_set() -> None:
    old = {
        "metadata": {"name": "web"},
        "spec": {"replicas": "three", "scaleStrategy": {"podsToDelete": ["a", 1]}, "template": {"spec": 5}},
        "status": 7,
        "unknown": {"x": 1},
    }
    found = prepared(review({}, old), 100)
    assert isinstance(found, Review)
    assert found.old_object == {
        "metadata": {"name": "web"},
        "spec": {"scaleStrategy": {"podsToDelete": ["a"]}, "template": {"spec": 5}},
        "unknown": {"x": 1},
    }
    right = review({}, {"metadata": {}, "spec": {"replicas": 3}})
    assert prepared(right, 100) is right


@pytest.mark.behaviour("MGR-45")
def test_a_stored_object_is_read_as_deep_as_any_may_be() -> None:
    found = prepared(review({}, {"metadata": {}, "spec": {"template": nested(200)}}), 100)
    assert isinstance(found, Review)
    assert found.old_object is not None
    assert not nested_deeper(found.old_object)


@pytest.mark.behaviour("MGR-45")
def test_nulls_are_dropped_as_an_api_server_drops_them() -> None:
    given = {"metadata": {}, "spec": {"replicas": None, "minReadySeconds": "x", "template": {"spec": None}}}
    found = prepared(review(given), 100)
    assert isinstance(found, Review)
    assert found.object == {"metadata": {}, "spec": {"minReadySeconds": "x", "template": {"spec": None}}}


@pytest.mark.behaviour("MGR-45")
def test_a_stored_object_whose_metadata_is_none_is_a_bad_request() -> None:
    found = prepared(review({}, {"metadata": {"labels": 5}}), 100)
    assert isinstance(found, Denied)
    assert (found.code, found.message.partition(":")[0]) == (400, "request.oldObject.metadata.labels")


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize("operation", list(Operation))
def test_what_is_larger_than_can_be_stored_is_refused_before_it_is_judged(operation: Operation) -> None:
    large = {"spec": {"note": "x" * MAX_STORED_BYTES}}
    found = prepared(review(large, operation=operation), MAX_STORED_BYTES + 100)
    assert isinstance(found, Denied) is (operation in (Operation.CREATE, Operation.UPDATE))
    # It may be the stored object that is large, or somebody else's kind.
    small = review({"spec": {}}, {"spec": large}, operation)
    assert prepared(small, MAX_STORED_BYTES + 100) is small
    foreign = review(large, operation=operation, kind=GroupVersionKind("example.com", "v1", "Widget"))
    assert prepared(foreign, MAX_STORED_BYTES + 100) is foreign
