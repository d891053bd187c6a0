"""JSON merge patches of annotations, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.injection.metadata import NotJsonError, merged
from app.kube.patches import merge_patch


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
        # Untouched parts keep the spelling of numbers and the order of keys.
        ('{"n":1.50e2, "o":{"z":1,"a":2}}', '{"b":true}', '{"b":true,"n":1.50e2,"o":{"z":1,"a":2}}'),
        # As Go's encoder writes it.
        ('{"a":"<&>\u2028"}', '{"é":"<"}', '{"a":"\\u003c\\u0026\\u003e\\u2028","é":"\\u003c"}'),
        ('{"a": "two  words\\" "}', '{"b":1}', '{"a":"two  words\\" ","b":1}'),
        ('{"a":1,"a":2}', '{"b":1}', '{"a":2,"b":1}'),
        ('{"a":' + "9" * 9000 + "}", '{"b":{"c":1}}', '{"a":' + "9" * 9000 + ',"b":{"c":1}}'),
        ("{ }", ' { "b" : { } } ', '{"b":{}}'),
    ],
)
def test_merged_json_matches_openkruise_to_the_byte(current: str, patch_text: str, expected: str) -> None:
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
