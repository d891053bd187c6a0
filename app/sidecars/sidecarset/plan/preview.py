"""A roll-out played to its end, with the very decisions of the controller, and its state told in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.kube.objects import Pod
from app.kube.store import key_of
from app.sidecars.sidecarset.plan.facts import PodFacts, Wait, pod_facts
from app.sidecars.sidecarset.plan.neighbours import max_unavailable_of
from app.sidecars.sidecarset.plan.podcounts import Judged, PodCounts
from app.sidecars.sidecarset.plan.rollout import next_pods, partition_of
from app.sidecars.sidecarset.plan.update import CannotUpdateError, updated
from app.sidecars.sidecarset.plan.view import SetView

#: Of one Pod: the labels of its namespace, None where it is not known.
NamespaceLabels = Callable[[Pod], Mapping[str, str] | None]
#: Of a Pod that cannot be updated: which field forbids it.
Obstacle = Callable[[Pod], str]

_DONE: Final = PodFacts(True, True, True, "")


@dataclass(frozen=True, slots=True)
class Step:
    """What comes of one Pod. Step 0: it is not touched."""

    number: int
    pod: Pod
    action: str
    reason: str


def judged(view: SetView, pods: Sequence[Pod], labels_of: NamespaceLabels) -> PodCounts:
    """All Pods as the set sees them."""
    pod_counts = PodCounts()
    for pod in pods:
        pod_counts.observe(key_of(pod), pod_facts(view, pod, labels_of(pod)), pod)
    return pod_counts


def preview(view: SetView, pod_counts: PodCounts, now: datetime, obstacle: Obstacle) -> list[Step]:
    """What happens to each matched Pod: in which order, what changes, and which are left and why.

    Each step begins when the Pods of the one before are ready; ``pod_counts`` is used up.
    """
    steps: list[Step] = []
    failed: set[str] = set()
    number = 0
    while chosen := next_pods(view.strategy, pod_counts, failed):
        number += 1
        for one in chosen:
            try:
                update = updated(view, one.pod, "", "", now)
            except CannotUpdateError as error:
                failed.add(one.pod.metadata.uid)
                steps.append(Step(0, one.pod, "fail", str(error)))
            else:
                steps.append(Step(number, one.pod, "update" if update.images else "record", str(update)))
                pod_counts.observe(key_of(one.pod), _DONE, one.pod)
    taken = {key_of(step.pod) for step in steps}
    left = sorted((one for one in pod_counts.all() if key_of(one.pod) not in taken), key=lambda one: key_of(one.pod))
    return [*steps, *(Step(0, one.pod, *_left(view, one, pod_counts, obstacle)) for one in left if one.facts.outdated)]


def _left(view: SetView, one: Judged, pod_counts: PodCounts, obstacle: Obstacle) -> tuple[str, str]:
    if one.facts.wait is Wait.BLOCKED:
        return "keep", f"cannot be updated in place: {obstacle(one.pod) or one.facts.wait.value}; create it anew"
    return "wait", waits_for(view, one.facts, pod_counts)


def waits_for(view: SetView, facts: PodFacts, pod_counts: PodCounts) -> str:
    """What keeps an outdated Pod as it is."""
    strategy, matched = view.strategy, pod_counts.counts.matched
    if not strategy.rolling:
        return "updateStrategy.type is NotUpdate"
    if strategy.paused:
        return f"paused: pykruise rollout resume sidecarset {view.name}"
    if facts.wait is not Wait.NO:
        return facts.wait.value
    kept = partition_of(strategy.partition, matched)
    if kept and matched - pod_counts.counts.updated <= kept:
        return f"partition {strategy.partition} keeps {kept} of {matched} Pods"
    limit = max_unavailable_of(strategy.max_unavailable, matched)
    if pod_counts.unavailable >= limit:
        return f"{pod_counts.unavailable} of {limit} Pods that may be unavailable (maxUnavailable) are"
    if pod_counts.disturbed >= limit:
        return "other sets have taken as many Pods out of service as may be unavailable"
    return "its turn"


def standing(view: SetView, one: Judged, pod_counts: PodCounts, obstacle: Obstacle) -> tuple[str, str]:
    """How one Pod stands: a word, and what it waits for."""
    facts = one.facts
    if not facts.matched:
        return "not matched", ""
    if facts.updated:
        if facts.ready:
            return "updated", ""
        return "updating", "the former twin idles next" if facts.migrated else "its containers are not ready yet"
    if facts.wait is Wait.BLOCKED:
        field = obstacle(one.pod)
        return "not upgradable", f"{field} differs; create it anew" if field else facts.wait.value
    return "outdated", waits_for(view, facts, pod_counts)


def progress_counts(status: Mapping[str, Any], strategy_partition: int | str | None) -> tuple[int, int, int]:
    """Updated, updated and ready, and how many are to be, by a status."""
    matched = int(status.get("matchedPods") or 0)
    expected = matched - partition_of(strategy_partition, matched)
    return int(status.get("updatedPods") or 0), int(status.get("updatedReadyPods") or 0), expected
