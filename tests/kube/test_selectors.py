import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.fielderrors import Path, aggregate
from app.kube.selector_query import SelectorError
from app.kube.selectors import (
    EVERYTHING,
    MAX_VALUES,
    compile_selector,
    go_label_selector,
    label_keys,
    parse_query,
    selector_keys,
    selector_text,
    to_query,
    validate_selector,
)
from tests.kube.recorded import cases, for_each

keys = st.sampled_from(["app", "tier", "a.example/b"])
label_values = st.sampled_from(["", "web", "db", "x.y"])
label_maps = st.dictionaries(keys, label_values)
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(label_values, min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator}, keys, st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
selectors = st.fixed_dictionaries({"matchLabels": label_maps, "matchExpressions": st.lists(expressions, max_size=3)})


def without_shown_values(text: str) -> str:
    """Replace missing values, which are null in Go and [] here."""
    return re.sub(r"Invalid value: (null|\[\])", "Invalid value: …", text)


@for_each(cases("selectors"))
def test_a_selector_matches_as_in_kubernetes(asked: dict[str, Any], expected: dict[str, Any]) -> None:
    selector = asked["selector"]
    assert aggregate(validate_selector(selector, Path("spec").child("selector"))) == expected.get("validation", "")
    if "error" in expected:
        with pytest.raises(SelectorError) as caught:
            compile_selector(selector)
        assert without_shown_values(str(caught.value)) == without_shown_values(expected["error"])
    else:
        compiled = compile_selector(selector)
        assert [compiled.matches(labels) for labels in asked["labels"]] == expected["matches"]


@for_each(cases("queries"))
def test_a_query_parses_as_in_kubernetes(asked: dict[str, Any], expected: dict[str, Any] | None) -> None:
    if expected is None:
        with pytest.raises(SelectorError):
            parse_query(asked["query"])
    else:
        parsed = parse_query(asked["query"])
        assert [parsed.matches(labels) for labels in asked["labels"]] == expected["matches"]


@given(selectors, label_maps)
def test_a_selector_round_trips_through_a_query(selector: dict[str, Any], labels: dict[str, str]) -> None:
    query = to_query(selector)
    assert to_query(parse_query(query)) == query
    assert parse_query(query).matches(labels) == compile_selector(selector).matches(labels)


@given(selectors, label_maps)
def test_equalities_are_necessary_and_sufficient_if_alone(selector: dict[str, Any], labels: dict[str, str]) -> None:
    compiled = compile_selector(selector)
    if compiled.matches(labels):
        assert all(labels.get(key) == value for key, value in compiled.equalities.items())
    elif len(compiled.equalities) == len(compiled.requirements):
        assert any(labels.get(key) != value for key, value in compiled.equalities.items())


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {}}, {"matchLabels": None, "matchExpressions": []}])
def test_an_empty_selector_matches_everything(selector: Any) -> None:
    assert compile_selector(selector) is EVERYTHING
    assert EVERYTHING.empty
    assert EVERYTHING.matches({})
    assert to_query(selector) == ""


def test_an_in_with_one_value_is_an_equality() -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["2"]}]}
    compiled = compile_selector(selector)
    assert compiled.equalities == {"a": "1", "b": "2"}
    assert not compiled.empty
    assert to_query(selector) == "a=1,b=2"


@pytest.mark.parametrize(
    ("query", "matching"),
    [("a>2", {"3", "10"}), ("a<3", {"-1", "2"}), ("a>0", {"2", "3", "10"}), ("a<10", {"-1", "2", "3"})],
)
def test_limits_are_inclusive(query: str, matching: set[str]) -> None:
    selector = parse_query(query)
    values = ("-1", "2", "3", "10", "x", "", "9" * 30)
    assert {value for value in values if selector.matches({"a": value})} == matching
    assert not selector.matches({})


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": []},
        {"matchLabels": {"a": 1}},
        {"matchExpressions": {}},
        {"matchExpressions": ["a"]},
        {"matchExpressions": [{"key": 1, "operator": "Exists"}]},
        {"matchExpressions": [{"key": "a", "operator": []}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": "web"}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [None]}]},
    ],
)
def test_a_mistyped_selector_is_refused_without_a_crash(selector: Any) -> None:
    with pytest.raises(SelectorError):
        compile_selector(selector)
    assert validate_selector(selector, Path("spec"))


def test_an_endless_query_is_refused() -> None:
    with pytest.raises(SelectorError, match="longer than"):
        parse_query("a," * 100_000)


def test_a_selector_prints_as_a_go_struct() -> None:
    # SS-17: recorded errors.
    assert str(go_label_selector({})) == (
        "v1.LabelSelector{MatchLabels:map[string]string(nil), MatchExpressions:[]v1.LabelSelectorRequirement(nil)}"
    )
    assert str(go_label_selector({"matchExpressions": [{"key": "a", "operator": "Bad"}]})) == (
        "v1.LabelSelector{MatchLabels:map[string]string(nil), MatchExpressions:[]v1.LabelSelectorRequirement{"
        'v1.LabelSelectorRequirement{Key:"a", Operator:"Bad", Values:[]string(nil)}}}'
    )
    assert str(go_label_selector({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": []})) == (
        'v1.LabelSelector{MatchLabels:map[string]string{"a":"1", "b":"2"}, '
        "MatchExpressions:[]v1.LabelSelectorRequirement{}}"
    )


@pytest.mark.behaviour("CS-147")
@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"tier": "web", "app": "cs"}}, "app=cs,tier=web"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["cs"]}]}, "app in (cs)"),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["z", "a"]}]}, "app notin (a,z)"),
        (
            {
                "matchLabels": {"c": "1"},
                "matchExpressions": [{"key": "d", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"}],
            },
            "!a,c=1,d",
        ),
    ],
)
def test_a_selector_is_shown_as_in_go(selector: dict[str, Any], text: str) -> None:
    assert selector_text(selector) == text


# ---- finding objects with a matching selector without evaluating every selector


@given(selectors, label_maps)
def test_all_matching_selectors_are_found(selector: dict[str, Any], labels: dict[str, str]) -> None:
    labels = labels | (selector.get("matchLabels") or {})  # few would match otherwise
    compiled = compile_selector(selector)
    if compiled.matches(labels):
        assert set(selector_keys("shop", compiled)) & set(label_keys("shop", labels))
        assert not set(selector_keys("shop", compiled)) & set(label_keys("other", labels))


def test_a_selector_with_many_values_is_stored_once() -> None:
    many = {"key": "app", "operator": "In", "values": [f"v{index}" for index in range(MAX_VALUES + 1)]}
    assert selector_keys("shop", compile_selector({"matchExpressions": [many]})) == ("shop/app",)
    assert "shop/app" in label_keys("shop", {"app": "v1"})


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "shop"]}]},
        {"matchExpressions": [{"key": "gone", "operator": "Exists"}]},
    ],
    ids=["equality", "values", "presence"],
)
def test_labels_excluded_by_a_selector_do_not_find_it(selector: dict[str, Any]) -> None:
    keys = set(selector_keys("shop", compile_selector(selector)))
    assert not keys & set(label_keys("shop", {"app": "other"}))
