"""Documents of any depth, compared with a decoder without a limit."""

import json
import tracemalloc
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.gojson import dumps_go
from app.kube.jsonvalues import (
    MAX_DEPTH,
    UnreadableError,
    hide_depth,
    nested_deeper,
    read,
    shallow_json,
    split_list,
    stored_size,
)
from app.kube.objects import decode_controller_revision, decode_pod
from tests.kube.hostile import chain, deep_managed_fields

texts = st.text(st.sampled_from('ab"\\{}[],: é\n'), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=30,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(values, st.integers(1, 5), st.sampled_from([None, 2]))
def test_deeper_values_are_emptied_and_nothing_else_changes(value, limit, indent):
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    shallow = shallow_json(raw, limit)
    found = json.loads(shallow.data)
    # Empty or flat values just below the limit may stay.
    assert depth_of(found) <= limit + 1
    if depth_of(value) <= limit:
        assert shallow.data is raw
    assert agrees(found, value)


def agrees(found: Any, value: Any) -> bool:
    """Return whether ``found`` is ``value`` with some of its objects and lists emptied."""
    if type(found) is not type(value):
        return False
    if isinstance(value, dict):
        return not found or (found.keys() == value.keys() and all(agrees(found[key], value[key]) for key in value))
    if isinstance(value, list):
        return not found or (len(found) == len(value) and all(map(agrees, found, value)))
    return bool(found == value)


@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[]",:a\\1 '), max_size=60).map(str.encode))
def test_invalid_json_is_left_to_the_decoder(raw):
    shallow_json(raw, 2)
    split_list(raw)


@pytest.mark.parametrize("levels", [90, 300, 1_000, 1_100, 10_000, 100_000])
@pytest.mark.parametrize("kind", ["objects", "lists", "mixed"])
def test_deep_managed_fields_do_not_make_a_pod_unreadable(levels, kind):
    pod = read(decode_pod, deep_managed_fields(levels, kind, spec={"nodeName": "n"}))
    assert (pod.metadata.name, pod.metadata.labels, pod.spec.node_name) == ("deep", {"a": "b"}, "n")


@pytest.mark.parametrize("levels", [1_100, 10_000, 100_000])
def test_depth_outside_managed_fields_is_reported(levels):
    raw = b'{"metadata":{"name":"a"},"data":' + chain(levels) + b"}"
    with pytest.raises(UnreadableError, match=f"nested deeper than {MAX_DEPTH} levels"):
        read(decode_controller_revision, raw)
    with pytest.raises(UnreadableError):
        read(orjson.loads, raw)


def test_keys_that_only_end_like_managed_fields_do_not_count():
    raw = b'{"metadata":{"x\\"managedFields":' + chain(2_000) + b"}}"
    assert shallow_json(raw).lossy
    assert not shallow_json(raw.replace(b'x\\"', b"")).lossy


def test_other_errors_keep_their_reason():
    with pytest.raises(msgspec.ValidationError, match="generation"):
        read(decode_pod, b'{"metadata":{"generation":"x"}}')
    with pytest.raises(orjson.JSONDecodeError):
        read(orjson.loads, b"{")


def test_a_list_is_split_regardless_of_depth():
    deep = deep_managed_fields(5_000)
    raw = b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}, ' + deep + b"]}"
    envelope, items = split_list(raw)
    assert orjson.loads(envelope) == {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []}
    assert items == [b'{"metadata":{"name":"a"}}', deep]


@given(st.lists(st.dictionaries(texts, values, min_size=1, max_size=3)), st.sampled_from([None, 1]))
def test_splitting_finds_every_item(items, indent):
    items = [{"metadata": {"name": str(number)}, **item} for number, item in enumerate(items)]
    raw = json.dumps({"metadata": {"continue": "t"}, "items": items}, indent=indent, ensure_ascii=False).encode()
    envelope, found = split_list(raw)
    assert [json.loads(item) for item in found] == items
    assert json.loads(envelope) == {"metadata": {"continue": "t"}, "items": []}


@given(values, st.integers(1, 5), st.sampled_from([None, 2]))
def test_hidden_values_are_restored(value, limit, indent):
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    hidden = hide_depth(raw, limit)
    if hidden is None:
        assert depth_of(value) <= limit + 1
        return
    assert depth_of(json.loads(hidden.data)) <= limit + 1
    assert hidden.revealed(hidden.data) == raw
    assert json.loads(hidden.revealed(json.dumps(json.loads(hidden.data)).encode())) == value


@given(values)
def test_the_stored_size_is_at_least_that_of_the_json_go_writes(value):
    assert stored_size(value) >= len(dumps_go(value).encode())


@pytest.mark.parametrize(("text", "size"), [("abc", 5), ("<>&", 20), ("\u2028", 8), ("漢", 5), ('"', 4), ("\n", 4)])
def test_characters_that_an_api_server_escapes_take_more_bytes(text, size):
    assert stored_size(text) == size
    assert stored_size({text: [text]}) == 2 * size + 5


def test_the_path_to_a_deep_value_does_not_repeat_a_long_key_for_its_neighbors():
    held = {f"a{number}": 0 for number in range(1_000)}
    value = {"spec": {"x" * 100_000: {**held, "deep": json.loads(chain(101))}}}
    tracemalloc.start()
    try:
        path = nested_deeper(value)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert path.startswith(f"spec.{'x' * 256}….deep")
    assert nested_deeper({"a": [[1, {"b": [[]]}]]}, 3) == "a[0][1].b"
