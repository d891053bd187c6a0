"""Reviews of our own kinds: objects that were stored without validation can be read, and oversized objects are refused
at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.admission.running import MAX_STORED_BYTES, MAX_STORED_VALUES, prepared, stored_form
from app.api.kind import Version
from app.api.names import CONVERSION_DATA
from app.kube.admission import Denied, GroupVersionKind, GroupVersionResource, Operation, Review
from app.kube.jsonvalues import nested_deeper
from tests.admission.requests import review_about
from tests.fuzz.objects import nested
from tests.fuzz.service import ALL_GATES, Service, standalone_service
from tests.kit.objects import workload_spec

KIND = GroupVersionKind("apps.kruise.io", "v1beta1", "CloneSet")
RESOURCE = GroupVersionResource("apps.kruise.io", "v1beta1", "clonesets")


def review(obj: Any, old: Any = None, operation: Operation = Operation.UPDATE, kind: GroupVersionKind = KIND) -> Review:
    return Review("u", operation, kind, RESOURCE, object=obj, old_object=old)


@pytest.mark.behaviour("MGR-45")
def test_mistyped_fields_in_a_stored_object_count_as_unset() -> None:
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
@pytest.mark.parametrize("kind", [("apps.kruise.io", "v9", "CloneSet"), ("apps", "v1", "Deployment"), ("", "", "")])
def test_a_review_whose_kind_and_resource_differ_is_refused(kind: tuple[str, str, str]) -> None:
    """Otherwise its object would reach the handler unprepared, and the handler would fail."""
    refused = prepared(review({"spec": 7}, {"spec": 7}, kind=GroupVersionKind(*kind)), 100)
    assert refused == Denied("request.kind: is not a version of CloneSet, the kind of request.resource", code=400)


@pytest.mark.behaviour("MGR-45")
def test_a_stored_object_is_read_up_to_the_maximum_depth() -> None:
    found = prepared(review({}, {"metadata": {}, "spec": {"template": nested(200)}}), 100)
    assert isinstance(found, Review)
    assert found.old_object is not None
    assert not nested_deeper(found.old_object)


@pytest.mark.behaviour("MGR-45")
def test_nulls_are_dropped_as_by_an_api_server() -> None:
    given = {"metadata": {}, "spec": {"replicas": None, "minReadySeconds": "x", "template": {"spec": None}}}
    found = prepared(review(given), 100)
    assert isinstance(found, Review)
    assert found.object == {"metadata": {}, "spec": {"minReadySeconds": "x", "template": {"spec": None}}}


@pytest.mark.behaviour("MGR-45")
def test_a_stored_object_without_metadata_is_a_bad_request() -> None:
    found = prepared(review({}, {"metadata": {"labels": 5}}), 100)
    assert isinstance(found, Denied)
    assert (found.code, found.message.partition(":")[0]) == (400, "request.oldObject.metadata.labels")


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize("operation", list(Operation))
def test_oversized_objects_are_refused_before_validation(operation: Operation) -> None:
    large = {"spec": {"note": "x" * MAX_STORED_BYTES}}
    found = prepared(review(large, operation=operation), MAX_STORED_BYTES + 100)
    if operation in (Operation.CREATE, Operation.UPDATE):
        assert isinstance(found, Denied)
        assert found.message.endswith(f"the limit is {MAX_STORED_BYTES}: make it smaller")
    else:
        assert isinstance(found, Review)
    # The large object may be the stored one, or belong to a foreign kind.
    small = review({"spec": {}}, {"spec": large}, operation)
    assert prepared(small, MAX_STORED_BYTES + 100) is small
    resource = GroupVersionResource("example.com", "v1", "widgets")
    foreign = Review("u", operation, GroupVersionKind("example.com", "v1", "Widget"), resource, object=large)
    assert prepared(foreign, MAX_STORED_BYTES + 100) is foreign


@pytest.mark.behaviour("MGR-45")
def test_objects_with_too_many_values_are_refused_unless_they_are_stored() -> None:
    """Fifteen objects of half a million empty lists exhausted the memory of every process that caches them."""
    dense = {"spec": {"note": [[]] * MAX_STORED_VALUES}}
    size = 3 * MAX_STORED_VALUES
    for operation, old in ((Operation.CREATE, None), (Operation.UPDATE, {"spec": {}})):
        found = prepared(review(dense, old, operation), size)
        assert isinstance(found, Denied)
        assert found.message == f"request.object: has more than {MAX_STORED_VALUES} values: make it smaller"
    changed = review(dense, {"spec": {"note": [[]] * (MAX_STORED_VALUES + 1)}}, Operation.UPDATE)
    assert prepared(changed, 2 * size) is changed
    fewer = review({"spec": {"note": ["x"] * (MAX_STORED_VALUES - 10)}})
    assert prepared(fewer, size) is fewer


# --- Conversion trusts conversion notes; the restored objects are still validated.

ALPHA = GroupVersionKind("apps.kruise.io", "v1alpha1", "CloneSet")


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let conversion restore the values in a note without checking them."""

    def read(text: str, version: Version) -> Any:
        note = json.loads(text)
        return note["changes"] if note["version"] == version.name else []

    monkeypatch.setattr("app.api.conversion.read_note", read)
    monkeypatch.setattr("app.api.conversion.allowed", lambda groups, version: groups)
    monkeypatch.setattr("app.api.conversion._is_faithful", lambda *_: True)


def clone_set(**change: Any) -> dict[str, Any]:
    note = json.dumps({"version": "v1beta1", "changes": [[change]]}) if change else ""
    annotations = {"annotations": {CONVERSION_DATA: note}} if note else {}
    metadata = {"name": "web", **annotations}
    return {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": metadata, "spec": workload_spec()}


async def answer(path: str, operation: str, obj: Any, old: Any = None) -> dict[str, Any]:
    fields = {"namespace": "default", "name": "web", "userInfo": {"username": "tenant"}, "oldObject": old}
    service = Service(await standalone_service(gates=ALL_GATES))
    found = await service.respond(path, review_about(ALPHA, "clonesets", operation, obj, **fields))
    assert (service._app.decisions[-1].outcome == "denied") is not found["allowed"]
    return found


@pytest.mark.usefixtures("believed")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": ["spec", "replicas"], "shown": 1, "value": "not a number"}, "spec.replicas"),
        ({"path": ["spec", "replicas"], "shown": 1, "value": -1}, "stored as v1beta1: spec.replicas"),
        ({"path": ["spec", "template", "spec", "containers"], "shown": [], "value": []}, None),
    ],
    ids=["type", "rule", "does not apply"],
)
async def test_the_form_to_be_stored_is_validated(change: dict[str, Any], message: str | None) -> None:
    found = await answer("/validate-apps-kruise-io-cloneset", "CREATE", clone_set(**change))
    assert found["allowed"] is (message is None), found
    assert (message or "") in found.get("status", {}).get("message", "")


@pytest.mark.usefixtures("believed")
async def test_a_note_alone_does_not_change_a_stored_spec() -> None:
    change = {"path": ["spec", "replicas"], "shown": 1, "value": 2}
    found = await answer("/validate-apps-kruise-io-cloneset", "UPDATE", clone_set(**change), clone_set())
    assert not found["allowed"]
    assert found["status"]["message"].endswith("keep it, or update the object as apps.kruise.io/v1beta1")


@pytest.mark.usefixtures("believed")
async def test_deletion_protection_reads_the_labels_that_are_stored() -> None:
    label = "policy.kruise.io/delete-protection"
    change = {"path": ["metadata", "labels"], "value": {label: "Always"}}
    found = await answer("/validate-apps-kruise-io-cloneset", "DELETE", None, clone_set(**change))
    assert not found["allowed"]
    assert label in found["status"]["message"]


@pytest.mark.behaviour("MGR-45", "MGR-151")
async def test_an_object_too_deep_to_convert_is_refused_unless_it_is_being_deleted() -> None:
    deep = clone_set()
    deep["spec"]["template"] = nested(5000)
    refused = stored_form(review(deep, clone_set(), kind=ALPHA))
    assert isinstance(refused, Denied)
    assert refused.message.startswith("spec.template")
    leaving = {**clone_set(), "metadata": {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert stored_form(review(deep, leaving, kind=ALPHA)) is None
