"""Allocation of Pods to subsets: the worked examples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.uniteddeployment.plan.allocation import AllocationError, Subset, allocate
from app.features.uniteddeployment.types import Share, ShareError, count_of


def numbers(text: str, count: int) -> list[str]:
    """``0×4`` is four times 0; ``-`` is nothing."""
    if text == "-":
        return [""] * count
    found: list[str] = []
    for part in text.split(","):
        value, _, times = part.partition("×")
        found += [value] * int(times or 1)
    return found * count if len(found) == 1 and count > 1 else found


def share(text: str) -> Share | None:
    return None if text in ("", "∞") else text if text.endswith("%") else int(text)


SPECIFIC = """
1|6|a b c|-|2,2,2
2|5|a b c|-|1,2,2
3|7|a b c|1,2,2|2,2,3
4|4|a b c|1,2,2|1,1,2
5|3|a b c|2,2,3|1,1,1
6|2|a b c|2,2,3|0,1,1
7|6|a=1 b=50% c|-|1,3,2
8|7|a=1 b=50% c|-|1,4,2
9|10|a=71% b=29%|-|7,3
10|10|a=33% b=33% c=34%|-|error
11|10|a=33% b=33% c|-|3,3,4
12|5|a=50% b=50%|-|error
13|4|a=50% b=50%|-|2,2
14|10|a=8 b c|-|8,1,1
15|10|a=12 b|-|error
16|10|a=4 b=5|-|error
17|6|a b c|3,3,0|2,2,2
18|7|a b|2,2|3,4
19|27|t1=4 t2 t3=4 t4|1,4,2,2|4,10,4,9
20|9|t1 t2 t3 t4|2,4,2,2|2,3,2,2
21|0|a b|3,1|0,0
"""


@pytest.mark.behaviour("UD-35", "UD-36", "UD-41")
@pytest.mark.parametrize("row", SPECIFIC.strip().splitlines(), ids=lambda row: row.partition("|")[0])
def test_fixed_shares_come_first_and_the_rest_is_equal(row: str) -> None:
    _, replicas, names, current, wanted = row.split("|")
    parts = [name.partition("=") for name in names.split()]
    now = numbers(current, len(parts))
    subsets = [
        Subset(name, replicas=share(value), exists=current != "-", current=int(count or 0))
        for (name, _, value), count in zip(parts, now, strict=True)
    ]
    if wanted == "error":
        with pytest.raises(AllocationError):
            allocate(int(replicas), subsets)
        return
    found = allocate(int(replicas), subsets).replicas
    assert [found[subset.name] for subset in subsets] == [int(one) for one in wanted.split(",")]


def bounded(least: str, most: str) -> list[Subset]:
    count = max(len(numbers(least, 1)), len(numbers(most, 1)))
    lows, highs = numbers(least, count), numbers(most, count)
    return [
        Subset(f"{chr(97 + index)}", min_replicas=share(lows[index]), max_replicas=share(highs[index]))
        for index in range(count)
    ]


@pytest.mark.behaviour("UD-37")
@pytest.mark.parametrize(
    ("replicas", "least", "most", "wanted"),
    [
        pytest.param(3, "0,0", "4,∞", [3, 0], id="22a"),
        pytest.param(4, "0,0", "4,∞", [4, 0], id="22b"),
        pytest.param(5, "0,0", "4,∞", [4, 1], id="22c"),
        pytest.param(5, "2,2", "4,∞", [3, 2], id="23"),
        pytest.param(10, "2×5", "5,5,5,5,∞", [2, 2, 2, 2, 2], id="24"),
        pytest.param(14, "2×5", "5,5,5,5,∞", [5, 3, 2, 2, 2], id="25"),
        pytest.param(5, "2×5", "5,5,5,5,∞", [2, 2, 1, 0, 0], id="26"),
        pytest.param(20, "1,1,1", "2,2,∞", [2, 2, 16], id="27"),
        pytest.param(9, "0,2", "∞,4", [7, 2], id="28"),
        pytest.param(7, "20%,0", "50%,∞", [4, 3], id="29"),
    ],
)
def test_minimums_are_filled_before_maximums(replicas: int, least: str, most: str, wanted: list[int]) -> None:
    assert list(allocate(replicas, bounded(least, most)).replicas.values()) == wanted


def test_a_minimum_above_the_maximum_is_an_error() -> None:
    with pytest.raises(AllocationError, match="minReplicas 3 is greater than maxReplicas 1"):
        allocate(4, [Subset("a", min_replicas=3, max_replicas=1), Subset("b")])


@pytest.mark.behaviour("UD-38")
@pytest.mark.parametrize(
    ("replicas", "least", "most", "ready", "unschedulable", "wanted"),
    [
        pytest.param(6, "0,0", "3,∞", "", "", [3, 3], id="30"),
        pytest.param(6, "0,0", "3,∞", "2,3", "a", [2, 4], id="31"),
        pytest.param(6, "0,0", "3,∞", "2,4", "", [2, 4], id="32"),
        pytest.param(7, "0,0", "3,∞", "2,4", "", [3, 4], id="33"),
        pytest.param(4, "0,0", "3,∞", "2,4", "", [2, 2], id="34"),
        pytest.param(10, "3,0", "5,∞", "0,5", "a", [3, 7], id="35"),
        pytest.param(4, "0×4", "2,∞,∞,∞", "2,0,0,0", "b", [2, 0, 2, 0], id="36"),
        pytest.param(8, "0×4", "2,∞,∞,∞", "2,0,0,2", "bc", [2, 0, 0, 6], id="37"),
        pytest.param(6, "0,0", "3,∞", "2,1", "ab", [2, 1], id="38"),
    ],
)
def test_unschedulable_subsets_keep_running_pods(
    replicas: int, least: str, most: str, ready: str, unschedulable: str, wanted: list[int]
) -> None:
    subsets = bounded(least, most)
    if ready:
        subsets = [
            replace(one, exists=True, ready=int(count), unschedulable=one.name in unschedulable)
            for one, count in zip(subsets, ready.split(","), strict=True)
        ]
    assert list(allocate(replicas, subsets, adaptive=True).replicas.values()) == wanted


@pytest.mark.behaviour("UD-39", "UD-40", "UD-59")
@pytest.mark.parametrize(
    ("replicas", "least", "most", "current", "reserved", "wanted", "remarked"),
    [
        pytest.param(8, "1×4", "2,2,2,∞", "", "", [2, 2, 2, 2], "", id="39"),
        pytest.param(8, "1×4", "2,2,2,∞", "2,2,2,2", "0,2,2,0", [2, 2, 2, 6], "", id="40"),
        pytest.param(8, "1×4", "2,2,2,∞", "2,2,2,6", "0,1,1,0", [2, 2, 2, 4], "", id="41"),
        pytest.param(8, "1×4", "2,2,2,∞", "2,2,2,4", "0,m,1,0", [2, 2, 2, 3], "", id="42"),
        pytest.param(16, "2×4", "4,4,4,∞", "2,2,2,6", "0,1,1,0", [4, 2, 2, 10], "", id="43"),
        pytest.param(16, "2×4", "4,4,4,∞", "4,2,2,10", "0,m,m,0", [4, 4, 4, 8], "bc", id="44"),
        pytest.param(16, "2×4", "4,4,4,∞", "4,4,4,8", "0,m,m,0", [4, 4, 4, 4], "", id="45"),
        pytest.param(2, "0×3", "∞×3", "2,0,0", "2,0,0", [2, 2, 0], "", id="46"),
        pytest.param(2, "0×3", "∞×3", "2,2,0", "2,2,0", [2, 2, 2], "", id="47"),
        pytest.param(2, "0×3", "∞×3", "2,2,2", "2,1,0", [2, 2, 1], "", id="48"),
        pytest.param(2, "0×3", "∞×3", "2,2,1", "0,1,0", [2, 0, 0], "", id="49"),
        pytest.param(2, "1,1,0", "∞×3", "1,1,0", "1,1,0", [1, 1, 2], "", id="50"),
    ],
)
def test_unschedulable_pods_are_kept_and_replaced_elsewhere(
    replicas: int, least: str, most: str, current: str, reserved: str, wanted: list[int], remarked: str
) -> None:
    subsets = bounded(least, most)
    if current:
        subsets = [
            replace(
                one,
                exists=True,
                current=int(count),
                reserved=0 if held == "m" else int(held),
                unschedulable=held not in ("m", "0"),
                marked=held != "0",
            )
            for one, count, held in zip(subsets, current.split(","), reserved.split(","), strict=True)
        ]
    found = allocate(replicas, subsets, adaptive=True, reserve=True)
    assert list(found.replicas.values()) == wanted
    assert found.remarked == frozenset(remarked)


@pytest.mark.behaviour("UD-34")
@pytest.mark.parametrize(
    ("given", "replicas", "wanted"),
    [(3, None, 3), ("50%", 7, 4), ("33%", 10, 3), ("0%", 5, 0), ("100%", 5, 5), ("10%", 5, 1)],
)
def test_a_share_is_a_number_or_percentage(given: Share, replicas: int | None, wanted: int) -> None:
    assert count_of(given, replicas) == wanted


@pytest.mark.parametrize("given", [-1, "x", "5", "50.5%", "101%", "-1%", "9" * 5000 + "%"])
def test_an_invalid_share_is_refused(given: Share) -> None:
    with pytest.raises(ShareError):
        count_of(given, 10)


_subsets = st.lists(
    st.builds(
        Subset,
        name=st.uuids().map(str),
        min_replicas=st.integers(0, 5),
        max_replicas=st.one_of(st.none(), st.integers(5, 9)),
        exists=st.just(True),
        current=st.integers(0, 9),
        ready=st.integers(0, 9),
        unschedulable=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(st.integers(0, 40), _subsets, st.booleans())
def test_allocations_add_up_and_are_not_negative(replicas: int, subsets: list[Subset], adaptive: bool) -> None:
    found = allocate(replicas, subsets, adaptive=adaptive).replicas
    assert sum(found.values()) <= replicas
    assert all(count >= 0 for count in found.values())
    if not adaptive and any(one.max_replicas is None for one in subsets):
        assert sum(found.values()) == replicas
