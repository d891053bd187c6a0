"""Reserved Pods: which Pods, for how long, and the resulting allocation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from app.features.uniteddeployment.plan import allocation, rollout
from app.features.uniteddeployment.plan.rollout import Situation
from app.features.uniteddeployment.plan.status import (
    Limits,
    Outcome,
    Reservation,
    SubsetState,
    Updated,
    reservation,
    schedulability,
    status_of,
)
from app.features.uniteddeployment.plan.subsets import SubsetWorkload, decode_subset_workload
from app.features.uniteddeployment.types import UnitedDeployment, template_of
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.revisions import Revision
from app.workloads.settings import Revisions
from tests.features.uniteddeployment.world import united_spec
from tests.kit import objects

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LABEL = "apps.kruise.io/united-deployment-reserved-pod"
SUBSET = "apps.kruise.io/subset-name"
REVISION = "apps.kruise.io/controller-revision-hash"
LIMITS = Limits(30, 300)


def ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def pod(
    name: str = "p",
    *,
    label: str | None = None,
    old: bool = False,
    pending: float | None = None,
    ready: float | None = None,
    deleting: bool = False,
) -> Pod:
    """``pending`` and ``ready`` are the seconds in that state; without either, the Pod runs but is not ready."""
    labels = {REVISION: "web-1" if old else "web-2", **({} if label is None else {LABEL: label})}
    conditions: list[Json] = []
    if pending is not None:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    if ready is not None:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)})
    phase = "Pending" if pending is not None else "Running"
    times = {"creationTimestamp": ago(pending or 1000), "deletionTimestamp": ago(0) if deleting else None}
    return objects.pod(name, phase=phase, conditions=conditions, labels=labels, **times)


def found(
    *pods: Pod, held: int | None = 0, unschedulable: bool = False, updating: float = 0, written: Any = None
) -> Reservation:
    return reservation(
        pods,
        update="web-2",
        held=held,
        unschedulable=unschedulable,
        updating_since=NOW - timedelta(seconds=updating),
        limits=LIMITS,
        now=NOW,
        written=written or {},
    )


@pytest.mark.behaviour("UD-56")
@pytest.mark.parametrize(
    ("one", "unschedulable", "updating", "reserved", "again"),
    [
        pytest.param(pod(), False, 0, False, 0, id="running, nothing known"),
        pytest.param(pod(), True, 0, True, 0, id="new in a subset that was unschedulable"),
        pytest.param(pod(ready=400), True, 0, False, 0, id="new there, but ready for a long time"),
        pytest.param(pod(pending=31), False, 0, True, 0, id="unscheduled for too long"),
        pytest.param(pod(pending=31, label="false"), False, 0, True, 0, id="unscheduled for too long, labeled"),
        pytest.param(pod(pending=10), False, 0, False, 20, id="no node yet"),
        pytest.param(pod(old=True, ready=900), False, 99, False, 0, id="old, and the rollout is only slow"),
        pytest.param(pod(old=True, pending=99), False, 99, True, 0, id="old, unscheduled, late rollout"),
        pytest.param(pod(old=True, pending=99), False, 10, False, 20, id="old, unscheduled, young rollout"),
        pytest.param(pod(label="true", ready=301), False, 0, False, 0, id="ready for a long time again"),
        pytest.param(pod(label="true", ready=100), False, 0, True, 200, id="ready again"),
        pytest.param(pod(label="true"), False, 0, True, 0, id="reserved, not ready"),
        pytest.param(pod(label="true", old=True, ready=900), False, 0, True, 0, id="reserved, old: until replaced"),
        pytest.param(pod(label="what?", pending=10), False, 0, False, 20, id="a label without effect"),
    ],
)
def test_unscheduled_and_newly_created_pods_are_reserved(
    one: Pod, unschedulable: bool, updating: float, reserved: bool, again: float
) -> None:
    result = found(one, unschedulable=unschedulable, updating=updating)
    assert result.reserved == reserved
    assert result.again == pytest.approx(again, abs=0.01)
    known = {"true": True, "false": False}.get(one.metadata.labels.get(LABEL, ""))
    assert [label for _, label in result.labels] == ([] if known is reserved else [reserved])


def test_times_at_the_end_of_the_calendar_are_harmless() -> None:
    """Users may write any time to the statuses of their objects."""
    end = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW).total_seconds()
    assert found(pod(label="true", ready=-end), updating=-end).reserved
    before = {"type": "Schedulable", "status": "False", "lastTransitionTime": ago(-end)}
    assert allocation.schedulability(before, allocation.Pending(), 300, NOW).unschedulable


@pytest.mark.behaviour("UD-56", "UD-62")
def test_a_rollout_is_stuck_only_without_nodes_for_new_pods() -> None:
    olds = [pod("a", old=True, ready=900), pod("b", old=True, ready=900)]
    slow = found(*olds, pod("c"), updating=99)
    assert (slow.reserved, slow.overdue, slow.outdated) == (0, 0, 2)
    stuck = found(*olds, pod("c", pending=40), updating=99)
    assert (stuck.reserved, stuck.overdue, stuck.outdated) == (3, 2, 2)
    early = found(*olds, pod("c", pending=40), updating=10)
    assert (early.reserved, early.overdue) == (1, 0)
    assert early.again == pytest.approx(20, abs=0.01)


@pytest.mark.behaviour("UD-62")
def test_pods_held_by_the_partition_or_deleted_are_not_reserved() -> None:
    olds = [pod("a", old=True, ready=900), pod("b", old=True, ready=900), pod("c", old=True, pending=99)]
    new = pod("d", pending=40)
    kept = found(*olds, new, held=2, updating=99)
    assert kept.uids == {"uid-c", "uid-d"}
    assert found(*olds, new, held=None, updating=99).uids == {"uid-c", "uid-d"}
    assert found(pod("a", label="true", deleting=True)).reserved == 0


@pytest.mark.behaviour("UD-56")
def test_a_written_label_counts_despite_a_stale_cache() -> None:
    one = pod("a")
    assert found(one, written={"uid-a": True}).uids == {"uid-a"}
    assert not found(one, written={"uid-a": True}).labels


def condition(status: str, reason: str = "reschedule") -> Json:
    return {"type": "Schedulable", "status": status, "lastTransitionTime": ago(500), "reason": reason}


@pytest.mark.behaviour("UD-57", "UD-61")
@pytest.mark.parametrize(
    ("before", "pods", "wanted", "status", "moved", "unreliable"),
    [
        pytest.param(None, [pod()], 1, ("True", "no reserved pods"), True, 0, id="healthy"),
        pytest.param(None, [pod(pending=40)], 1, ("False", "reserved pods found"), True, 1, id="one is"),
        pytest.param(condition("False"), [pod(label="true")], 1, ("False", None), False, 1, id="still"),
        pytest.param(condition("False"), [pod(label="false")], 1, ("True", "no reserved pods"), True, 0, id="none now"),
        pytest.param(condition("False", "created"), [], 2, ("False", None), False, 2, id="not seen yet"),
        pytest.param(condition("False", "created"), [pod()], 2, ("False", None), True, 2, id="one of two seen"),
        pytest.param(condition("True"), [], 2, ("True", None), False, 0, id="schedulable, not seen yet"),
    ],
)
def test_the_schedulable_condition_follows_the_reserved_pods(
    before: Any, pods: list[Pod], wanted: int, status: Any, moved: bool, unreliable: int
) -> None:
    known = found(*pods, unschedulable=before is not None and before["status"] == "False")
    result, count = schedulability(before, known, wanted, NOW)
    assert result.condition is not None
    assert result.condition["status"] == status[0]
    assert result.unschedulable is (status[0] == "False")
    assert result.condition.get("message") == status[1] or not status[1]
    assert (result.condition["lastTransitionTime"] == rfc3339(NOW)) is moved
    assert count == unreliable


# ---- the whole plan


def united(subset: str, kind: str = "cloneSetTemplate", **more: Any) -> UnitedDeployment:
    spec = united_spec(6, kind)
    spec["template"][kind]["spec"] |= more
    spec["topology"] = {
        "subsets": [{"name": subset, "maxReplicas": 3}, {"name": "b"}],
        "scheduleStrategy": {"type": "Adaptive", "adaptive": {"reserveUnschedulablePods": True}},
    }
    return UnitedDeployment.model_validate({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": spec})


def workload(name: str, replicas: int, ready: int) -> SubsetWorkload:
    body = {
        "metadata": {"name": f"web-{name}-x", "labels": {"apps.kruise.io/subset-name": name, REVISION: "web-2"}},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "readyReplicas": ready},
    }
    return decode_subset_workload(orjson.dumps(body))


def situated(
    owner: UnitedDeployment, pods: dict[str, list[Pod]], status: Json | None = None, **replicas: int
) -> Situation:
    given = template_of(owner.spec)
    assert given is not None
    update = Revision("web-2", 2, b"")
    existing = {
        name: workload(name, count, sum(1 for one in pods[name] if one.condition("Ready")))
        for name, count in replicas.items()
    }
    here = Situation(owner, *given, Revisions(update, update, [update]), status or {}, existing, pods, NOW)
    return replace(here, **rollout.judged(here))


def statuses(**conditions: Json | None) -> Json:
    return {
        "subsetStatuses": [
            {"name": name, **({"conditions": [one]} if one is not None else {})} for name, one in conditions.items()
        ]
    }


def ready(prefix: str, count: int) -> list[Pod]:
    return [pod(f"{prefix}{index}", label="false", ready=900) for index in range(count)]


@pytest.mark.behaviour("UD-53")
def test_a_new_subset_gets_substitutes_until_its_pods_run() -> None:
    owner = united("new")
    here = situated(owner, {"b": ready("b", 6)}, statuses(b=condition("True")), b=6)
    assert (here.condition("new") or {})["reason"] == "created"
    assert rollout.allocated(here).replicas == {"new": 3, "b": 6}
    alone = situated(owner, {})
    assert alone.condition("new") is None
    assert rollout.allocated(alone).replicas == {"new": 3, "b": 3}


@pytest.mark.behaviour("UD-58")
@pytest.mark.parametrize(
    ("kind", "strategy", "wanted"),
    [
        pytest.param("cloneSetTemplate", {}, 3, id="CloneSet"),
        pytest.param("deploymentTemplate", {}, 3, id="Deployment"),
        pytest.param("deploymentTemplate", {"rollingUpdate": {"maxUnavailable": 5}}, 5, id="more allowed"),
        pytest.param("deploymentTemplate", {"type": "Recreate"}, None, id="all at once"),
        pytest.param("cloneSetTemplate", {"type": "OnDelete"}, None, id="by hand"),
    ],
)
def test_stuck_pods_do_not_block_a_rollout(kind: str, strategy: Json, wanted: int | None) -> None:
    field = "strategy" if kind == "deploymentTemplate" else "updateStrategy"
    owner = united("a", kind, **{field: strategy})
    pods = {"a": [pod("a0", old=True, ready=900), pod("a1", pending=40), pod("a2", pending=40)], "b": ready("b", 6)}
    rolling = {"conditions": [{"type": "UnitedDeploymentUpdated", "status": "False", "lastTransitionTime": ago(99)}]}
    status = statuses(a=condition("False"), b=condition("True")) | rolling
    here = situated(owner, pods, status, a=3, b=6)
    made, errors = rollout.wanted(here, {"a": 3, "b": 6})
    assert errors == {}
    built = made["a"].built
    given = (built.spec if built is not None else {}).get(field, {}).get("rollingUpdate", {}).get("maxUnavailable")
    assert (made["a"].max_unavailable, given) == (wanted, wanted)
    assert made["b"].max_unavailable is None


def status_after(
    present: Json, subsets: list[SubsetState], outcome: Outcome, updated: Updated, *, replicas: int, reserves: bool
) -> Json:
    return status_of(
        present,
        subsets,
        outcome,
        updated,
        revision="web-2",
        replicas=replicas,
        collisions=0,
        selector="app=web",
        reserves=reserves,
        generation=4,
        now=NOW,
    )


@pytest.mark.behaviour("UD-40", "UD-63", "UD-64")
def test_the_status_counts_working_pods_and_selects_them() -> None:
    states = [SubsetState("a", 3, 0, 3, 1, condition("False"), 2), SubsetState("b", 5, 0, 5, 5)]
    made = status_after({}, states, Outcome(), Updated(8, 6, 6), replicas=6, reserves=True)
    assert (made["replicas"], made["readyReplicas"], made["reservedPods"]) == (6, 6, 2)
    assert made["labelSelector"] == f"app=web,{LABEL}=false"
    assert made["subsetStatuses"][0]["reservedPods"] == 2
    assert "reservedPods" not in made["subsetStatuses"][1]


@pytest.mark.behaviour("UD-46", "UD-61", "UD-65", "UD-70")
def test_the_status_changes_its_revision_when_all_pods_are_ready() -> None:
    def made(present: Json, updated_ready: int, outcome: Outcome) -> Json:
        subsets = [SubsetState("a", 2, 0, 2, 2), SubsetState("b", 1, 0, 1, 1)]
        updated = Updated(3, updated_ready, updated_ready)
        return status_after(present, subsets, outcome, updated, replicas=3, reserves=False)

    first = made({"currentRevision": "web-1"}, 2, Outcome(changed=True))
    assert (first["currentRevision"], first["replicas"], first["readyReplicas"]) == ("web-1", 3, 3)
    conditions = {one["type"]: (one["status"], one.get("reason", "")) for one in first["conditions"]}
    assert conditions == {
        "UnitedDeploymentUpdated": ("False", "UnitedDeploymentRevisionUpdating"),
        "SubsetProvisioned": ("True", ""),
        "SubsetUpdated": ("True", ""),
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "UnitedDeploymentProgressing"),
    }
    second = made(first, 3, Outcome())
    assert second["currentRevision"] == "web-2"
    failed = made(second, 3, Outcome(error="no"))
    assert next(one for one in failed["conditions"] if one["type"] == "SubsetUpdated")["reason"] == "Error"
    assert made(failed, 3, Outcome(error="no")) == failed
