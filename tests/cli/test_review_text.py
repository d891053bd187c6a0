"""A patched object as a diff: the text shows the result of the patch."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.cli.review_text import changes
from app.kube.admission import PatchOperation
from app.kube.patches import PatchError, apply, diff


def shown(original: Any, *operations: PatchOperation) -> list[str]:
    return [
        f"{line.sign}{line.text}" + (f" #{line.rule}" if line.rule else "") for line in changes(original, operations)
    ]


POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "nginx"}], "volumes": []}}


def test_untouched_parts_are_shown_as_yaml() -> None:
    assert shown(POD) == [
        " metadata:",
        "   name: web",
        " spec:",
        "   containers:",
        "   - name: main",
        "     image: nginx",
        "   volumes: []",
    ]


def test_a_change_carries_its_rule_on_its_first_line() -> None:
    agent = {"name": "agent", "env": [{"name": "A", "value": "1"}]}
    assert shown(
        POD,
        PatchOperation("add", "/spec/containers/0", agent, "SS-42"),
        PatchOperation("add", "/metadata/annotations", {"a/b": '{"x": 1}'}, "SS-56"),
        PatchOperation("replace", "/spec/containers/1/image", "nginx:2", "SS-44"),
    ) == [
        " metadata:",
        "   name: web",
        "+  annotations: #SS-56",
        "+    a/b: '{\"x\": 1}'",
        " spec:",
        "   containers:",
        "+  - name: agent #SS-42",
        "+    env:",
        "+    - name: A",
        "+      value: '1'",
        "   - name: main",
        "-    image: nginx #SS-44",
        "+    image: nginx:2 #SS-44",
        "   volumes: []",
    ]


def test_removed_lines_stay_visible_in_place() -> None:
    items = {"list": ["a", "b", "c"], "gone": {"x": 1}}
    assert shown(
        items,
        PatchOperation("remove", "/list/1", rule="R-1"),
        PatchOperation("replace", "/list/1", "C", "R-2"),
        PatchOperation("add", "/list/-", "d", "R-3"),
        PatchOperation("remove", "/gone", rule="R-4"),
    ) == [" list:", " - a", "-- b #R-1", "-- c #R-2", "+- C #R-2", "+- d #R-3", "-gone: #R-4", "-  x: 1"]


def test_a_replaced_object_shows_only_what_differs() -> None:
    before = {"c": {"name": "a", "image": "x", "env": [{"name": "A"}, {"name": "B"}]}}
    after = {"name": "a", "image": "y", "env": [{"name": "A"}, {"name": "C"}], "tty": True}
    assert shown(before, PatchOperation("replace", "/c", after, "R")) == [
        " c:",
        "   name: a",
        "-  image: x #R",
        "+  image: y #R",
        "   env:",
        "   - name: A",
        "-  - name: B #R",
        "+  - name: C #R",
        "+  tty: true #R",
    ]


def test_values_added_and_removed_in_one_patch_are_omitted() -> None:
    assert shown({}, PatchOperation("add", "/a", 1, "R"), PatchOperation("remove", "/a", rule="R")) == []
    assert shown({"l": [1]}, PatchOperation("add", "/l/0", 0, "R"), PatchOperation("remove", "/l/0", rule="R")) == [
        " l:",
        " - 1",
    ]


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (PatchOperation("remove", "/nothing"), LookupError),
        (PatchOperation("replace", "/list/9", 1), LookupError),
        (PatchOperation("add", "/list/0/x", 1), LookupError),
        (PatchOperation("add", "no/slash", 1), PatchError),
    ],
)
def test_an_inapplicable_patch_is_refused(operation: PatchOperation, error: type[Exception]) -> None:
    with pytest.raises(error):
        changes({"list": [1]}, [operation])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab:#'\"- \n\u00e4", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text("abc", max_size=2), JSON, max_size=3),
    after=st.dictionaries(st.text("abc", max_size=2), JSON, max_size=3),
)
def test_kept_and_added_lines_form_the_patched_object(before: dict, after: dict) -> None:
    operations = diff(before, after, rule="R")
    lines = changes(copy.deepcopy(before), operations)
    patched = apply(operations, before)
    assert patched == after
    text = "\n".join(line.text for line in lines if line.sign != "-")
    assert without_empties(yaml.safe_load(text)) == without_empties(patched)
    original = "\n".join(line.text for line in lines if line.sign != "+")
    assert without_empties(yaml.safe_load(original)) == without_empties(before)


def without_empties(value: Any) -> Any:
    """An object or list that became empty is shown as its name alone."""
    if isinstance(value, dict):
        return {key: without_empties(item) for key, item in value.items()} or None
    if isinstance(value, list):
        return [without_empties(item) for item in value] or None
    return value
