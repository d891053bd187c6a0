"""The preview of a rollout, and what blocks each Pod. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.features.sidecarset.plan.pod_state import PodFacts, Wait, pod_facts
from app.features.sidecarset.plan.settings import SetView
from app.features.sidecarset.plan.status import Judged, PodCounts, max_unavailable_of
from app.features.sidecarset.plan.update import CannotUpdateError, next_pods, partition_of, updated
from app.kube.objects import Pod
from app.kube.store import key_of

#: Returns the namespace labels of a Pod, or None if the namespace is unknown.
NamespaceLabels = Callable[[Pod], Mapping[str, str] | None]
#: Returns the field whose change prevents an in-place update of a Pod, or ''.
Obstacle = Callable[[Pod], str]

_DONE: Final = PodFacts(True, True, True, "")


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome for one Pod. ``number`` is 0 if the Pod is not changed."""

    number: int
    pod: Pod
    action: str
    reason: str


def judged(view: SetView, pods: Sequence[Pod], labels_of: NamespaceLabels) -> PodCounts:
    """Evaluate the Pods and return their counts."""
    pod_counts = PodCounts()
    for pod in pods:
        pod_counts.observe(key_of(pod), pod_facts(view, pod, labels_of(pod)), pod)
    return pod_counts


def preview(view: SetView, pod_counts: PodCounts, now: datetime, obstacle: Obstacle) -> list[Step]:
    """Return what happens to each matched Pod: the step in which it changes, what changes, or why it is skipped.

    Each step begins when the Pods of the previous one are ready. Modifies ``pod_counts``.
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
        return "keep", f"cannot be updated in place: {obstacle(one.pod) or one.facts.wait.value}; recreate it"
    return "wait", waits_for(view, one.facts, pod_counts)


def waits_for(view: SetView, facts: PodFacts, pod_counts: PodCounts) -> str:
    """Return why an outdated Pod is not updated now."""
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
        return f"{pod_counts.unavailable} Pods are unavailable, and maxUnavailable allows {limit}"
    if pod_counts.disturbed >= limit:
        return "other SidecarSets have already taken the maximum number of Pods out of service"
    return "its turn"


def standing(view: SetView, one: Judged, pod_counts: PodCounts, obstacle: Obstacle) -> tuple[str, str]:
    """Return a word or two about one Pod's state, and what the Pod waits for."""
    facts = one.facts
    if not facts.matched:
        return "not matched", ""
    if facts.updated:
        if facts.ready:
            return "updated", ""
        return "updating", "the former twin becomes idle next" if facts.migrated else "its containers are not ready yet"
    if facts.wait is Wait.BLOCKED:
        field = obstacle(one.pod)
        return "not upgradable", f"{field} differs; recreate it" if field else facts.wait.value
    return "outdated", waits_for(view, facts, pod_counts)


# Why a Pod cannot be updated in place: the first field, other than images, in which the set differs from the Pod's
# revision. [SS-93]

_LISTS = ("containers", "initContainers")


def obstacle(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first field whose change between two specs of a set (as JSON) applies only to new Pods; '' if none."""
    for kind in _LISTS:
        if found := _difference(_by_name(before.get(kind)), _by_name(now.get(kind)), kind):
            return found
    return ""


def _by_name(containers: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {str(container.get("name")): container for container in containers or ()}


def _difference(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    # Plain init containers have already run when a Pod is updated; only native sidecars count. [SS-10]
    if kind == "initContainers" and not any(
        one.get("restartPolicy") == "Always" for one in (*before.values(), *now.values())
    ):
        return ""
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            return f"spec.{kind}[{name}]"
        one, other = before[name], now[name]
        for field in sorted({*one, *other} - {"image"}):
            if (one.get(field) or None) != (other.get(field) or None):
                return f"spec.{kind}[{name}].{field}"
    if list(before) != list(now):
        return f"spec.{kind}: their order"
    return ""
