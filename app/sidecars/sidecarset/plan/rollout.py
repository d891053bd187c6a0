"""How many Pods of a SidecarSet are updated now, which, and in which order. Pure. Rules SS-92 … SS-97, SS-124."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from app.api.update_order import UpdateScatterTerm
from app.kube.intorpercent import IntOrPercentError, scaled
from app.kube.objects import Pod
from app.pods.predicates import is_ready
from app.pods.update_order import by_priority, scattered
from app.sidecars.sidecarset.plan.neighbours import ALONE, Neighbours, max_unavailable_of
from app.sidecars.sidecarset.plan.podcounts import Judged, PodCounts
from app.sidecars.sidecarset.plan.view import Strategy


def partition_of(value: int | str | None, matched: int) -> int:
    """SS-95: how many Pods stay as they are; a percentage below 100 updates one Pod at least."""
    try:
        kept = scaled(value, matched, True) if value is not None else 0
    except IntOrPercentError:
        return matched
    if isinstance(value, str) and kept == matched > 1 and value != "100%":
        kept = matched - 1
    return max(0, min(kept, matched))


class Room(NamedTuple):
    """How many Pods may be updated now."""

    #: By the partition.
    pods: int
    #: By maxUnavailable, of those that this costs something.
    costly: int
    #: By maxUnavailable, if the updates of other sets count as well: of those that are ready. Below 0 no Pod that
    #: another set has taken down is updated, either.
    ready: int


def room(strategy: Strategy, pod_counts: PodCounts, uncertain: int = 0, elsewhere: int = 0) -> Room:
    """SS-124: the partition is kept of all outdated Pods, also of those that cannot be updated now.

    ``uncertain``: Pods of which is not known whether they were updated; ``elsewhere``: those that other sets are
    writing just now.
    """
    counts = pod_counts.counts
    outdated = counts.matched - counts.updated - uncertain
    allowed = outdated - partition_of(strategy.partition, counts.matched)
    limit = max_unavailable_of(strategy.max_unavailable, counts.matched)
    return Room(
        max(0, allowed),
        max(0, limit - pod_counts.unavailable - uncertain),
        limit - pod_counts.disturbed - uncertain - elsewhere,
    )


def next_pods(
    strategy: Strategy,
    pod_counts: PodCounts,
    held: Collection[str] = (),
    uncertain: int = 0,
    limit: int = 0,
    neighbours: Neighbours = ALONE,
) -> list[Judged]:
    """SS-95: the Pods to update now. ``held``: uids of those that are not to be tried; ``limit``: so many at most, 0
    for all; ``neighbours``: the other sets of these Pods, whose limits hold as well."""
    if strategy.paused or not strategy.rolling:
        return []
    allowed, costly, ready = room(strategy, pod_counts, uncertain, neighbours.writing(pod_counts))
    if limit:
        allowed = min(allowed, limit)
    candidates = [one for one in pod_counts.waiting if one.pod.metadata.uid not in held]
    if not allowed or not (costly or any(one.facts.free for one in candidates)):
        return []
    taken: list[Judged] = []
    for one in in_order(strategy, candidates, pod_counts):
        if len(taken) == allowed:
            break
        if not one.facts.free:
            if not costly or ready < one.facts.ready:
                break
            if one.facts.ready:
                if not neighbours.take(one.pod):
                    continue
                ready -= 1
            costly -= 1
        taken.append(one)
    return taken


def next_to_idle(
    strategy: Strategy, pod_counts: PodCounts, held: Collection[str], neighbours: Neighbours
) -> list[Judged]:
    """SS-81: the Pods whose former twin takes the empty image now. One that is ready will not be for a moment: of
    those go no more than may be unavailable, but one always."""
    limit = max(1, max_unavailable_of(strategy.max_unavailable, pod_counts.counts.matched))
    left = limit - pod_counts.down - neighbours.writing(pod_counts)
    taken: list[Judged] = []
    for one in sorted(pod_counts.migrated, key=lambda one: one.rank):
        if one.pod.metadata.uid in held:
            continue
        if is_ready(one.pod):
            if left <= 0 or not neighbours.take(one.pod, idle=True):
                continue
            left -= 1
        taken.append(one)
    return taken


def in_order(strategy: Strategy, candidates: Iterable[Judged], pod_counts: PodCounts) -> Sequence[Judged]:
    """SS-94: who has least to lose first, then by priority, then scattered."""
    ordered = sorted(candidates, key=lambda one: one.rank)
    if strategy.priority is None and not strategy.scatter:
        return ordered
    found = {id(one.pod): one for one in ordered}
    pods = by_priority([one.pod for one in ordered], strategy.priority)
    if strategy.scatter:
        matched = pod_counts.matched()
        pods = scattered(pods, matched, expanded(strategy.scatter, matched))
    return [found[id(pod)] for pod in pods]


def expanded(terms: Sequence[UpdateScatterTerm], pods: Iterable[Pod]) -> list[UpdateScatterTerm]:
    """SS-94: a term with value ``*`` stands for each value that the Pods have, each once."""
    found: dict[tuple[str, str], UpdateScatterTerm] = {}
    present = list(pods)
    for term in terms:
        values = [term.value]
        if term.value == "*":
            values = sorted({pod.metadata.labels[term.key] for pod in present if term.key in pod.metadata.labels})
        for value in values:
            found.setdefault((term.key, value), UpdateScatterTerm(key=term.key, value=value))
    return list(found.values())
