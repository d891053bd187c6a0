"""The status of a budget: available Pods, required Pods, allowed disruptions and outstanding grants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.podunavailablebudget.budgets import MAX_BUDGETS, Grants
from app.features.podunavailablebudget.plan.pods import PodFacts, RunningContainer
from app.features.podunavailablebudget.plan.status import (
    MAX_ENTRIES,
    UNKNOWN,
    Expected,
    Observed,
    Seen,
    desired_available,
    first_seen,
    recompute,
    track,
)
from app.kube.quantities import IntOrPercentError
from app.kube.resources import ObjectKey
from tests.features.podunavailablebudget.samples import NOW, ago, budget, facts

KEY = ObjectKey("web", "shop")


def pods(count: int, *, unready: int = 0) -> dict[str, Any]:
    """``count`` Pods, of which the last ``unready`` are not healthy."""
    return {f"p{i}": facts(f"p{i}", healthy=i < count - unready) for i in range(count)}


def available(pod: PodFacts, seen: dict[str, Seen], noted: str = "") -> int:
    """Return the number of available Pods of a budget whose only Pod, p0, may be updated."""
    given_ = budget(unavailable={"p0": noted or ago(0)})
    return recompute(given_, Observed({"p0": pod}, Expected(1), NOW, seen=seen)).status.current_available


#: § B5: expected Pods, existing Pods, spec, whether 20 are in flight, not ready → desired, current, allowed.
EXAMPLES = [
    (15, 15, {"maxUnavailable": "10%"}, False, 0, (13, 15, 2)),
    (10, 10, {"maxUnavailable": 100}, False, 0, (0, 10, 10)),
    (10, 10, {"minAvailable": 100}, False, 0, (100, 10, 0)),
    (100, 100, {"maxUnavailable": "30%"}, True, 0, (70, 80, 10)),
    (100, 100, {"maxUnavailable": "30%"}, True, 5, (70, 75, 5)),
    (0, 10, {"maxUnavailable": "30%"}, False, 0, (0, 10, 10)),
    (0, 0, {"maxUnavailable": "30%"}, False, 0, (0, 0, 0)),
    (10, 10, {"minAvailable": "25%"}, False, 0, (3, 10, 7)),
    (10, 10, {"minAvailable": 9}, False, 0, (9, 10, 1)),
    (5, 5, {"maxUnavailable": 0}, False, 0, (5, 5, 0)),
    (5, 5, {"maxUnavailable": "100%"}, False, 2, (0, 3, 3)),
]


@pytest.mark.behaviour("PUB-42", "PUB-43")
@pytest.mark.parametrize(("expected", "count", "spec", "in_flight", "unready", "numbers"), EXAMPLES)
def test_the_status_matches_the_worked_examples(
    expected: int, count: int, spec: dict[str, Any], in_flight: bool, unready: int, numbers: tuple[int, int, int]
) -> None:
    disrupted, unavailable = ({f"p{i}": ago(1) for i in some if in_flight} for some in (range(10), range(10, 20)))
    given_ = budget(disrupted=disrupted, unavailable=unavailable, **{"maxUnavailable": None, **spec})
    status = recompute(given_, Observed(pods(count, unready=unready), Expected(expected), NOW)).status
    assert (status.desired_available, status.current_available, status.unavailable_allowed) == numbers
    assert status.total_replicas == expected
    assert (status.disrupted_pods or {}, status.unavailable_pods or {}) == (disrupted, unavailable)


@pytest.mark.behaviour("PUB-37")
def test_a_workload_without_replicas_is_protected_only_by_an_explicit_number() -> None:
    observed = Observed(pods(5), Expected(UNKNOWN), NOW)
    assert recompute(budget(), observed).status.desired_available == 0
    assert recompute(budget(protectTotalReplicas=5), observed).status.desired_available == 4


@pytest.mark.behaviour("PUB-33", "PUB-34")
def test_the_number_in_the_budget_overrides_the_workloads() -> None:
    status = recompute(budget(protectTotalReplicas=20), Observed(pods(10), Expected(10), NOW)).status
    assert (status.total_replicas, status.desired_available, status.unavailable_allowed) == (20, 19, 0)
    by_annotation = budget(annotations={"pub.kruise.io/protect-total-replicas": "20"})
    assert recompute(by_annotation, Observed(pods(10), Expected(10), NOW)).status.total_replicas == 20


@pytest.mark.behaviour("PUB-96", "PUB-125")
@pytest.mark.parametrize("value", [3, "50%"])
def test_a_deleted_workload_needs_no_pods(value: int | str) -> None:
    going = budget(maxUnavailable=None, minAvailable=value)
    assert recompute(going, Observed({}, Expected(0, gone=True), NOW)).status.desired_available == 0
    # The number of desired Pods does not protect Pods of a deleted workload.
    for named in ({}, {"maxUnavailable": None, "minAvailable": value}):
        status = recompute(budget(protectTotalReplicas=5, **named), Observed({}, Expected(0, gone=True), NOW)).status
        assert (status.desired_available, status.total_replicas) == (0, 5)
    # Scaled to zero the workload still exists, and an absolute number still counts.
    scaled = recompute(going, Observed({}, Expected(0), NOW)).status
    assert scaled.desired_available == (3 if value == 3 else 0)


@pytest.mark.behaviour("PUB-53")
@pytest.mark.parametrize("field", ["maxUnavailable", "minAvailable"])
@pytest.mark.parametrize("gone", [True, False])
def test_an_unreadable_stored_value_is_reported(field: str, gone: bool) -> None:
    bad = budget(**{"maxUnavailable": None, field: "many"})
    with pytest.raises(IntOrPercentError):
        recompute(bad, Observed({}, Expected(1, gone=gone), NOW))


@pytest.mark.behaviour("PUB-58")
def test_without_a_difference_the_same_status_is_returned() -> None:
    given_ = budget(allowed=1, desired=9, current=10, total=10)
    assert recompute(given_, Observed(pods(10), Expected(10), NOW)).status is given_.status
    newer = budget(generation=2)
    assert recompute(newer, Observed(pods(10), Expected(10), NOW)).status.observed_generation == 2
    assert recompute(budget(observed=None), Observed(pods(10), Expected(10), NOW)).status.unavailable_allowed == 1


# ---- in flight


@pytest.mark.behaviour("PUB-54")
def test_names_of_deleted_pods_are_dropped() -> None:
    noted = {"gone": ago(1), "ended": ago(1), "there": ago(1), "other": ago(1)}
    before = {
        "gone": first_seen(ago(1), facts("gone")),
        "other": first_seen(ago(1), facts("other", uid="another Pod of that name")),
    }
    found = {"ended": facts("ended", active=False), "there": facts("there"), "other": facts("other")}
    for spec in ({"disrupted": noted}, {"unavailable": noted}):
        given_ = budget(**spec)  # type: ignore[arg-type]
        status = recompute(given_, Observed(found, Expected(10), NOW, seen=before)).status
        assert set(status.disrupted_pods or status.unavailable_pods or {}) == {"there"}
        assert status.current_available == 1  # the next Pod of that name, without a grant


@pytest.mark.behaviour("PUB-54")
def test_a_pod_missing_in_the_cache_keeps_its_entry() -> None:
    """The replica that granted the deletion saw the Pod. If the entry were dropped, it would be granted twice."""
    given_ = budget(disrupted={"new": ago(1)})
    first = recompute(given_, Observed(pods(3), Expected(4), NOW))
    assert first.status.disrupted_pods == {"new": ago(1)}
    then = recompute(given_, Observed({**pods(3), "new": facts("new")}, Expected(4), NOW))
    assert (then.status.current_available, then.status.disrupted_pods) == (3, {"new": ago(1)})
    assert (
        recompute(budget(disrupted={"new": ago(21)}), Observed(pods(3), Expected(4), NOW)).status.disrupted_pods is None
    )


@pytest.mark.behaviour("PUB-55")
def test_a_pod_that_survives_its_granted_deletion_counts_again_and_is_reported() -> None:
    given_ = budget(disrupted={"p0": ago(20), "p1": ago(21)})
    waiting = recompute(given_, Observed(pods(3), Expected(3), NOW))
    # Exactly 20 s is still in time; the other Pod must be read first.
    assert waiting.status.disrupted_pods == {"p0": ago(20), "p1": ago(21)}
    assert (waiting.overdue, waiting.status.current_available) == (("p1",), 1)
    assert waiting.again_after is not None
    assert waiting.again_after < 0.1
    found = recompute(given_, Observed(pods(3), Expected(3), NOW, confirmed={"p1": facts("p1")}))
    assert (found.not_deleted, found.status.current_available) == (("p1",), 2)
    assert found.status.disrupted_pods == {"p0": ago(20)}


@pytest.mark.behaviour("PUB-55")
@pytest.mark.parametrize("live", [None, facts("p1", active=False)])
def test_an_unseen_deletion_is_not_counted_from_a_stale_cache(live: Any) -> None:
    given_ = budget(disrupted={"p1": ago(21)})
    found = recompute(given_, Observed(pods(3), Expected(3), NOW, confirmed={"p1": live}))
    assert (found.not_deleted, found.status.current_available, found.status.disrupted_pods) == ((), 2, None)


@pytest.mark.behaviour("PUB-56")
def test_a_granted_update_is_checked_after_ten_seconds() -> None:
    fresh, old = budget(unavailable={"p0": ago(10)}), budget(unavailable={"p0": ago(11)})
    assert recompute(fresh, Observed(pods(3), Expected(3), NOW)).status.unavailable_pods == {"p0": ago(10)}
    assert recompute(old, Observed(pods(3), Expected(3), NOW)).overdue == ("p0",)
    found = recompute(old, Observed(pods(3), Expected(3), NOW, confirmed={"p0": facts("p0", healthy=False)}))
    assert (found.status.unavailable_pods, found.status.current_available) == (None, 2)
    assert found.not_deleted == ()


@pytest.mark.behaviour("PUB-56")
@pytest.mark.parametrize(
    ("stages", "counted"),
    [
        pytest.param(
            [
                facts("p0"),
                facts("p0", generation=2),
                facts("p0", generation=2, healthy=False),
                facts("p0", generation=2, since=0),
            ],
            [0, 0, 0, 1],
            id="an observed outage ends the grant at once",
        ),
        pytest.param(
            [
                facts("p0"),
                facts("p0", healthy=False),
                facts("p0", since=1),
                facts("p0", generation=2, since=1),
                facts("p0", generation=2, since=0),
            ],
            [0, 0, 0, 0, 1],
            id="an outage before the update does not, but an unobserved one after it",
        ),
    ],
)
def test_an_observed_update_releases_its_grant(stages: list[PodFacts], counted: list[int]) -> None:
    noted = ago(2)
    seen: dict[str, Seen] = {}
    found = []
    for stage in stages:
        seen = track({"p0": noted}, {"p0": stage}, seen)
        found.append(available(stage, seen, noted))
    assert found == counted


def runs(
    image: str = "nginx:2", container_id: str = "new", image_id: str = "x", *, ready: bool = True, current: bool = True
) -> RunningContainer:
    return RunningContainer("main", image, container_id, image_id, ready=ready, current=current)


BEFORE = runs("nginx:1", "old")
SIDECAR = RunningContainer("agent", "agent:1", "agent-1", "y", ready=True, current=True)


@pytest.mark.behaviour("PUB-56")
@pytest.mark.parametrize(
    ("before", "after", "back"),
    [
        pytest.param((BEFORE,), (runs(),), True, id="replaced"),
        pytest.param((BEFORE,), (runs(current=False),), False, id="replaced-with-the-former-image"),
        pytest.param((BEFORE,), (runs(current=False, image_id="z"),), True, id="another-image-under-another-name"),
        pytest.param((BEFORE,), (runs(container_id="old"),), False, id="the-same-container"),
        pytest.param((BEFORE,), (runs(ready=False, current=False, image_id="z"),), False, id="not-ready"),
        pytest.param((BEFORE,), (runs("nginx:1"),), False, id="no-other-image"),
        pytest.param((BEFORE,), (), False, id="nothing-runs"),
        pytest.param((), (runs(),), False, id="nothing-ran"),
        pytest.param((BEFORE, SIDECAR), (runs(), SIDECAR), True, id="one-of-two"),
        pytest.param(
            (BEFORE, SIDECAR), (runs(), replace(SIDECAR, image="agent:2")), False, id="one-of-two-that-are-changed"
        ),
    ],
)
def test_an_unobserved_update_is_recognized_by_what_runs(
    before: tuple[RunningContainer, ...], after: tuple[RunningContainer, ...], back: bool
) -> None:
    noted = {"p0": ago(0)}
    seen = track(noted, {"p0": replace(facts("p0"), running=before)}, {})
    later = replace(facts("p0", generation=2), running=after)
    seen = track(noted, {"p0": later}, seen)
    assert available(later, seen) == back


@pytest.mark.behaviour("PUB-55")
def test_an_update_does_not_end_the_grant_of_a_deletion() -> None:
    noted = {"p0": ago(0)}
    seen = track(noted, {"p0": replace(facts("p0"), running=(BEFORE,))}, {})
    later = replace(facts("p0", generation=2), running=(runs(),))
    seen = track(noted, {"p0": later}, seen)
    found = recompute(budget(disrupted=noted), Observed({"p0": later}, Expected(1), NOW, seen=seen))
    assert found.status.disrupted_pods == noted


@pytest.mark.behaviour("PUB-56")
@pytest.mark.parametrize(
    ("noted", "uid", "back"), [(ago(0), "uid-p0", True), (ago(1), "uid-p0", False), (ago(0), "uid-other", False)]
)
def test_a_grant_is_compared_with_the_pod_at_that_moment(noted: str, uid: str, back: bool) -> None:
    grants = Grants()
    grants.note(KEY, noted, replace(facts("p0", uid=uid), running=(BEFORE,)))
    later = replace(facts("p0", generation=2), running=(runs(),))
    seen = track({"p0": ago(0)}, {"p0": later}, {}, grants.of(KEY))
    assert available(later, seen) == back


@pytest.mark.behaviour("PUB-56")
def test_earlier_observations_do_not_end_a_later_grant() -> None:
    before, later = replace(facts("p0"), running=(BEFORE,)), replace(facts("p0", generation=2), running=(runs(),))
    seen = track({"p0": ago(3)}, {"p0": before}, {})
    seen = track({"p0": ago(3)}, {"p0": later}, seen)
    for noted, current in ((ago(3), 1), (ago(1), 0)):
        assert available(later, seen, noted) == current


@pytest.mark.behaviour("PUB-56", "PUB-64")
def test_a_finished_update_does_not_end_the_next_in_the_same_second() -> None:
    """The Pod has returned from one update and may be updated again without a charge; the second one is waited for."""
    grants, noted = Grants(), {"p0": ago(0)}
    grants.note(KEY, ago(0), replace(facts("p0"), running=(BEFORE,)))
    back = replace(facts("p0", generation=2), running=(runs(),))
    seen = track(noted, {"p0": back}, {}, grants.of(KEY))
    assert grants.latest(KEY, seen) == seen
    grants.note(KEY, ago(0), back)
    assert grants.latest(KEY, seen) == {}
    again = track(noted, {"p0": back}, seen, grants.of(KEY))
    assert grants.latest(KEY, again) == again
    assert available(back, again) == 0
    later = replace(facts("p0", generation=3), running=(runs("nginx:3", "newer"),))
    again = track(noted, {"p0": later}, again, grants.of(KEY))
    assert available(later, again) == 1


@pytest.mark.behaviour("PUB-56")
def test_grants_are_dropped_with_their_entries_and_limited() -> None:
    grants = Grants()
    for number in range(MAX_ENTRIES + 5):
        grants.note(KEY, ago(0), facts(f"p{number}"))
    assert len(grants.of(KEY)) == MAX_ENTRIES
    grants.keep(KEY, {"p9", "p10", "p0"})
    assert set(grants.of(KEY)) == {"p9", "p10"}
    for number in range(MAX_BUDGETS):
        grants.note(ObjectKey("web", f"b{number}"), ago(0), facts("p0"))
    assert not grants.of(KEY)
    grants.keep(ObjectKey("web", "b1"), ())
    assert not grants.of(ObjectKey("web", "b1"))


@pytest.mark.behaviour("PUB-57")
def test_the_status_is_computed_again_when_the_first_entry_expires() -> None:
    given_ = budget(disrupted={"p0": ago(1), "p1": ago(12)}, unavailable={"p2": ago(1)})
    again = recompute(given_, Observed(pods(3), Expected(3), NOW)).again_after
    assert again is not None
    assert 8 <= again < 8.1
    assert recompute(budget(), Observed(pods(3), Expected(3), NOW)).again_after is None


@pytest.mark.behaviour("PUB-54")
@pytest.mark.parametrize(
    "noted", ["", "soon", "9999-01-01T00:00:00Z", "2026-01-01", "0001-01-01T00:00:00Z", "x" * 10_000]
)
def test_an_invalid_grant_time_has_no_effect(noted: str) -> None:
    garbage = {"nobody": noted, "p0": noted}
    found = recompute(budget(disrupted=garbage, unavailable=garbage), Observed(pods(3), Expected(3), NOW))
    assert set(found.status.disrupted_pods or {}) == {"p0"}
    observed = Observed(pods(3), Expected(3), NOW, confirmed={"p0": facts("p0")})
    found = recompute(budget(disrupted=garbage, unavailable=garbage), observed)
    assert (found.status.disrupted_pods, found.status.unavailable_pods) == (None, None)
    assert found.status.current_available == 3


@pytest.mark.behaviour("PUB-57")
def test_a_fast_clock_does_no_harm() -> None:
    ahead = budget(disrupted={"p0": ago(-5)})
    found = recompute(ahead, Observed(pods(3), Expected(3), NOW))
    assert found.status.disrupted_pods == {"p0": ago(-5)}
    assert found.again_after is not None
    assert found.again_after <= 20.1


_value = st.integers(0, 120) | st.integers(0, 100).map(lambda number: f"{number}%")


@pytest.mark.behaviour("PUB-43")
@given(_value, st.booleans(), st.integers(-1, 100))
def test_the_required_number_is_not_negative_and_grows_with_the_workload(
    value: Any, least: bool, replicas: int
) -> None:
    def desired(of: int) -> int:
        return desired_available(None if least else value, value if least else None, Expected(of))

    assert 0 <= desired(replicas) <= desired(replicas + 1)


@pytest.mark.behaviour("PUB-42")
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["", "d", "u"])), max_size=30),
    _value,
    st.integers(0, 40),
)
def test_allowed_and_pending_disruptions_never_exceed_the_limit(
    given_: list[tuple[bool, bool, str]], value: Any, replicas: int
) -> None:
    found = {f"p{i}": facts(f"p{i}", active=a, healthy=h) for i, (a, h, _) in enumerate(given_)}
    maps = {kind: {f"p{i}": ago(1) for i, one in enumerate(given_) if one[2] == kind} for kind in "du"}
    status = recompute(
        budget(disrupted=maps["d"], unavailable=maps["u"], maxUnavailable=value),
        Observed(found, Expected(replicas), NOW),
    ).status
    healthy = sum(pod.active and pod.healthy and pod.name not in maps["d"] | maps["u"] for pod in found.values())
    assert status.current_available == healthy
    if status.unavailable_allowed:
        assert healthy - status.unavailable_allowed >= status.desired_available
