"""The AdmissionReview envelope: reading, rejecting and answering it."""

import base64
import json
import tracemalloc

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.admission.requests import too_many_values
from app.admission.review import (
    MAX_PATCH_BYTES,
    Refusal,
    answer,
    read_review,
    refusal_answer,
)
from app.kube.admission import (
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Patched,
    PatchOperation,
    Review,
)
from tests.admission.requests import FIXTURES, recorded, review_of
from tests.kube.hostile import chain
from tests.nightly import examples

UID = recorded("pod-create")["request"]["uid"]


def refusal(body: bytes) -> Refusal:
    found = read_review(body)
    assert isinstance(found, Refusal)
    return found


def read(body: bytes) -> Review:
    found = read_review(body)
    assert isinstance(found, Review)
    return found


def test_every_field_of_a_recorded_creation_is_read() -> None:
    review = read(review_of("pod-create"))
    assert review.uid == UID
    assert review.operation is Operation.CREATE
    assert review.kind == GroupVersionKind("", "v1", "Pod")
    assert review.resource == GroupVersionResource("", "v1", "pods")
    assert (review.namespace, review.name, review.subresource, review.dry_run) == ("shop", "web-0", "", False)
    assert review.username == "admin"
    assert "system:masters" in review.groups
    assert review.object["spec"]["containers"][0]["name"] == "main"
    assert review.old_object is None
    assert review.options["kind"] == "CreateOptions"


@pytest.mark.parametrize("name", sorted(file.stem for file in FIXTURES.glob("*.json") if "conversion" not in file.stem))
def test_all_reviews_of_a_real_api_server_are_read(name: str) -> None:
    review = read(review_of(name))
    sent = recorded(name)["request"]
    for obj in (sent["object"], sent["oldObject"]):
        if obj is not None and sent["kind"]["kind"] != "Pod":
            obj["metadata"].pop("managedFields", None)
    assert review.object == sent["object"]
    assert review.old_object == sent["oldObject"]
    assert review.subresource == sent.get("subResource", "")
    assert review.dry_run is ("dry-run" in name)


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize(("given", "dry"), [(b"null", False), (b"false", False), (b"true", True)])
def test_a_null_dry_run_means_false(given: bytes, dry: bool) -> None:
    assert read(review_of(dryRun="HERE").replace(b'"HERE"', given)).dry_run is dry


def test_missing_options_are_tolerated() -> None:
    assert read(review_of(options=None)).options == {}


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        (b"", "not_json", "request body is empty: expected an AdmissionReview"),
        (b"  \n", "not_json", "request body is empty: expected an AdmissionReview"),
        (b"[]", "not_a_review", "expected an AdmissionReview object, got a list"),
        (b"null", "not_a_review", "expected an AdmissionReview object, got null"),
        (b"17", "not_a_review", "expected an AdmissionReview object, got a number"),
        (b"{}", "not_a_review", "kind: expected AdmissionReview, got nothing"),
        (b'{"kind": "Pod"}', "not_a_review", 'kind: expected AdmissionReview, got "Pod"'),
        (b'{"kind": ["AdmissionReview"]}', "not_a_review", "kind: expected AdmissionReview, got a list"),
        (
            b'{"kind": "AdmissionReview"}',
            "unsupported_version",
            "apiVersion: expected admission.k8s.io/v1, got nothing",
        ),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
            "not_a_review",
            "request: expected an object, got null",
        ),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": []}',
            "not_a_review",
            "request: expected an object, got a list",
        ),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {}}',
            "missing_uid",
            "request.uid: is required",
        ),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": 7}}',
            "wrong_field",
            "request.uid: expected a string, got a number",
        ),
        (b"\xff\xfe{", "not_utf8", "request body: byte 0xff at offset 0 is not UTF-8"),
    ],
)
def test_a_document_that_is_not_a_review_is_refused_with_its_type(body: bytes, reason: str, message: str) -> None:
    found = refusal(body)
    assert (found.reason, found.message, found.uid) == (reason, message, "")
    status, payload = refusal_answer(found)
    assert status == 400
    assert json.loads(payload)["response"]["status"] == {"metadata": {}, "message": message, "code": 400}


@pytest.mark.parametrize(
    ("body", "line"), [(b"{", 1), (b"apiVersion: v1\nkind: Pod", 1), (b'{"kind":\n"AdmissionReview"\nx}', 3)]
)
def test_invalid_json_is_refused_with_the_position(body: bytes, line: int) -> None:
    found = refusal(body)
    assert found.reason == "not_json"
    assert found.message.startswith("request body is not JSON: ")
    assert f"(line {line}, column " in found.message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operation": None}, "request.operation: expected one of CREATE, UPDATE, DELETE, CONNECT, got nothing"),
        ({"operation": "PATCH"}, 'request.operation: expected one of CREATE, UPDATE, DELETE, CONNECT, got "PATCH"'),
        ({"operation": {"a": 1}}, "request.operation: expected one of CREATE, UPDATE, DELETE, CONNECT, got an object"),
        ({"kind": None}, "request.kind: expected an object, got null"),
        ({"kind": "Pod"}, "request.kind: expected an object, got a string"),
        ({"kind": {"group": 1}}, "request.kind.group: expected a string, got a number"),
        ({"resource": []}, "request.resource: expected an object, got a list"),
        ({"resource": {"version": {}}}, "request.resource.version: expected a string, got an object"),
        ({"name": 5}, "request.name: expected a string, got a number"),
        ({"namespace": ["a"]}, "request.namespace: expected a string, got a list"),
        ({"subResource": True}, "request.subResource: expected a string, got a boolean"),
        ({"dryRun": "yes"}, "request.dryRun: expected a boolean, got a string"),
        ({"dryRun": ""}, "request.dryRun: expected a boolean, got a string"),
        ({"dryRun": 0}, "request.dryRun: expected a boolean, got a number"),
        ({"dryRun": []}, "request.dryRun: expected a boolean, got a list"),
        ({"userInfo": "me"}, "request.userInfo: expected an object, got a string"),
        ({"userInfo": {"username": {}}}, "request.userInfo.username: expected a string, got an object"),
        ({"userInfo": {"groups": "a"}}, "request.userInfo.groups: expected a list, got a string"),
        ({"userInfo": {"groups": ["a", 1]}}, "request.userInfo.groups[1]: expected a string, got a number"),
        ({"object": "pod"}, "request.object: expected an object, got a string"),
        ({"oldObject": 1.5}, "request.oldObject: expected an object, got a number"),
        ({"options": []}, "request.options: expected an object, got a list"),
    ],
)
def test_a_mistyped_field_is_named_and_answered_under_the_uid(changed: dict, message: str) -> None:
    found = refusal(review_of(**changed))
    assert (found.reason, found.message, found.uid) == ("wrong_field", message, UID)
    status, payload = refusal_answer(found)
    # The API server shows the message only with HTTP 200.
    assert status == 200
    document = json.loads(payload)
    assert (document["kind"], document["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert document["response"] == {
        "uid": UID,
        "allowed": False,
        "status": {"metadata": {}, "message": message, "code": 400},
    }


@pytest.mark.behaviour("MGR-45")
def test_v1beta1_is_answered_with_a_clear_400_in_its_own_version() -> None:
    document = recorded("pod-create") | {"apiVersion": "admission.k8s.io/v1beta1"}
    status, payload = refusal_answer(refusal(orjson.dumps(document)))
    shown = json.loads(payload)
    assert status == 200
    assert shown["apiVersion"] == "admission.k8s.io/v1beta1"
    assert shown["response"]["uid"] == UID
    assert shown["response"]["status"]["code"] == 400
    assert "admissionReviewVersions: [v1]" in shown["response"]["status"]["message"]


def test_invalid_utf8_is_reported_with_its_path() -> None:
    body = review_of().replace(b'"stable"', b'"st\xffble"')
    found = refusal(body)
    assert found.reason == "not_utf8"
    assert found.uid == UID
    offset = body.index(b"\xff")
    assert found.message == f"request.object.metadata.labels.track: byte 0xff at offset {offset} is not UTF-8"


@pytest.mark.parametrize("levels", [300, 1_000, 1_100, 9_000, 100_000])
@pytest.mark.parametrize("field", ["object", "oldObject"])
def test_deep_managed_fields_do_not_block_validation(levels: int, field: str) -> None:
    body = recorded("sidecarset-create-v1beta1")
    body["request"][field] = {"metadata": {"name": "web", "managedFields": "HERE"}, "spec": {"nodeName": "n"}}
    review = read(orjson.dumps(body).replace(b'"HERE"', b'[{"fieldsV1":' + chain(levels) + b"}]"))
    judged = review.object if field == "object" else review.old_object
    assert judged == {"metadata": {"name": "web"}, "spec": {"nodeName": "n"}}


def test_deep_managed_fields_of_a_pod_are_kept_where_they_can_be_decoded() -> None:
    body = recorded("pod-update")
    body["request"]["object"]["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": "HERE"}]
    for levels in (900, 9_000):
        review = read(orjson.dumps(body).replace(b'"HERE"', chain(levels)))
        assert review.object["metadata"]["managedFields"][0]["manager"] == "kubelet"


@pytest.mark.parametrize(
    ("body", "uid"),
    [
        (review_of().replace(b'"stable"', b'"\\ud800"'), UID),
        (review_of()[:-40], UID),
        (review_of(object={"spec": "HERE"}).replace(b'"HERE"', chain(9_000)), UID),
        (b'{"kind":"AdmissionReview","request":{"uid":"deep","object":' + b"[" * 100_000, "deep"),
    ],
    ids=["lone surrogate", "cut", "deep outside of managedFields", "never closed"],
)
def test_an_unreadable_body_is_answered_under_its_uid(body: bytes, uid: str) -> None:
    found = refusal(body)
    assert (found.reason, found.uid) == ("not_json", uid)
    json.loads(refusal_answer(found)[1])


def test_error_messages_quote_only_a_little_input() -> None:
    assert len(refusal(orjson.dumps({"kind": "x" * 5000})).message) < 200


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PW-35")
def test_an_enormous_patch_is_refused() -> None:
    operations = tuple(PatchOperation("add", f"/spec/{number}", "x" * 1024 * 1024) for number in range(16))
    refused = json.loads(answer("u", Patched(operations)))["response"]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 413)
    assert refused["status"]["message"] == f"request.object: its changes have more than {MAX_PATCH_BYTES} bytes"
    assert json.loads(answer("u", Patched(operations[1:])))["response"]["allowed"]


@pytest.mark.behaviour("MGR-45")
def test_a_patch_is_encoded_as_base64_without_rule_ids() -> None:
    operations = (
        PatchOperation("add", "/metadata/annotations", {"a": "ü"}, "SS-1"),
        PatchOperation("remove", "/spec/volumes/0", rule="SS-2"),
        PatchOperation("replace", "/spec/containers/0", orjson.Fragment(b'{"name":"x"}'), "SS-3"),
    )
    response = json.loads(answer("u-2", Patched(operations, ("careful",))))["response"]
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    assert response["warnings"] == ["careful"]
    assert response["status"] == {"metadata": {}, "code": 200}
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "ü"}},
        {"op": "remove", "path": "/spec/volumes/0"},
        {"op": "replace", "path": "/spec/containers/0", "value": {"name": "x"}},
    ]


@given(uid=st.text(min_size=1), message=st.text(), code=st.integers(400, 599))
def test_any_text_in_an_answer_is_valid_json(uid: str, message: str, code: int) -> None:
    response = json.loads(answer(uid.encode("utf-8", "replace").decode(), Denied(message, code=code)))["response"]
    assert response["status"]["code"] == code


# --- arbitrary input --------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["uid", "kind", "resource", "operation", "name", "namespace", "userInfo", "object", "oldObject", "options"]


def assert_answered(body: bytes) -> None:
    found = read_review(body)
    if isinstance(found, Refusal):
        status, payload = refusal_answer(found)
        document = json.loads(payload)
        assert document["response"]["status"]["message"]
        assert (status == 200) == bool(document["response"]["uid"])


@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer(body: bytes) -> None:
    assert_answered(body)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from([*FIELDS, "dryRun", "subResource"]), JSON, max_size=3))
def test_any_value_in_any_field_gets_an_answer(changed: dict) -> None:
    document = recorded("pod-create")
    document["request"] |= changed
    assert_answered(json.dumps(document).encode())


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=6))
def test_a_damaged_review_gets_an_answer(position: int, damage: bytes) -> None:
    body = review_of()
    position %= len(body)
    assert_answered(body[:position] + damage + body[position + len(damage) :])


def test_paths_are_built_only_for_errors() -> None:
    """Building a path for every item of a long list under a long key took gigabytes."""
    body = b'{"' + b"k" * 100_000 + b'":[' + b"0," * 50_000 + b'"\xff"]}'
    tracemalloc.start()
    refusal = read_review(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith("[50000]: byte 0xff at offset 200006 is not UTF-8")
    assert len(refusal.message) < 500
    assert most < 8 * 1024 * 1024


@pytest.mark.parametrize("item", [b"[0],", b"{},", b'{"a":0},', b"[[[[[[[[0]]]]]]]],"])
def test_a_body_with_too_many_values_is_refused_under_its_uid(item: bytes) -> None:
    head = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","object":{"x":['
    found = refusal(head + item * (6 * 1024 * 1024 // len(item)) + b"0]}}}")
    assert (found.reason, found.code, found.uid) == ("too_many_values", 413, "u")


@pytest.mark.parametrize("text", [b",[{" * 600_000, b'\\",' * 600_000, b"\\\\" * 900_000])
def test_punctuation_in_strings_is_not_counted(text: bytes) -> None:
    assert not too_many_values(b'["' + text + b'",1,2]')


TEXTS = st.text(alphabet='ab\\",[{\n', max_size=12)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda held: st.lists(held, max_size=6) | st.dictionaries(TEXTS, held, max_size=6),
    max_leaves=30,
)


def punctuation(value: object) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(0, len(value) - 1) + sum(map(punctuation, value.values() if isinstance(value, dict) else value))


@given(value=VALUES, rest=st.sampled_from([b"", b'\\"', b'"', b",[{\\", b'\\\\"']))
def test_values_are_counted_regardless_of_string_contents(value: object, rest: bytes) -> None:
    body = b'["' + b"x" * 300_000 + b'",' + orjson.dumps(value) + b"]"
    count = 2 + punctuation(value)
    assert too_many_values(body + rest, count - 1)
    assert not too_many_values(body, count)
