"""Status counters and conditions."""

from datetime import UTC, datetime, timedelta

import pytest

from app.features.cloneset.plan.diff import rollout_state
from app.features.cloneset.plan.settings import Settings
from app.features.cloneset.plan.status import REQUIRED, Counts, base_status, progress
from app.pods.revisions import Revision
from app.workloads.settings import Revisions
from app.workloads.status import status_patch, with_failures
from tests.features.cloneset.samples import NEW, OLD, pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def status(numbers: Counts, *, replicas: int = 3, partition: int = 0, update: str = "web-b") -> dict:
    return base_status(
        numbers,
        Revisions(Revision("web-a", 1, b""), Revision(update, 2, b""), ()),
        generation=2,
        replicas=replicas,
        partition=partition,
        label_selector="app=web",
    )


@pytest.mark.behaviour("CS-144")
def test_pods_are_counted_for_the_status() -> None:
    pods = [pod(OLD), pod(NEW, ready=True, lifecycle="Updated"), pod(NEW), pod(NEW, available=False)]
    assert rollout_state(pods, Settings(replicas=4), OLD, NEW, 0.0).counts == Counts(4, 3, 2, 3, 2, 1)


@pytest.mark.behaviour("CS-145", "CS-73")
def test_the_update_revision_becomes_current_when_all_pods_have_it() -> None:
    assert status(Counts(3, 0, 0, 3, 0, 0))["currentRevision"] == "web-b"
    assert status(Counts(3, 3, 3, 2, 2, 2))["currentRevision"] == "web-a"
    assert status(Counts(4, 4, 4, 4, 4, 4))["currentRevision"] == "web-a"
    assert status(Counts(), replicas=0)["currentRevision"] == "web-b"


@pytest.mark.behaviour("CS-146")
def test_the_partition_lowers_the_expected_updated_replicas() -> None:
    assert status(Counts(), partition=2)["expectedUpdatedReplicas"] == 1


@pytest.mark.behaviour("CS-148")
def test_only_differences_are_written() -> None:
    wanted = status(Counts(3, 3, 3, 3, 3, 0))
    present = {key: value for key, value in wanted.items() if key != "updatedAvailableReplicas"}
    assert status_patch(present, wanted, required=REQUIRED) == {}
    assert status_patch({**present, "updatedAvailableReplicas": 2, "readyReplicas": 1}, wanted, required=REQUIRED) == {
        "readyReplicas": 3,
        "updatedAvailableReplicas": None,
    }
    assert status_patch({}, wanted, required=REQUIRED)["replicas"] == 3


@pytest.mark.behaviour("CS-149", "CS-150")
def test_failure_conditions_appear_and_clear() -> None:
    kept = {"type": "Other", "status": "True"}
    first = with_failures([kept], {"FailedScale": "no quota"}, NOW)
    assert first == [
        kept,
        {"type": "FailedScale", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z", "message": "no quota"},
    ]
    later = NOW + timedelta(seconds=9)
    assert with_failures(first, {"FailedScale": "no quota"}, later) == first
    assert with_failures(first, {"FailedScale": "other"}, later)[1]["message"] == "other"
    assert with_failures(first, {"FailedScale": None}, later) == [kept]


def judged(old: dict, new: dict, conditions: list, *, paused: bool = False, deadline: int | None = 10, seconds=0):
    result = progress(
        old, new, conditions, replicas=3, paused=paused, deadline=deadline, now=NOW + timedelta(seconds=seconds)
    )
    found = [c for c in result.conditions if c["type"] == "Progressing"]
    return (found[0] if found else None), result.requeue_after


MOVING = status(Counts(3, 3, 3, 1, 1, 1))


@pytest.mark.behaviour("CS-152")
@pytest.mark.parametrize("deadline", [None, 2147483647])
def test_without_a_deadline_there_is_no_condition(deadline: int | None) -> None:
    assert judged({}, MOVING, [{"type": "Progressing", "status": "True"}], deadline=deadline) == (None, 0.0)


@pytest.mark.behaviour("CS-153")
@pytest.mark.parametrize(("new", "paused", "reason", "message"), [
    (status(Counts(3, 3, 3, 3, 3, 3)), True, "CloneSetAvailable", "CloneSet is available"),
    (MOVING, True, "CloneSetPaused", "CloneSet is paused"),
    (status(Counts(3, 3, 3, 1, 1, 1), partition=2), False, "ProgressPartitionAvailable",
     "CloneSet has been paused due to partition ready"),
    (MOVING, False, "CloneSetUpdated", "CloneSet is progressing"),
])  # fmt: skip
def test_the_progressing_condition_has_a_reason_and_a_message(
    new: dict, paused: bool, reason: str, message: str
) -> None:
    found, _ = judged({}, new, [], paused=paused)
    assert (found["status"], found["reason"], found["message"]) == ("True", reason, message)


@pytest.mark.behaviour("CS-153", "CS-154", "CS-155")
def test_a_rollout_without_progress_exceeds_its_deadline() -> None:
    found, again = judged({}, MOVING, [])
    assert again == 11
    still, again = judged(MOVING, MOVING, [found], seconds=5)
    assert (still, again) == (found, 6)
    over, again = judged(MOVING, MOVING, [found], seconds=11)
    assert (over["status"], over["reason"], again) == ("False", "ProgressDeadlineExceeded", 0.0)
    assert over["message"] == "CloneSet revision web-b has timed out progressing"
    further = status(Counts(3, 3, 3, 2, 1, 1))
    again_moving, _ = judged(MOVING, further, [over], seconds=20)
    assert again_moving["reason"] == "CloneSetUpdated"


@pytest.mark.behaviour("CS-155")
def test_a_new_rollout_is_not_late_at_once() -> None:
    done = status(Counts(3, 3, 3, 3, 3, 3))
    available, _ = judged({}, done, [])
    newer = status(Counts(3, 3, 3, 0, 0, 0), update="web-c")
    found, again = judged(done, newer, [available], seconds=3600)
    assert (found["reason"], again) == ("CloneSetUpdated", 11)
    assert found["lastUpdateTime"] == "2026-01-01T13:00:00Z"


@pytest.mark.behaviour("CS-155")
def test_time_spent_paused_does_not_count() -> None:
    paused, _ = judged({}, MOVING, [], paused=True)
    found, again = judged(MOVING, MOVING, [paused], seconds=3600)
    assert (found["reason"], again) == ("CloneSetUpdated", 11)
