"""Commands for AdvancedCronJobs: the next runs, and what delays them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api.webhooks import stored_model
from app.features.advancedcronjob.cron import ScheduleError
from app.features.advancedcronjob.defaults import with_defaults
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.plan import MANY, made_by, name_of, schedule_of, what_is_due
from app.features.advancedcronjob.types import FORBID, REPLACE, AdvancedCronJob
from app.framework.commands import Commands, Report, Stored, report, table
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.errors import CommandError
from app.kube.text import one_line

RUNS: Final = 5


async def plan(client: Client, stored: Stored, enabled: Enabled) -> str:  # noqa: ARG001
    """Return the next runs if this object were stored."""
    return "\n".join(_planned(client, stored)[0])


def _planned(client: Client, stored: Stored) -> tuple[list[str], list[str]]:
    """Return the next runs, one per line, and suggested actions. Raises CommandError."""
    name = stored["metadata"]["name"]
    cron = stored_model(ADVANCED_CRON_JOB, AdvancedCronJob, stored, with_defaults(stored))
    try:
        schedule = schedule_of(cron.spec.schedule, cron.spec.time_zone)
    except ScheduleError as error:
        raise CommandError(f"AdvancedCronJob {name}: spec.schedule: {error}") from None
    metadata, status, spec, now = cron.metadata, cron.status, cron.spec, client.clock.now()
    kind = made_by(cron)
    made = kind.kind if kind is not None else "nothing"
    lines = [f"AdvancedCronJob {metadata.namespace}/{name}: {made} on schedule {spec.schedule!r}"]
    last = parsed_rfc3339(status.last_schedule_time if status is not None else None)
    since = last or parsed_rfc3339(metadata.creation_timestamp) or now
    due = what_is_due(schedule, since, now, spec.starting_deadline_seconds)
    active = [one_line(one.name) for one in (status.active if status is not None else None) or ()]
    todo: list[str] = []
    if spec.paused:
        lines.append("paused: no job is started; once resumed, the latest missed run is started")
    elif due.run is not None:
        lines += _due(rfc3339(due.run), active, spec.concurrency_policy, many=due.many)
        if active and spec.concurrency_policy == FORBID:
            todo.append(f"wait for {', '.join(active)} to finish, or delete it")
    elif due.late is not None:
        lines.append(f"the run of {rfc3339(due.late)} was missed: startingDeadlineSeconds has passed")
    rows: list[tuple[str, ...]] = []
    at = due.following
    while at is not None and len(rows) < RUNS:
        rows.append((rfc3339(at), name_of(name, at)))
        at = schedule.next(at)
    if rows:
        lines += table([("RUN", "JOB"), *rows]).split("\n")
    else:
        lines.append("no more runs: the schedule matches no future time")
        todo.append("change spec.schedule")
    return lines, todo


def _due(run: str, active: Sequence[str], policy: str, *, many: bool) -> list[str]:
    lines = [f"due now: the run of {run}"]
    if many:
        lines.append(f"more than {MANY} runs were missed; only the latest one is started")
    if active and policy == FORBID:
        lines[0] += f"; it waits for {', '.join(active)} (concurrencyPolicy {FORBID})"
    elif active and policy == REPLACE:
        lines[0] += f"; it replaces {', '.join(active)} (concurrencyPolicy {REPLACE})"
    return lines


async def explain_object(client: Client, stored: Stored, enabled: Enabled) -> Report:  # noqa: ARG001
    """Explain past, active and upcoming runs, and suggest actions."""
    status: Mapping[str, Any] = stored.get("status") or {}
    lines = [f"last run: {status.get('lastScheduleTime') or 'none yet'}"]
    lines += [f"active: {one.get('kind')} {one.get('name')}" for one in status.get("active") or ()]
    planned, todo = _planned(client, stored)
    return report([*planned, *map(one_line, lines)], todo)


COMMANDS: Final = Commands(
    ADVANCED_CRON_JOB, plan=plan, explain_object=explain_object, pausable=True, paused_at=("spec",), history=False
)
