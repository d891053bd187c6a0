"""Annotations patched into Pods: policies, merges to the byte, and that a second time changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.injection.metadata import MetadataPatch, NotJsonError, merged, patched_annotations
from app.kube.patches import merge_patch


def patch(policy: str, set_name: str = "s", **annotations: str) -> MetadataPatch:
    return MetadataPatch(set_name, policy, tuple(sorted(annotations.items())))


@pytest.mark.behaviour("SS-53")
@pytest.mark.parametrize(
    ("policy", "present", "expected"),
    [
        ("Retain", {}, {"k": "new"}),
        ("Retain", {"k": ""}, {}),
        ("Retain", {"k": "old"}, {}),
        ("Overwrite", {}, {"k": "new"}),
        ("Overwrite", {"k": "old"}, {"k": "new"}),
        ("Overwrite", {"k": "new"}, {}),
        ("MergePatchJson", {}, {"k": "new"}),
        ("MergePatchJson", {"k": ""}, {"k": "new"}),
        ("Nonsense", {}, {}),
    ],
)
def test_a_patch_policy_decides_about_present_values(
    policy: str, present: dict[str, str], expected: dict[str, str]
) -> None:
    assert patched_annotations(present, [patch(policy, k="new")]) == expected


@pytest.mark.behaviour("SS-53")
def test_patches_of_several_sets_apply_in_order() -> None:
    patches = [
        patch("MergePatchJson", "a", k='{"a":1}'),
        patch("MergePatchJson", "b", k='{"b":2}', l="{}"),
        patch("Retain", "c", k="kept out"),
        patch("Overwrite", "d", l="last"),
    ]
    assert patched_annotations({"other": "x"}, patches) == {"k": '{"a":1,"b":2}', "l": "last"}


@pytest.mark.behaviour("SS-53")
@pytest.mark.parametrize(
    ("current", "patch_text", "expected"),
    [
        ('{"main":2}', '{"shipper":1}', '{"main":2,"shipper":1}'),
        ('{"z":1,"a":{"y":1}}', '{"a":{"x":2}}', '{"a":{"x":2,"y":1},"z":1}'),
        ('{"a":1,"b":2}', '{"a":null}', '{"b":2}'),
        ('{"a":1}', '{"b":{"c":null,"d":1}}', '{"a":1,"b":{"d":1}}'),
        ('{"a":[1,2]}', '{"a":{"b":1}}', '{"a":{"b":1}}'),
        ('{"a":{"b":1}}', '{"a":[null, 1]}', '{"a":[null,1]}'),
        ('["a"]', '{"b":1}', '{"b":1}'),
        ('{"a":1}', '["b", 2]', '["b",2]'),
        ('{"a":1}', "2", "2"),
        ('{"a":1}', "null", "null"),
        # What is not touched keeps its spelling: numbers and the order inside.
        ('{"n":1.50e2, "o":{"z":1,"a":2}}', '{"b":true}', '{"b":true,"n":1.50e2,"o":{"z":1,"a":2}}'),
        # As Go's encoder writes it.
        ('{"a":"<&>\u2028"}', '{"é":"<"}', '{"a":"\\u003c\\u0026\\u003e\\u2028","é":"\\u003c"}'),
        ('{"a": "two  words\\" "}', '{"b":1}', '{"a":"two  words\\" ","b":1}'),
        ('{"a":1,"a":2}', '{"b":1}', '{"a":2,"b":1}'),
        ('{"a":' + "9" * 9000 + "}", '{"b":{"c":1}}', '{"a":' + "9" * 9000 + ',"b":{"c":1}}'),
        ("{ }", ' { "b" : { } } ', '{"b":{}}'),
    ],
)
def test_merges_to_the_byte(current: str, patch_text: str, expected: str) -> None:
    assert merged(current, patch_text) == expected


@pytest.mark.behaviour("SS-53")
@pytest.mark.parametrize(
    ("current", "patch_text", "who"),
    [
        ("{", '{"a":1}', "the Pod's value"),
        ("NaN", '{"a":1}', "the Pod's value"),
        ('{"a":1}', "plain", "the patch"),
        ('{"a":1}', '{"a":1} {}', "the patch"),
        ('{"a":1}', "[" * 100_000, "the patch"),
        ('{"a":1}', '{"a":' * 300 + "1" + "}" * 300, "nested deeper"),
    ],
)
def test_invalid_json_is_refused(current: str, patch_text: str, who: str) -> None:
    with pytest.raises(NotJsonError, match=who):
        merged(current, patch_text)


@pytest.mark.behaviour("D-21")
@pytest.mark.parametrize("text", ['{"x":null}', "plain", '{"b":1, "a":2}', "{"])
def test_a_patch_applied_twice_changes_a_plain_value_once(text: str) -> None:
    first = patched_annotations({}, [patch("MergePatchJson", k=text)])
    assert first == {"k": text}
    assert patched_annotations(first, [patch("MergePatchJson", k=text)]) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def without_nulls(value: Any) -> Any:
    return {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@pytest.mark.behaviour("SS-53")
@given(current=OBJECT.map(without_nulls), change=JSON)
def test_a_merge_follows_rfc_7386(current: Any, change: Any) -> None:
    assert json.loads(merged(json.dumps(current), json.dumps(change))) == merge_patch(current, change)


@pytest.mark.behaviour("D-21", "SS-53")
@given(present=st.none() | OBJECT, changes=st.lists(OBJECT, max_size=3, unique_by=lambda change: tuple(sorted(change))))
def test_compatible_patches_of_several_sets_are_idempotent(present: Any, changes: list[dict[str, Any]]) -> None:
    # Each set speaks of keys of its own: those that differ in a value undo each other, whatever the rule.
    patches = [
        patch("MergePatchJson", f"s{index}", k=json.dumps({f"{key}{index}": value for key, value in change.items()}))
        for index, change in enumerate(changes)
    ]
    before = {} if present is None else {"k": json.dumps(present)}
    after = {**before, **patched_annotations(before, patches)}
    assert patched_annotations(after, patches) == {}
