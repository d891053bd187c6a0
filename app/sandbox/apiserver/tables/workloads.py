"""The cells of workloads and jobs, by Kubernetes' own rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from app.sandbox.apiserver.tables.words import (
    NONE,
    UNSET,
    Cells,
    Object,
    age,
    age_of,
    container_cells,
    is_true,
    labels_text,
    name_of,
    replica_cells,
    selector_text,
    spec_of,
    status_of,
)


def _workload(one: Object) -> list[Any]:
    """The wide columns of what has a template and a selector."""
    return [*container_cells(spec_of(one).get("template")), selector_text(spec_of(one).get("selector"))]


def _deployment(one: Object, now: datetime) -> list[Any]:
    status = status_of(one)
    return [
        name_of(one),
        f"{status.get('readyReplicas', 0)}/{spec_of(one).get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(one, now),
        *_workload(one),
    ]


def _replica_set(one: Object, now: datetime) -> list[Any]:
    return [*replica_cells(one, now), *_workload(one)]


def _stateful_set(one: Object, now: datetime) -> list[Any]:
    ready = f"{status_of(one).get('readyReplicas', 0)}/{spec_of(one).get('replicas', 0)}"
    return [name_of(one), ready, age_of(one, now), *container_cells(spec_of(one).get("template"))]


_DAEMON_COUNTS: Final = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set(one: Object, now: datetime) -> list[Any]:
    counts = [status_of(one).get(name, 0) for name in _DAEMON_COUNTS]
    nodes = labels_text(spec_of(spec_of(one).get("template") or {}).get("nodeSelector"))
    return [name_of(one), *counts, nodes, age_of(one, now), *_workload(one)]


def _controller_revision(one: Object, now: datetime) -> list[Any]:
    owner = next((ref for ref in one["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        controller = f"{kind.lower()}/{owner['name']}"
    return [name_of(one), controller, one.get("revision", 0), age_of(one, now)]


def _job(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    done, parallel = status.get("succeeded", 0), spec.get("parallelism", 0)
    if "completions" in spec:
        completions = f"{done}/{spec['completions']}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    lasted = ""
    if began := status.get("startTime"):
        ended = status.get("completionTime")
        lasted = age(began, datetime.fromisoformat(ended) if ended else now)
    return [name_of(one), _job_status(one), completions, lasted, age_of(one, now), *_workload(one)]


def _job_status(one: Object) -> str:
    if is_true(one, "Complete"):
        return "Complete"
    if is_true(one, "Failed"):
        return "Failed"
    if one["metadata"].get("deletionTimestamp"):
        return "Terminating"
    words = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((word for word in words if is_true(one, word)), "Running")


def _cron_job(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    suspend = spec.get("suspend")
    last = status.get("lastScheduleTime")
    return [
        name_of(one),
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        UNSET if suspend is None else str(suspend),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(one, now),
        *_workload(spec.get("jobTemplate") or {}),
    ]


#: How resources of the group are printed, by plural.
CELLS: Final[Mapping[str, Cells]] = {
    "deployments": _deployment,
    "replicasets": _replica_set,
    "statefulsets": _stateful_set,
    "daemonsets": _daemon_set,
    "controllerrevisions": _controller_revision,
    "jobs": _job,
    "cronjobs": _cron_job,
}
