"""Why a Pod of a StatefulSet is as it is, and what comes next for it, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from app.api import names
from app.pods.ordinals import ordinal_of
from app.workloads.engine.explain import held_lines, next_line, readiness_lines, revision_line
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Preview
from app.workloads.statefulset.plan.replicas import Replica, is_marked
from app.workloads.statefulset.plan.resolved import ResolvedSpec


def explain(facts: PodFacts, resolved: ResolvedSpec, coming: Preview, *, update: str, now: float) -> list[str]:
    """Everything worth knowing about one Pod, one line each. ``coming``: what happens from here; ``update``: the short
    hash of the update revision; ``now``: POSIX seconds."""
    owner = resolved.owner.name
    pod = Replica(ordinal_of(owner, facts.name), facts)
    if pod.ordinal < 0 or not resolved.selector.matches(facts.pod.metadata.labels):
        return [f"does not count: StatefulSet {owner} has no Pod of this name with these labels"]
    held = held_lines(facts, resolved.settings.lifecycle)
    lines = [_slot_line(pod, resolved), revision_line(facts, update), *_readiness_lines(pod, resolved, now)]
    return [*lines, *held, *_coming_lines(pod, coming)]


def _slot_line(pod: Replica, resolved: ResolvedSpec) -> str:
    slots, settings = resolved.settings.slots, resolved.settings
    rank = slots.rank(pod.ordinal)
    if not rank:
        return f"ordinal {pod.ordinal}: not wanted any more, by the replicas or because it is reserved"
    kept = not settings.unordered and not settings.on_delete and rank <= settings.partition
    partition = f"; the partition of {settings.partition} keeps it at its revision" if kept else ""
    return f"ordinal {pod.ordinal}: number {rank} of {len(slots)}{partition}"


def _readiness_lines(pod: Replica, resolved: ResolvedSpec, now: float) -> Iterator[str]:
    if pod.terminating:
        yield "it is being deleted; its ordinal stays free until it is gone"
        return
    facts, available = pod.facts, pod.usable(now)
    yield from readiness_lines(facts, now, resolved.settings.min_ready_seconds, available=available)
    if not available and not facts.in_grace and not facts.update_complete:
        yield "  its update in place goes on: its containers have not changed yet"


def _coming_lines(pod: Replica, coming: Preview) -> Iterator[str]:
    if is_marked(pod):
        yield f"somebody asked to have it deleted (label {names.SPECIFIED_DELETE})"
    waits = coming.ends.startswith("OrderedReady") and coming.of(pod.name) is None and pod.name not in coming.rest
    yield f"next: nothing, until this ends: {coming.ends}" if waits else next_line(pod.name, coming)
