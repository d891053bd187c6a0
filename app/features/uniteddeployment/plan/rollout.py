"""Rollout of a UnitedDeployment: observed state, the desired workload of each subset, and explanations. Pure."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.features.uniteddeployment.defaults import RESCHEDULE_CRITICAL_SECONDS, UNSCHEDULABLE_SECONDS
from app.features.uniteddeployment.plan import allocation
from app.features.uniteddeployment.plan.allocation import Schedulability, pending_pods
from app.features.uniteddeployment.plan.status import (
    CREATED,
    UNITED_UPDATED,
    Limits,
    Reservation,
    is_marked,
    marked_condition,
    reservation,
    schedulability,
    schedulable_conditions,
)
from app.features.uniteddeployment.plan.subsets import (
    STATEFUL,
    SubsetError,
    SubsetWorkload,
    Wanted,
    built_workload,
    is_held,
    needs_update,
    partition_of,
    patch_text,
    tolerated_unavailable,
)
from app.features.uniteddeployment.types import (
    ADAPTIVE,
    DEPLOYMENT,
    Subset,
    UnitedDeployment,
)
from app.kube.clock import parsed_rfc3339
from app.kube.jsonvalues import json_size
from app.kube.objects import Pod
from app.kube.text import first_of
from app.pods.predicates import is_active, is_ready
from app.workloads.settings import Revisions

# Observed state of a UnitedDeployment, and the desired state of each subset. [UD-35, UD-47, UD-53 … UD-58]


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs to one reconcile."""

    united: UnitedDeployment
    #: Name of the template that is set, and its content.
    kind: str
    template: Mapping[str, Any]
    revisions: Revisions
    status: Mapping[str, Any]
    #: Existing workloads and their Pods, by subset.
    existing: Mapping[str, SubsetWorkload]
    pods: Mapping[str, Sequence[Pod]]
    now: datetime
    #: Labels of reserved Pods that were written but are not in the cache yet, by UID.
    labels: Mapping[str, bool] = field(default_factory=dict)
    #: Computed by :func:`judged`.
    schedulable: Mapping[str, Schedulability] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    #: Number of Pods that may be unable to run, by subset.
    unreliable: Mapping[str, int] = field(default_factory=dict)

    @property
    def subsets(self) -> Sequence[Subset]:
        return self.united.spec.subsets

    @property
    def adapts(self) -> bool:
        """Whether unschedulable Pods are moved to other subsets."""
        return self.united.spec.schedule_strategy.type == ADAPTIVE

    @property
    def reserves(self) -> bool:
        """Whether unschedulable Pods are kept while substitutes run in other subsets. [UD-14]"""
        given = self.united.spec.schedule_strategy.adaptive
        return self.adapts and given is not None and given.reserve_unschedulable_pods and self.kind not in STATEFUL

    @property
    def limits(self) -> Limits:
        given = self.united.spec.schedule_strategy.adaptive
        critical = given.reschedule_critical_seconds if given is not None else None
        duration = given.unschedulable_duration if given is not None else None
        return Limits(
            RESCHEDULE_CRITICAL_SECONDS if critical is None else critical,
            UNSCHEDULABLE_SECONDS if duration is None else duration,
        )

    def partition(self, subset: str, replicas: int) -> int:
        """Return the partition of a subset. [UD-47]"""
        return max(0, min(self.united.spec.partitions.get(subset, 0), replicas))

    def condition(self, subset: str) -> Mapping[str, Any] | None:
        found = self.schedulable.get(subset)
        return found.condition if found is not None else None

    def reserved_pods(self, subset: str) -> frozenset[str]:
        """Return the UIDs of Pods that are replaced in other subsets."""
        found = self.reservations.get(subset)
        return found.uids if found is not None else frozenset()


def judged(found: Situation) -> Mapping[str, Any]:
    """Compute the schedulability of each subset. Return new values for fields of the Situation, by name."""
    if found.reserves:
        return _judged_with_reservation(found)
    if not found.adapts:
        return {}
    limits, before = found.limits, schedulable_conditions(found.status)
    return {
        "schedulable": {
            name: allocation.schedulability(
                before.get(name),
                pending_pods(found.pods.get(name, ()), limits.critical, found.now),
                limits.duration,
                found.now,
            )
            for name in found.existing
        }
    }


def _judged_with_reservation(found: Situation) -> Mapping[str, Any]:
    """Like :func:`judged`, for a UnitedDeployment that reserves unschedulable Pods. [UD-53, UD-56, UD-57]"""
    conditions = schedulable_conditions(found.status)
    schedulable: dict[str, Schedulability] = {}
    reservations: dict[str, Reservation] = {}
    unreliable: dict[str, int] = {}
    for subset in found.subsets:
        name = subset.name
        before, workload = conditions.get(name), found.existing.get(name)
        if workload is None:
            # It is still unknown whether the Pods of a new subset can run. [UD-53]
            if before is None and found.status.get("subsetStatuses"):
                before = marked_condition(None, True, "subset was just created", found.now, reason=CREATED)
            schedulable[name] = Schedulability(False, before)
            continue
        replicas = workload.replicas
        reservations[name] = reservation(
            found.pods.get(name, ()),
            update=found.revisions.update.name,
            held=None if is_held(found.kind, found.template) else found.partition(name, replicas),
            unschedulable=is_marked(before),
            updating_since=_updating_since(found),
            limits=found.limits,
            now=found.now,
            written=found.labels,
        )
        schedulable[name], unreliable[name] = schedulability(before, reservations[name], replicas, found.now)
    return {"schedulable": schedulable, "reservations": reservations, "unreliable": unreliable}


def allocated(found: Situation) -> allocation.Allocation:
    """Return the number of Pods of each subset. Raises ShareError. [UD-35]"""
    subsets, conditions = [], schedulable_conditions(found.status)
    for subset in found.subsets:
        workload, known = found.existing.get(subset.name), found.schedulable.get(subset.name)
        joins = workload is None and known is not None and is_marked(known.condition)
        subsets.append(
            allocation.Subset(
                subset.name,
                subset.replicas,
                subset.min_replicas,
                subset.max_replicas,
                exists=workload is not None,
                current=workload.replicas if workload is not None else 0,
                ready=workload.status.ready_replicas if workload is not None else 0,
                unschedulable=known is not None and known.unschedulable,
                reserved=found.unreliable.get(subset.name, 0),
                marked=joins or is_marked(conditions.get(subset.name)),
            )
        )
    return allocation.allocate(found.united.spec.replicas, subsets, adaptive=found.adapts, reserve=found.reserves)


def wanted(
    found: Situation, replicas: Mapping[str, int], *, build_bytes: int = sys.maxsize, last: Collection[str] = ()
) -> tuple[dict[str, Wanted], dict[str, str]]:
    """Return the desired workload of each subset, and errors by subset for those that cannot be built.

    Workloads that must be written are built only until their total size reaches ``build_bytes``, because a thousand
    copies of a large template would take a minute and gigabytes of memory. Subsets in ``last`` come last.
    """
    made: dict[str, Wanted] = {}
    errors: dict[str, str] = {}
    for subset in sorted(found.subsets, key=lambda one: one.name in last):
        count, workload = replicas[subset.name], found.existing.get(subset.name)
        one = Wanted(
            subset.name,
            count,
            found.partition(subset.name, count),
            found.template,
            found.revisions.update.name,
            patch_text(subset),
            _max_unavailable(found, subset.name, count),
        )
        if workload is None or needs_update(found.kind, workload, one):
            if build_bytes <= 0:
                one = replace(one, later=True)
            else:
                try:
                    built = built_workload(found.kind, found.united.spec.selector, subset, one)
                except SubsetError as error:
                    build_bytes -= json_size(found.template)
                    errors[subset.name] = str(error)
                    continue
                build_bytes -= json_size((built.labels, built.annotations, built.spec))
                one = replace(one, built=built)
        made[subset.name] = one
    return made, errors


def _max_unavailable(found: Situation, subset: str, replicas: int) -> int | None:
    """Return the maxUnavailable to set while an unschedulable subset is rolled out. [UD-58]"""
    known, reserved = found.schedulable.get(subset), found.reservations.get(subset)
    workload = found.existing.get(subset)
    if known is None or not known.unschedulable or reserved is None or not reserved.outdated or workload is None:
        return None
    stuck = max(0, replicas - workload.status.ready_replicas) + reserved.overdue
    return tolerated_unavailable(found.kind, found.template, replicas, stuck)


def _updating_since(found: Situation) -> datetime:
    """Return when the rollout began, or now if it is not in the status yet."""
    conditions = found.status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, Mapping) and one.get("type") == UNITED_UPDATED and one.get("status") == "False":
            return parsed_rfc3339(one.get("lastTransitionTime")) or found.now
    return found.now


COLUMNS: Final = ("subset", "workload", "wanted", "pods", "ready", "updated", "partition", "reserved", "share", "state")


def steps(
    here: Situation, wanted: Mapping[str, Wanted], surplus: Sequence[SubsetWorkload]
) -> list[tuple[str, str, str, str]]:
    """Return the next writes in the order of the topology: subset, workload, action and reason."""
    rows = []
    for subset in here.subsets:
        one, workload = wanted.get(subset.name), here.existing.get(subset.name)
        if one is None:
            continue
        if workload is None:
            rows.append((subset.name, "-", f"create with {one.replicas} Pods", "the subset is in the topology"))
        elif needs_update(here.kind, workload, one):
            rows.append((subset.name, workload.metadata.name, *_change(here, workload, one)))
    for workload in surplus:
        named = any(one.name == workload.subset for one in here.subsets)
        why = "the subset has another workload" if named else "the subset is not in the topology"
        rows.append((workload.subset, workload.metadata.name, f"delete with {workload.replicas} Pods", why))
    return rows


def _change(here: Situation, workload: SubsetWorkload, one: Wanted) -> tuple[str, str]:
    actions, reasons = [], []
    if workload.replicas != one.replicas:
        actions.append(f"scale {workload.replicas} to {one.replicas}")
        reasons.append(_why_so_many(here, one.name))
    metadata = workload.metadata
    held = f", {one.partition} Pods stay" if one.partition and here.kind != DEPLOYMENT else ""
    if metadata.labels.get(names.UNITED_REVISION_HASH) != one.revision:
        actions.append(f"update{held}")
        reasons.append("the template changed")
    elif metadata.annotations.get(names.SUBSET_PATCH, "") != one.patch:
        actions.append(f"update{held}")
        reasons.append("the subset's patch changed")
    elif here.kind != DEPLOYMENT and partition_of(here.kind, workload) != one.partition:
        actions.append(f"partition {partition_of(here.kind, workload)} to {one.partition}")
        reasons.append("set by manualUpdate.partitions")
    if not actions:
        actions.append("change maxUnavailable")
        reasons.append("unschedulable Pods could block the rollout, or no longer can")
    return ", ".join(actions), "; ".join(reasons)


def _why_so_many(here: Situation, subset: str) -> str:
    known = here.schedulable.get(subset)
    if known is not None and known.unschedulable:
        return "its Pods are unschedulable"
    if any(one.unschedulable for one in here.schedulable.values()):
        return "Pods of other subsets are unschedulable"
    return "its share of spec.replicas"


def explained(here: Situation, replicas: Mapping[str, int]) -> tuple[list[tuple[str, ...]], list[str], list[str]]:
    """Return a row per subset, notes, and steps that the user can take."""
    rows: list[tuple[str, ...]] = []
    notes, todo = [], []
    update = here.revisions.update.name
    for subset in here.subsets:
        workload = here.existing.get(subset.name)
        pods = [one for one in here.pods.get(subset.name, ()) if is_active(one)]
        new = [one for one in pods if one.metadata.labels.get(names.UNITED_REVISION_HASH) == update]
        count = replicas.get(subset.name)
        partition = here.partition(subset.name, count or 0)
        reserved = here.reserved_pods(subset.name)
        rows.append(
            (
                subset.name,
                workload.metadata.name if workload is not None else "-",
                "?" if count is None else str(count),
                str(len(pods)),
                str(sum(map(is_ready, pods))),
                str(len(new)),
                "-" if here.kind == DEPLOYMENT else str(partition),
                str(len(reserved)) if here.reserves else "-",
                _share(here, subset.name),
                _state(here, subset.name),
            )
        )
        late = [one.metadata.name for one in pods if one.metadata.uid in reserved]
        if late:
            notes.append(f"subset {subset.name}: substitutes run for {first_of(sorted(late), 5)}")
        known = here.schedulable.get(subset.name)
        if known is not None and known.unschedulable:
            todo.append(
                f"make room for the Pods of subset {subset.name}, or change its nodeSelectorTerm and tolerations"
            )
        if partition and here.kind != DEPLOYMENT:
            notes.append(f"subset {subset.name}: its partition keeps {partition} Pods at the old revision")
    return rows, notes, todo


def _share(here: Situation, subset: str) -> str:
    one = next(one for one in here.subsets if one.name == subset)
    if one.replicas is not None:
        return f"exactly {one.replicas}"
    if one.min_replicas is not None or one.max_replicas is not None:
        most = "no limit" if one.max_replicas is None else one.max_replicas
        return f"{one.min_replicas or 0} to {most}"
    return "an equal part of the rest"


def _state(here: Situation, subset: str) -> str:
    if subset not in here.existing:
        return "to be created"
    if not here.adapts:
        return "-"
    known = here.schedulable.get(subset)
    if known is None or not known.unschedulable:
        return "schedulable"
    since = (known.condition or {}).get("lastTransitionTime", "now")
    again = f", checked again in {known.again:.0f} s" if known.again else ""
    return f"unschedulable since {since}{again}"


def reserved_note(here: Situation, subset: str, pod: Pod) -> str:
    """Return a note if the Pod is reserved, otherwise ""."""
    if not here.reserves:
        return ""
    if pod.metadata.uid in here.reserved_pods(subset):
        return "; reserved: a substitute runs until this Pod has been ready long enough"
    return ""
