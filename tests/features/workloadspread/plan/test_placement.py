"""Which subset a new Pod gets, and which place is given back: the tables of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.workloadspread.plan import placement
from app.features.workloadspread.plan.placement import (
    NewPod,
    Place,
    by_ordinal,
    choose,
    give_back,
    sole_subset,
    versions_apart,
)
from app.features.workloadspread.types import WorkloadSpread
from app.kube.rulings import Ruling
from tests.features.workloadspread.spreads import IGNORED, Json, ago, condition, spread

Limits = dict[str, int | str | None]


def entry(
    name: str, limit: int | None, missing: int, *, shut: bool = False, creating: str = "", deleting: str = ""
) -> Json:
    """A subset that takes ``limit`` Pods and has ``missing`` places left."""
    coming, going = (1 if creating else 0), (1 if deleting else 0)
    replicas = 0 if limit is None else limit - missing - coming + going
    found: Json = {"name": name, "replicas": replicas, "missingReplicas": missing}
    if shut:
        found["conditions"] = [condition("False")]
    if creating:
        found["creatingPods"] = {creating: ago(1)}
    if deleting:
        found["deletingPods"] = {deleting: ago(1)}
    return found


def statuses(found: WorkloadSpread | None, version: str = IGNORED) -> dict[str, Any]:
    assert found is not None
    assert found.status is not None
    each = (found.status.versioned_subset_statuses or {})[version]
    return {
        one.name: (one.missing_replicas, sorted(one.creating_pods or ()), sorted(one.deleting_pods or ()))
        for one in each
    }


def subset_of(ruling: Ruling[WorkloadSpread, Place | None]) -> str | None:
    return ruling.answer.subset if ruling.answer is not None else None


# From the worked examples: limits, former entries, desired Pods, chosen subset, missing Pods afterwards.
CREATIONS = [
    pytest.param({"a": 5, "b": None}, [entry("a", 5, 5), entry("b", None, -1)], 0, "a", {"a": 4, "b": -1}, id="1"),
    pytest.param({"a": 5, "b": None}, [entry("a", 5, 0), entry("b", None, -1)], 0, "b", None, id="2"),
    pytest.param(
        {"a": 5, "b": 5, "c": None},
        [entry("a", 5, 0), entry("b", 5, 2), entry("c", None, -1)],
        0,
        "b",
        {"a": 0, "b": 1, "c": -1},
        id="3",
    ),
    pytest.param({"a": 5, "b": 5}, [entry("a", 5, 0), entry("b", 5, 0)], 0, None, None, id="4"),
    pytest.param({"a": 5, "b": None}, [entry("a", 5, 3, shut=True), entry("b", None, -1)], 0, "b", None, id="5"),
    pytest.param(
        {"a": 5, "b": 5, "c": 5},
        [entry("a", 5, 3, shut=True), entry("b", 5, 0), entry("c", 5, 1)],
        0,
        "c",
        {"a": 3, "b": 0, "c": 0},
        id="6",
    ),
    pytest.param({"a": 5, "b": 5}, [entry("a", 5, 3, shut=True), entry("b", 5, 2, shut=True)], 0, None, None, id="7"),
    pytest.param({"a": None, "b": 5}, [entry("a", None, -1), entry("b", 5, 5)], 0, "a", None, id="8"),
    pytest.param({"a": 3, "b": None}, None, 0, "a", {"a": 2, "b": -1}, id="9"),
    pytest.param({"a": "50%", "b": "50%"}, None, 5, "a", {"a": 2, "b": 3}, id="10"),
    pytest.param({"a": "30%", "b": None}, None, 1, "a", {"a": 0, "b": -1}, id="11"),
    pytest.param({"a": "50%", "b": "50%"}, None, 0, None, None, id="12"),
    pytest.param({"a": 5, "b": None}, [entry("a", 5, 4, creating="p1"), entry("b", None, -1)], 0, "a", None, id="13"),
    pytest.param({"a": 0, "b": None}, None, 0, "b", None, id="22"),
]


@pytest.mark.behaviour("WS-27", "WS-28", "WS-29")
@pytest.mark.parametrize(("limits", "before", "wanted", "chosen", "after"), CREATIONS)
def test_a_new_pod_gets_the_first_place(
    limits: Limits, before: list[Json] | None, wanted: int, chosen: str | None, after: dict[str, int] | None
) -> None:
    given_ = spread(limits, {IGNORED: before} if before is not None else None)
    ruling = choose(given_, NewPod(IGNORED, "p1", wanted, ago(0)))
    assert subset_of(ruling) == chosen
    if after is None:
        assert ruling.changed is None, "no write"
    else:
        found = statuses(ruling.changed)
        assert {name: missing for name, (missing, _, _) in found.items()} == after
        assert found[str(chosen)][1] == ["p1"]


@pytest.mark.behaviour("WS-29", "WS-43")
def test_only_a_pod_of_the_same_name_gets_the_place_of_a_leaving_pod() -> None:
    full = spread({"a": 1, "b": 1, "c": None}, {IGNORED: [entry("a", 1, 0), entry("b", 1, 1), entry("c", None, -1)]})
    gone = give_back(full, IGNORED, "a", "p1", ago(0)).changed
    assert statuses(gone)["a"] == (1, [], ["p1"])
    again = choose(gone, NewPod(IGNORED, "p1", 0, ago(0)))
    assert subset_of(again) == "a"
    assert statuses(again.changed)["a"] == (0, ["p1"], [])
    other = choose(again.changed, NewPod(IGNORED, "p2", 0, ago(0)))
    assert subset_of(other) == "b"
    # The place was given to another Pod, so the deleted Pod frees none.
    taken = choose(gone, NewPod(IGNORED, "p2", 0, ago(0))).changed
    late = choose(taken, NewPod(IGNORED, "p1", 0, ago(0)))
    assert subset_of(late) == "b"


@pytest.mark.behaviour("WS-41", "WS-27")
def test_each_version_has_its_own_places() -> None:
    # [Example 19]
    before = spread({"a": 3, "b": None}, {"old": [entry("a", 3, 0), entry("b", None, -1)]})
    ruling = choose(before, NewPod("new", "p1", 0, ago(0)))
    assert statuses(ruling.changed, "new") == {"a": (2, ["p1"], []), "b": (-1, [], [])}
    assert statuses(ruling.changed, "old") == {"a": (0, [], []), "b": (-1, [], [])}


@pytest.mark.behaviour("WS-41", "MGR-164")
def test_versions_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The creator of a Pod writes the label with its version, and every Pod waits for what the status holds."""
    monkeypatch.setattr(placement, "MAX_STATUSES", 6)
    found = spread({"a": 9, "b": None})
    for number in range(6):
        ruling = choose(found, NewPod(f"v{number}", f"p{number}", 0, ago(0)))
        assert ruling.answer == Place("a", f"p{number}")
        assert ruling.changed is not None
        found = ruling.changed
    assert found.status is not None
    assert sorted(found.status.versioned_subset_statuses or ()) == ["v0", "v1", "v2", IGNORED]
    assert statuses(found)["a"][1] == ["p3", "p4", "p5"]
    assert versions_apart(["v3", "v1", "v0", "v2"], found) == {"v0", "v1", "v2"}


@pytest.mark.behaviour("WS-43", "MGR-164")
@pytest.mark.parametrize(("limit", "freed"), [(3, IGNORED), (4, None)])
def test_a_pod_of_a_version_beyond_the_limit_frees_a_place_of_the_others(
    monkeypatch: pytest.MonkeyPatch, limit: int, freed: str | None
) -> None:
    monkeypatch.setattr(placement, "MAX_STATUSES", limit)
    entries = [entry("a", 5, 0), entry("b", None, -1)]
    ruling = give_back(spread({"a": 5, "b": None}, {IGNORED: entries}), "v1", "a", "p1", ago(0))
    assert ruling.answer is (freed is not None)
    if freed is not None:
        assert statuses(ruling.changed, freed)["a"] == (1, [], ["p1"])


@pytest.mark.behaviour("WS-68")
def test_a_new_version_knows_unschedulable_subsets() -> None:
    before = spread(
        {"a": 3, "b": None},
        {},
        overall=[{"name": "a", "replicas": 0, "missingReplicas": 3, "conditions": [condition("False")]}],
    )
    assert subset_of(choose(before, NewPod("new", "p1", 0, ago(0)))) == "b"


@pytest.mark.behaviour("WS-27")
def test_the_spec_defines_subsets_and_their_order() -> None:
    entries = [entry("gone", 5, 5), entry("b", 5, 5), entry("a", 5, 5)]
    ruling = choose(spread({"a": 5, "b": 5}, {IGNORED: entries}), NewPod(IGNORED, "p1", 0, ago(0)))
    assert subset_of(ruling) == "a"
    assert list(statuses(ruling.changed)) == ["a", "b", "gone"]


@pytest.mark.behaviour("WS-77", "WS-62")
def test_a_percentage_uses_current_replicas() -> None:
    """The status was written at 4 replicas; there are 10 now."""
    entries = [entry("a", 2, 0), entry("b", 2, 0)]
    ruling = choose(spread({"a": "50%", "b": "50%"}, {IGNORED: entries}), NewPod(IGNORED, "p1", 10, ago(0)))
    assert subset_of(ruling) == "a"
    assert statuses(ruling.changed)["a"][0] == 2, "5 - 2 - 1"


@pytest.mark.behaviour("WS-36")
@pytest.mark.parametrize("gone", [None, spread({"a": 1}, deletionTimestamp="2026-01-01T00:00:00Z")])
def test_a_deleted_object_changes_nothing(gone: WorkloadSpread | None) -> None:
    ruling = choose(gone, NewPod(IGNORED, "p1", 0, ago(0)))
    assert (ruling.answer, ruling.changed, ruling.provisional) == (None, None, False)
    assert give_back(gone, IGNORED, "a", "p1", ago(0)).changed is None


@pytest.mark.behaviour("WS-43")
@pytest.mark.parametrize(
    ("limits", "before", "subset", "after"),
    [
        pytest.param({"a": 3}, [entry("a", 3, 0)], "a", {"a": (1, [], ["p"])}, id="15"),
        pytest.param({"a": 3}, [entry("a", 3, 1, deleting="p")], "a", None, id="16"),
        pytest.param({"b": None}, [entry("b", None, -1)], "b", None, id="17"),
        pytest.param({"a": 3, "b": 3}, [entry("a", 3, 0), entry("b", 3, 0)], "x", None, id="18"),
        pytest.param({"a": 3}, [entry("a", 3, -2)], "a", {"a": (0, [], ["p"])}, id="more-than-its-places"),
        pytest.param({"a": "50%"}, [entry("a", 3, 0)], "a", {"a": (1, [], ["p"])}, id="percentage"),
        pytest.param({"a": 3}, [entry("a", 3, 1, creating="p")], "a", None, id="not-seen-yet"),
    ],
)
def test_a_deleted_pod_releases_its_place_once(
    limits: Limits, before: list[Json], subset: str, after: dict[str, Any] | None
) -> None:
    ruling = give_back(spread(limits, {IGNORED: before}), IGNORED, subset, "p", ago(0))
    assert ruling.answer is (after is not None)
    if after is None:
        assert ruling.changed is None
    else:
        assert statuses(ruling.changed) == after


@pytest.mark.behaviour("WS-25")
def test_a_single_unlimited_subset_needs_no_status() -> None:
    assert sole_subset(spread({"a": None})) == "a"
    assert sole_subset(spread({"a": 3})) == sole_subset(spread({"a": None, "b": None})) == ""


ORDINALS = [(0, "a", "b", "a"), (4, "a", "b", ""), (5, "b", "c", ""), (9, "b", "c", ""), (10, "c", "c", "")]


@pytest.mark.behaviour("WS-26")
@pytest.mark.parametrize(
    ("name", "all_open", "a_shut", "two_of_two"),
    [*((f"shop-{ordinal}", *chosen) for ordinal, *chosen in ORDINALS), ("shop", "a", "b", "a")],
)
def test_ordinals_are_placed_in_order(name: str, all_open: str, a_shut: str, two_of_two: str) -> None:
    three: Limits = {"a": 5, "b": 5, "c": None}
    shut = [{"name": "a", "replicas": 0, "missingReplicas": 5, "conditions": [condition("False")]}]
    assert by_ordinal(spread(three, kind="StatefulSet"), name) == all_open
    assert by_ordinal(spread(three, kind="StatefulSet", overall=shut), name) == a_shut
    assert by_ordinal(spread({"a": 2, "b": 2}, kind="StatefulSet"), name) == two_of_two


@pytest.mark.behaviour("WS-27", "WS-43")
@given(
    limits=st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=4),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=30),
)
def test_counted_pods_never_exceed_places(limits: list[int | None], moves: list[tuple[bool, int]]) -> None:
    names: Limits = {f"s{index}": limit for index, limit in enumerate(limits)}
    current, placed = spread(names), {}
    for coming, number in moves:
        name = f"p{number}"
        if coming:
            ruling = choose(current, NewPod(IGNORED, name, 0, ago(0)))
            if ruling.answer is not None:
                placed[name] = ruling.answer.subset
            current = ruling.changed or current
        elif name in placed:
            current = give_back(current, IGNORED, placed[name], name, ago(0)).changed or current
        for subset, limit in names.items():
            found = (current.status.versioned_subset_statuses or {}).get(IGNORED, []) if current.status else []
            one = next((each for each in found if each.name == subset), None)
            if limit is not None and one is not None:
                assert len(one.creating_pods or ()) - len(one.deleting_pods or ()) <= int(limit)
