"""Which ordinals have Pods."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pods.ordinals import MAX_ORDINAL, Slots, ordinal_of, reserved_intervals


@pytest.mark.behaviour("AS-48", "AS-49", "AS-50")
@pytest.mark.parametrize(("replicas", "start", "reserve", "slots", "end"), [
    (4, 0, [1], [0, 2, 3, 4], 5),
    (4, 0, [1, 3], [0, 2, 4, 5], 6),
    (3, 0, [1, 3], [0, 2, 4], 5),
    (4, 0, ["2-5", 7], [0, 1, 6, 8], 9),
    (3, 0, [0], [1, 2, 3], 4),
    (5, 3, [], [3, 4, 5, 6, 7], 8),
    (3, 2, [0, 4], [2, 3, 5], 6),
    (3, 2, [0, 2, 3, 4, 5], [6, 7, 8], 9),
    (4, 1, [1, 3, 4], [2, 5, 6, 7], 8),
    (4, 2, [1, 3], [2, 4, 5, 6], 7),
    (4, 4, [1, 3], [4, 5, 6, 7], 8),
    (0, 0, [0], [], 0),
    (3, 0, [1, "x", "5-3", -4, "3"], [0, 2, 3], 4),
    (2, 0, [f"0-{MAX_ORDINAL}"], [MAX_ORDINAL + 1, MAX_ORDINAL + 2], MAX_ORDINAL + 3),
])  # fmt: skip
def test_slots_skip_reserved_ordinals(
    replicas: int, start: int, reserve: list[int | str], slots: list[int], end: int
) -> None:
    found = Slots.of(replicas, start, reserved_intervals(reserve))
    assert (list(found), found.end, len(found)) == (slots, end, replicas)
    assert [found.rank(ordinal) for ordinal in slots] == list(range(1, replicas + 1))


@given(
    st.integers(0, 30),
    st.integers(0, 20),
    st.lists(st.integers(0, 40) | st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda r: f"{r[0]}-{sum(r)}")),
)
def test_slots_are_the_first_ordinals_that_are_not_reserved(
    replicas: int, start: int, reserve: list[int | str]
) -> None:
    taken = {one for first, last in reserved_intervals(reserve) for one in range(first, last + 1)}
    expected = list(itertools.islice((one for one in itertools.count(start) if one not in taken), replicas))
    slots = Slots.of(replicas, start, reserved_intervals(reserve))
    assert list(slots) == expected
    for ordinal in range(100):
        assert (ordinal in slots) == (ordinal in expected)
        assert slots.rank(ordinal) == (expected.index(ordinal) + 1 if ordinal in expected else 0)


def test_a_huge_set_is_cheap() -> None:
    slots = Slots.of(MAX_ORDINAL, 7, reserved_intervals(["10-2147483000"]))
    assert len(slots) == MAX_ORDINAL
    assert list(itertools.islice(slots, 4)) == [7, 8, 9, 2147483001]


@pytest.mark.behaviour("AS-39", "AS-134")
@pytest.mark.parametrize(("name", "ordinal"), [
    ("web-0", 0),
    ("web-12", 12),
    ("web-01", -1),
    ("web-", -1),
    ("web", -1),
    ("web-x", -1),
    ("other-1", -1),
    ("web-a-1", -1),
    ("web--1", -1),
    ("web-2147483647", 2147483647),
    ("web-2147483648", -1),
    ("web-99999999999999999999", -1),
    ("web-١", -1),
])  # fmt: skip
def test_only_valid_pod_names_have_an_ordinal(name: str, ordinal: int) -> None:
    assert ordinal_of("web", name) == ordinal


@pytest.mark.parametrize(
    ("going", "reserved"), [([4], []), ([3, 4], []), ([0], [0]), ([1, 4], [1]), ([3], [3]), ([4, 0, 3, 1], [0, 1])]
)
def test_slots_other_than_the_last_must_be_reserved(going: list[int], reserved: list[int]) -> None:
    assert Slots.of(5, 0, ()).not_last(going) == reserved
