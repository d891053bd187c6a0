"""AdvancedCronJobs: actions of users, and invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

from app.api import names
from app.features.advancedcronjob.cron import Every, Schedule, latest_until, parse
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.broadcastjob.kind import BROADCAST_JOB
from tests.simulation import invariants
from tests.simulation.users import LABEL
from tests.simulation.workloads.broadcastjob import ended, task
from tests.simulation.workloads.judge import Judge, Write
from tests.simulation.workloads.subject import Workload, given

Json = dict[str, Any]

FOLDERS = (
    "app.features.podreadiness",
    "app.features.imagepull",
    "app.features.broadcastjob",
    "app.features.advancedcronjob",
)
KIND, CHILD = ADVANCED_CRON_JOB.kind, BROADCAST_JOB.kind
#: How late a run may be: controllers notice a changed clock within a minute.
LATE = timedelta(seconds=90)
SCHEDULES = ("* * * * *", "*/2 * * * *", "@every 20s", "@every 20s", "* * 1 1 *", "30 */2 * * *")
ZONES = ("", "UTC", "Asia/Shanghai", "America/New_York")


class AdvancedCronJobJudge(Judge):
    """Every scheduled time runs once, nothing runs off schedule, and runs overlap only if the policy allows it."""

    def __init__(self) -> None:
        self.judged = {KIND: self._cron, CHILD: self._child}
        self._crons: dict[str, Json] = {}
        #: By uid: every schedule and policy that the object has had.
        self._schedules: dict[str, list[Schedule]] = {}
        self._policies: dict[str, set[str]] = {}
        #: By uid: the runs that were started, and the BroadcastJobs.
        self._runs: dict[str, set[str]] = {}
        self._children: dict[str, dict[str, Json]] = {}

    def _cron(self, write: Write) -> Iterator[str]:
        write.kept_in(self._crons)
        uid, before, after = write.uid, write.before, write.after
        if after is None:
            return
        known = self._schedules.setdefault(uid, [])
        if before is None or before["metadata"]["generation"] != after["metadata"]["generation"]:
            known.append(_schedule(after["spec"]))
        self._policies.setdefault(uid, set()).add(after["spec"].get("concurrencyPolicy", "Allow"))
        was, now = (_last(one) if one is not None else None for one in (before, after))
        if was is not None and (now is None or now < was):
            yield f"AdvancedCronJob {invariants.name(after)}: lastScheduleTime went from {was} back to {now}"

    def _child(self, write: Write) -> Iterator[str]:
        cron, after = invariants.owner_of(write.obj), write.after
        if not cron:
            return
        children = self._children.setdefault(cron, {})
        write.kept_in(children)
        owner = self._crons.get(cron)
        if write.before is not None or after is None or owner is None:
            return
        name, run = invariants.name(after), after["metadata"]["annotations"][names.SCHEDULED_AT]
        due, runs = datetime.fromisoformat(run), self._runs.setdefault(cron, set())
        if run in runs:
            yield f"BroadcastJob {name} is the second for {run}"
        runs.add(run)
        if (last := _last(owner)) is not None and due <= last:
            yield f"BroadcastJob {name} is for {run}, but the last run was for {last}"
        if not any(
            isinstance(one, Every) or one.next(due - timedelta(seconds=1)) == due for one in self._schedules[cron]
        ):
            yield f"BroadcastJob {name} is for {run}, which no schedule contains"
        active = [one for one in children.values() if not ended(one)]
        if len(active) > 1 and "Allow" not in self._policies[cron]:
            yield f"BroadcastJob {name} is one of {len(active)} at a time"

    def at_rest(self, now: datetime) -> Iterable[str]:
        for uid, cron in self._crons.items():
            what, spec = f"AdvancedCronJob {invariants.name(cron)} at rest:", cron["spec"]
            if cron["metadata"].get("deletionTimestamp"):
                yield f"{what} is being deleted"
                continue
            children = self._children.get(uid, {}).values()
            if (cron.get("status") or {}).get("type") != CHILD:
                yield f"{what} status.type is not {CHILD}"
            active = {one["metadata"]["name"] for one in children if not ended(one)}
            if spec.get("paused") or (active and spec.get("concurrencyPolicy") == "Forbid"):
                continue
            since = _last(cron) or datetime.fromisoformat(cron["metadata"]["creationTimestamp"])
            missed = latest_until(_schedule(spec), since, now - LATE)
            if missed is not None:
                yield f"{what} no run was started for {missed} by {now}"


def _schedule(spec: Json) -> Schedule:
    return parse(spec["schedule"], spec.get("timeZone") or "")


def _last(cron: Json) -> datetime | None:
    found = (cron.get("status") or {}).get("lastScheduleTime")
    return datetime.fromisoformat(found) if found else None


# ---- actions of users


def spec(rng: Random, name: str) -> Json:
    """Draw the spec of a schedule whose jobs run on one node."""
    found = given(schedule=rng.choice(SCHEDULES), timeZone=rng.choice(ZONES) or None)
    found["concurrencyPolicy"] = rng.choice(("Allow", "Forbid", "Replace"))
    seconds, kept = rng.choice((1, 15, 100)), rng.choice((0, 1, 3))
    job = {
        "completionPolicy": given(type="Always", ttlSecondsAfterFinished=rng.choice((None, 5))),
        "template": task(name, f"sleep {seconds}", nodeSelector={"kubernetes.io/hostname": "node1"}),
    }
    return {
        **found,
        "successfulJobsHistoryLimit": kept,
        "failedJobsHistoryLimit": kept,
        "template": {"broadcastJobTemplate": {"metadata": {"labels": {LABEL: name}}, "spec": job}},
    }


def _clock_or_blind(rng: Random, name: str) -> tuple[str, Json]:
    if rng.random() < 0.3:
        return "freeze watches", {"resource": "broadcastjobs", "seconds": rng.choice((30.0, 60.0))}
    if rng.random() < 0.3:
        seconds = round(rng.uniform(0.5, 3.0), 1)
        return "blind creation", {"name": name, "seconds": seconds, "resource": "broadcastjobs"}
    return "set clock", {"seconds": rng.choice((-1800.0, -90.0, -30.0, 45.0, 90.0, 600.0, 7200.0))}


CRON_JOBS = Workload(
    folders=FOLDERS,
    kind=ADVANCED_CRON_JOB,
    judge=AdvancedCronJobJudge,
    spec=spec,
    changes=[
        (2, "/spec/schedule", lambda rng: rng.choice(SCHEDULES)),
        (2, "/spec/timeZone", lambda rng: rng.choice(ZONES[1:])),
        (1, "/spec/paused", lambda rng: rng.random() < 0.3),
    ],
    marks=False,
    others=_clock_or_blind,
    goes_on=True,
    watched=("broadcastjobs",),
)
