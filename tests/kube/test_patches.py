import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.admission import PatchOperation
from app.kube.patches import MAX_DEPTH, PatchError, apply, diff, escape, merge_patch, pointer, segments, strategic_merge
from app.sandbox.apiserver.schemas import kind_field

keys = st.text(alphabet="ab/~é ", max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(alphabet="xy~/", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def as_text(document: object) -> str:
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize(
    ("key", "segment"), [("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("/~", "~1~0"), ("", "")]
)
def test_a_pointer_escapes_tilde_and_slash(key: str, segment: str) -> None:
    assert escape(key) == segment
    assert segments(f"/{segment}") == [key]


@given(st.lists(keys, min_size=1))
def test_a_pointer_splits_into_its_keys(names: list[str]) -> None:
    assert segments(pointer(*names)) == names


def test_a_pointer_may_contain_list_indexes() -> None:
    assert pointer("spec", "containers", 0, "name") == "/spec/containers/0/name"


def test_a_pointer_without_leading_slash_is_refused() -> None:
    with pytest.raises(PatchError, match="does not start with"):
        segments("spec/x")


def test_a_long_key_is_not_repeated_for_each_of_the_values_below_it() -> None:
    old, new = ({"x" * 100_000: {f"a{number}": value for number in range(200)}} for value in (1, 2))
    assert diff(old, json.loads(json.dumps(old))) == []
    with pytest.raises(PatchError, match="the paths of the changes have more than 16777216 characters"):
        diff(old, new)


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        # The examples of RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7386(target: object, patch: object, merged: object) -> None:
    before = as_text([target, patch])
    assert merge_patch(target, patch) == merged
    assert as_text([target, patch]) == before


def test_an_endlessly_nested_merge_patch_is_refused() -> None:
    patch: object = 1
    for _ in range(MAX_DEPTH + 2):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="deeper than"):
        merge_patch({}, patch)


@given(values, values)
def test_the_difference_transforms_one_document_into_the_other(old: object, new: object) -> None:
    assert as_text(apply(diff(old, new), old)) == as_text(new)


@given(values)
def test_equal_documents_have_no_difference(document: object) -> None:
    assert diff(document, json.loads(json.dumps(document))) == []


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [("replace", "/b")]),
        ({"a": 1}, {"a": 1, "b/c": {"d": 1}}, [("add", "/b~1c")]),
        ({"a": 1, "b": 2}, {"b": 2}, [("remove", "/a")]),
        ([1, 2, 3], [1, 3], [("remove", "/1")]),
        ([1, 3], [1, 2, 3], [("add", "/1")]),
        ([{"n": 1, "x": 1}, {"n": 2}], [{"n": 1, "x": 2}, {"n": 2}], [("replace", "/0/x")]),
        ([1, 2, 3, 4], [1], [("remove", "/3"), ("remove", "/2"), ("remove", "/1")]),
        ({"a": True}, {"a": 1}, [("replace", "/a")]),
        ({"a": None}, {}, [("remove", "/a")]),
        ({"a": {}}, {"a": []}, [("replace", "/a")]),
    ],
)
def test_a_difference_is_minimal(old: object, new: object, paths: list[tuple[str, str]]) -> None:
    assert [(operation.op, operation.path) for operation in diff(old, new)] == paths


def test_a_difference_names_its_rule_and_starts_in_the_right_column() -> None:
    assert diff({}, {"a": 1}, path="/spec", rule="SS-5") == [PatchOperation("add", "/spec/a", 1, "SS-5")]


def test_applying_a_patch_shares_and_modifies_nothing() -> None:
    added = {"x": []}
    document = {"a": 1}
    result = apply([PatchOperation("add", "/b", added)], document)
    result["b"]["x"].append(1)
    assert (added, document) == ({"x": []}, {"a": 1})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "nonsense", "path": "/a"},
        {"op": "replace", "path": "no-slash", "value": 1},
        {"op": "add", "path": "/a"},
    ],
)
def test_an_inapplicable_patch_is_refused(operation: dict[str, object]) -> None:
    with pytest.raises(PatchError):
        apply([operation], {"a": {}})


def test_endlessly_nested_documents_are_refused() -> None:
    old: list[object] = []
    new: list[object] = []
    for _ in range(3000):
        old, new = [old, 1], [new, 2]
    with pytest.raises(PatchError, match="too deep"):
        diff(old, new)


# ---- strategic merge patches


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


A, B = ({"name": name, "image": f"{name}:1"} for name in "ab")


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (containers({**A, "tty": True}, B), containers({**A, "$patch": "replace"}), containers(A, B)),
        (
            containers(A),
            containers({**B, "env": [{"name": "X", "$patch": "delete"}, {"name": "Y"}]}),
            containers({**B, "env": [{"name": "Y"}]}, A),
        ),
        (
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"], "finalizers": ["x/c"]}},
            {"metadata": {"finalizers": ["x/c", "x/b"]}},
        ),
    ],
    ids=["replaced item", "deletion in a new item", "deleted and added text"],
)
def test_a_strategic_merge_follows_the_types(target: Any, patch: Any, expected: Any) -> None:
    """tests/conformance/cases/patching.py has what a real API server answers to the other directives."""
    assert strategic_merge(target, patch, kind_field("v1", "Pod")) == expected


def test_neither_document_is_modified() -> None:
    target, patch = containers(A), containers({"name": "a", "image": "a:2"})
    strategic_merge(target, patch, kind_field("v1", "Pod"))
    assert (target, patch) == (containers(A), containers({"name": "a", "image": "a:2"}))
