from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.fields import UpdatePriorityStrategy, UpdateScatterTerm
from app.kube.objects import ObjectMeta, Pod
from app.pods.sorting import by_priority, in_update_order, preparing_first, scattered, trailing_number

MATCH = [UpdateScatterTerm(key="m", value="1")]


def pods(pattern: str) -> list[Pod]:
    """One Pod per character, named by its position; ``M`` matches."""
    return [Pod(ObjectMeta(str(index), labels={"m": "1"} if char == "M" else {})) for index, char in enumerate(pattern)]


def names(found: Any) -> list[int]:
    return [int(pod.metadata.name) for pod in found]


@pytest.mark.parametrize(("pattern", "candidates", "order"), [
    ("....MM", 6, [4, 0, 1, 2, 3, 5]),
    ("...MMM", 6, [3, 0, 1, 4, 2, 5]),
    ("..MMMM", 6, [2, 3, 0, 4, 1, 5]),
    ("....MMM", 6, [0, 1, 4, 2, 3, 5]),
    ("MM.......M", 7, [2, 0, 3, 4, 5, 6, 1]),
    ("M.....", 6, [0, 1, 2, 3, 4, 5]),
    ("MMMM.", 5, [0, 1, 2, 3, 4]),
])  # fmt: skip
@pytest.mark.behaviour("PM-131", "PM-132", "PM-133", "PM-134")
def test_scattered_pods_are_spread_over_the_update(pattern: str, candidates: int, order: list[int]) -> None:
    all_pods = pods(pattern)
    assert names(scattered(all_pods[:candidates], all_pods, MATCH)) == order


@pytest.mark.behaviour("PM-134")
@pytest.mark.parametrize(("count", "matching", "positions"), [(10, 3, [1, 6, 10]), (12, 4, [1, 5, 9, 12])])
def test_scattered_pods_have_the_positions_of_openkruise(count: int, matching: int, positions: list[int]) -> None:
    all_pods = pods("M" * matching + "." * (count - matching))
    order = scattered(all_pods, all_pods, MATCH)
    assert [index + 1 for index, pod in enumerate(order) if pod.metadata.labels] == positions


@pytest.mark.behaviour("PM-130", "PM-7")
def test_terms_apply_by_the_number_of_matching_candidates() -> None:
    labels: list[dict[str, str]] = [{"a": "1"}] * 2 + [{"b": "1"}] * 3 + [{}] * 5
    all_pods = [Pod(ObjectMeta(str(index), labels=own)) for index, own in enumerate(labels)]
    a, b = UpdateScatterTerm(key="a", value="1"), UpdateScatterTerm(key="b", value="1")
    unmatched = UpdateScatterTerm(key="c", value="1")
    twice = scattered(scattered(all_pods, all_pods, [b]), all_pods, [a])
    assert names(scattered(all_pods, all_pods, [a, unmatched, b])) == names(twice)
    unlabeled = [UpdateScatterTerm(key="m", value="")]
    assert names(scattered(pods("..MMMM"), pods("..MMMM"), unlabeled))[-1] == 1


@pytest.mark.behaviour("PM-130", "PM-7")
def test_of_several_terms_those_without_pods_do_not_count() -> None:
    all_pods = pods("..MMMM....")
    absent, a = UpdateScatterTerm(key="other", value=""), MATCH[0]
    unlabeled = UpdateScatterTerm(key="m", value="")
    assert names(scattered(all_pods, all_pods, [unlabeled, a])) == names(scattered(all_pods, all_pods, MATCH))
    assert names(scattered(all_pods, all_pods, [absent, unlabeled])) == list(range(10))
    # One Pod with the label, though empty, is enough.
    all_pods[0].metadata.labels["m"] = ""
    assert names(scattered(all_pods, all_pods, [unlabeled, absent])) != list(range(10))


@given(st.text("M.", max_size=14), st.integers(0, 14))
def test_scatter_loses_no_pod(pattern: str, count: int) -> None:
    all_pods = pods(pattern)
    candidates = all_pods[:count]
    found = names(scattered(candidates, all_pods, MATCH))
    assert sorted(found) == names(candidates)
    if sum(char == "M" for char in pattern[:count]) > 1 and pattern[:count].count(".") > 1:
        assert pattern[found[-1]] == "M"


def labeled(*labels: dict[str, str]) -> list[Pod]:
    return [Pod(ObjectMeta(str(index), labels=own)) for index, own in enumerate(labels)]


def weight(number: int, **labels: str) -> dict[str, Any]:
    return {"weight": number, "matchSelector": {"matchLabels": labels}}


@pytest.mark.behaviour("PM-127")
def test_weights_of_matching_terms_add_up_and_ties_keep_their_order() -> None:
    strategy = UpdatePriorityStrategy.model_validate({"weightPriority": [weight(50, a="1"), weight(30, b="1")]})
    given_pods = labeled({}, {"b": "1"}, {"a": "1"}, {"a": "1", "b": "1"}, {"b": "1"})
    assert names(by_priority(given_pods, strategy)) == [3, 2, 1, 4, 0]
    assert names(by_priority(given_pods, None)) == [0, 1, 2, 3, 4]


@pytest.mark.behaviour("PM-128")
def test_ordered_keys_compare_trailing_numbers() -> None:
    strategy = UpdatePriorityStrategy.model_validate({"orderPriority": [{"orderedKey": "k1"}, {"orderedKey": "k2"}]})
    given_pods = labeled({"k2": "9"}, {"k1": "sts-2"}, {"k1": "sts-10"}, {}, {"k1": "none", "k2": "99"}, {"k2": "10"})
    assert names(by_priority(given_pods, strategy)) == [3, 2, 1, 4, 5, 0]


@pytest.mark.behaviour("PM-128")
@pytest.mark.parametrize(
    ("text", "number"),
    [("sts-10", 10), ("5", 5), ("none", 0), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", 0), ("1-a", 0)],
)
def test_trailing_numbers_are_parsed(text: str, number: int) -> None:
    assert trailing_number(text) == number


@pytest.mark.behaviour("PM-135")
def test_pods_that_prepare_an_update_come_first() -> None:
    state = "lifecycle.apps.kruise.io/state"
    given_pods = labeled({}, {state: "PreparingUpdate"}, {state: "Normal"}, {state: "PreparingUpdate"})
    assert names(preparing_first(given_pods)) == [1, 3, 0, 2]
    assert names(in_update_order(given_pods, given_pods, None, None)) == [1, 3, 0, 2]
