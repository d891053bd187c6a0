"""Commands that explain BroadcastJobs: which nodes are served next, which are not served, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.webhooks import stored_model
from app.features.broadcastjob.defaults import with_defaults
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.plan import (
    Fit,
    Next,
    Step,
    fit_of,
    has_failed,
    is_finished,
    next_step,
    restart_limit,
    seen_failures,
)
from app.features.broadcastjob.types import BroadcastJob
from app.framework.commands import Commands, Report, Stored, report, table
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.clock import parsed_rfc3339
from app.kube.objects import Node, Pod, decode_node, decode_pod
from app.kube.resources import NODES, PODS
from app.kube.text import one_line
from app.pods.not_ready_reasons import ways_out
from app.pods.predicates import Owner, is_active, is_controlled_by

_SHOWN: Final = {
    Next.COUNT: "it has failed; no more nodes are served",
    Next.PAUSE: "it is paused; running Pods continue",
    Next.COMPLETE: "it is complete",
}


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, its Pods, and the nodes by name."""

    job: BroadcastJob
    fit: Fit
    nodes: Mapping[str, Node]
    pods: Sequence[Pod]
    step: Step


async def situation(client: Client, stored: Stored) -> Situation:
    """Read the objects that determine the next step. Raises CommandError."""
    job = stored_model(BROADCAST_JOB, BroadcastJob, stored, with_defaults(stored))
    metadata, now = job.metadata, client.clock.now()
    query = f"{names.BROADCAST_JOB_CONTROLLER_UID}={metadata.uid}" if metadata.uid else ""
    listed = (
        (await client.list(PODS, metadata.namespace, label_selector=query, decode=decode_pod)).items if query else ()
    )
    owner = Owner.of(BROADCAST_JOB.resource(), metadata)
    pods: list[Pod] = [pod for pod in listed if is_controlled_by(pod.metadata, owner)]
    found: Sequence[Node] = (await client.list(NODES, decode=decode_node)).items
    nodes = {node.metadata.name: node for node in found}
    fit = fit_of(job.spec.template)
    fitting = {name for name, node in nodes.items() if fit.fits(node)}
    started = (parsed_rfc3339(job.status.start_time) if job.status is not None else None) or now
    step = next_step(job, fitting, nodes, pods, now, started, seen_failures(job))
    return Situation(job, fit, nodes, pods, step)


def rows_of(found: Situation) -> list[tuple[str, ...]]:
    """Return one row per node: its Pod, the next action, and the reason."""
    step, limit = found.step, restart_limit(found.job)
    there: dict[str, list[Pod]] = {}
    for pod in found.pods:
        there.setdefault(pod.spec.target_node, []).append(pod)
    going = {pod.metadata.uid for pod in step.delete}
    rows: list[tuple[str, ...]] = []
    for name, node in sorted(found.nodes.items()):
        for pod in there.get(name, ()):
            action, why = "-", _state(pod, limit)
            if pod.metadata.uid in going:
                action = "delete"
                why = step.message if step.next is Next.FAIL else found.fit.obstacle(node) or why
            rows.append((name, pod.metadata.name, action, why))
        if name in there:
            continue
        if name in step.create:
            rows.append((name, "(new)", "create", "-"))
        elif why_not := found.fit.obstacle(node):
            rows.append((name, "-", "-", why_not))
        elif step.next is Next.RUN:
            rows.append((name, "-", "wait", f"parallelism {found.job.spec.parallelism}"))
        else:
            rows.append((name, "-", "-", "not served"))
    return rows


def _state(pod: Pod, limit: int) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    if has_failed(pod, limit):
        return "failed" if pod.status.phase == "Failed" else f"restarted more than {limit} times: counts as failed"
    return str(pod.status.phase or "Pending").lower()


async def plan(client: Client, stored: Stored, enabled: Enabled) -> str:  # noqa: ARG001
    """Report what would happen next on each node if this job were stored."""
    return planned(await situation(client, stored))


def planned(found: Situation) -> str:
    """Return the next step as text."""
    job, step = found.job, found.step
    head = f"BroadcastJob {job.metadata.namespace}/{job.name}: {step.desired} nodes are desired"
    if is_finished(job):
        return f"{head}\nit has ended; its Pods are left unchanged"
    shown = _SHOWN.get(step.next) or (
        one_line(f"it fails: {step.reason}: {step.message}") if step.next is Next.FAIL else "it is running"
    )
    return f"{head}; {shown}\n{table([('NODE', 'POD', 'ACTION', 'BECAUSE'), *rows_of(found)])}"


def todo(found: Situation) -> list[str]:
    """Return suggested actions for Pods that failed or are not running, and for a job without eligible nodes."""
    limit = restart_limit(found.job)
    ways = ways_out(pod for pod in found.pods if is_active(pod) or has_failed(pod, limit))
    if not found.step.desired and not is_finished(found.job):
        ways.append("label or untaint nodes, or relax the template's affinity and tolerations")
    return ways


async def explain_object(client: Client, stored: Stored, enabled: Enabled) -> Report:  # noqa: ARG001
    """Explain the state of the job and its next step, and suggest actions."""
    found = await situation(client, stored)
    status: Mapping[str, Any] = stored.get("status") or {}
    counts = ", ".join(f"{status.get(name, 0)} {name}" for name in ("desired", "active", "succeeded", "failed"))
    lines = [f"phase {status.get('phase') or 'none yet'}: {counts}"]
    lines += [f"{one['type']}: {one.get('message', '')}" for one in status.get("conditions") or ()]
    return report([*planned(found).split("\n"), *map(one_line, lines)], todo(found))


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:  # noqa: ARG001
    """Explain a Pod's role in its job."""
    found = await situation(client, stored)
    name = pod.spec.target_node
    lines = [f"created for node {name or 'none'}: {_state(pod, restart_limit(found.job))}"]
    node = found.nodes.get(name)
    if node is None:
        lines.append("its node is gone")
    elif why := found.fit.obstacle(node):
        lines.append(f"a new Pod could not run on its node: {why}")
    if any(one.metadata.uid == pod.metadata.uid for one in found.step.delete):
        lines.append(f"next: it is deleted{f', {found.step.reason}' if found.step.reason else ''}")
    else:
        lines.append("next: no change")
    return lines


COMMANDS: Final = Commands(
    BROADCAST_JOB, plan=plan, explain=explain, explain_object=explain_object, paused_at=("spec",), history=False
)
