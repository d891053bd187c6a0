"""Finding objects with a matching selector without evaluating every selector."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.selectors import MAX_VALUES, compile_selector, label_keys, selector_keys

KEYS, VALUES = ("a", "b", "x.y/a"), ("", "1", "2")
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(("In", "NotIn")),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"key": st.sampled_from(KEYS), "operator": st.sampled_from(("Exists", "DoesNotExist"))}),
)
selectors = st.fixed_dictionaries(
    {
        "matchLabels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
        "matchExpressions": st.lists(expressions, max_size=2),
    }
)


@given(selectors, st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_all_matching_selectors_are_found(selector: Mapping[str, object], labels: Mapping[str, str]) -> None:
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
def test_labels_excluded_by_a_selector_do_not_find_it(selector: Mapping[str, object]) -> None:
    keys = set(selector_keys("shop", compile_selector(selector)))
    assert not keys & set(label_keys("shop", {"app": "other"}))
