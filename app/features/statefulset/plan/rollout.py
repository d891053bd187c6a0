"""Which Pods to create, delete and update now, and the status. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.features.statefulset.plan.claims import ClaimState
from app.features.statefulset.plan.settings import Replica, Replicas, is_marked
from app.pods.lifecycle import LifecycleState
from app.pods.order import by_readable_priority
from app.pods.revisions import short_hash
from app.workloads.pods import MAX_CREATIONS, PodFacts
from app.workloads.settings import Revisions, UpdatePolicy
from app.workloads.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step

# Candidates for an update, their order, and the revision of new Pods [AS-41, AS-79, AS-80]. Pure.


def candidates(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """Return the Pods beyond the partition, in update order. [AS-79, AS-80]"""
    settings = replicas.settings
    if settings.on_delete:
        return []
    descending = list(reversed(replicas.wanted))
    if not settings.unordered:
        return [one for one in descending if settings.slots.rank(one.ordinal) > settings.partition]
    done = [one for one in descending if one.terminating or one.is_at(update)]
    facts = {one.facts.pod.metadata.uid: one for one in descending}
    rest = [one.facts.pod for one in descending if not (one.terminating or one.is_at(update))]
    ordered = by_readable_priority(rest, settings.priority)
    # An empty slot whose Pod will be created at the update revision counts as updated.
    old = NewRevisions(replicas, current=current, update=update).old_ones(replicas.missing)
    count = settings.replicas - settings.partition - (replicas.missing - old)
    return [*done, *(facts[pod.metadata.uid] for pod in ordered)][: max(0, count)]


class NewRevisions:
    """Chooses the revision of each new Pod. [AS-41]"""

    def __init__(self, replicas: Replicas, *, current: str, update: str) -> None:
        self._settings = replicas.settings
        self._same = current == update
        early = self._settings.gates.preparing_update_as_update
        self._not_updated = sum(
            not one.is_at(update) and not (early and one.facts.lifecycle == LifecycleState.PREPARING_UPDATE)
            for one in replicas.wanted
        )

    def old_ones(self, missing: int) -> int:
        """Return how many of the missing Pods would be created at the current revision in an unordered update."""
        return min(missing, max(0, self._settings.partition - self._not_updated))

    def next(self, ordinal: int) -> bool:
        """Return whether the Pod with that ordinal is created at the update revision."""
        settings = self._settings
        if settings.on_delete or self._same:
            return True
        if not settings.unordered:
            return settings.slots.rank(ordinal) > settings.partition
        if self._not_updated < settings.partition:
            self._not_updated += 1
            return False
        return True


# Which Pods to create and delete now, in which order, and what must wait [AS-41, AS-54 … AS-64, AS-101]. Pure.


@dataclass(slots=True)
class ScalePlan:
    """Pods to create and delete now.

    ``create``: ordinals, and whether each is created at the update revision. ``prepare``: Pods that must enter
    PreparingDelete for their preDelete hook. ``cancel_deletion``: Pods that are needed again. ``blocked``: no update
    may begin yet. ``held_by``: the Pod that OrderedReady waits for. ``waits_for``: claims that must be gone before Pods
    are created.
    """

    create: list[tuple[int, bool]] = field(default_factory=list)
    delete: list[Replica] = field(default_factory=list)
    prepare: list[Replica] = field(default_factory=list)
    cancel_deletion: list[Replica] = field(default_factory=list)
    blocked: bool = False
    held_by: Replica | None = None
    waits_for: list[str] = field(default_factory=list)

    def without(self, moved: Collection[PodFacts]) -> ScalePlan:
        """Return the plan without Pods that were just patched: their next step depends on their new state."""
        if not moved:
            return self
        return replace(
            self,
            delete=[one for one in self.delete if one.facts not in moved],
            prepare=[one for one in self.prepare if one.facts not in moved],
            cancel_deletion=[one for one in self.cancel_deletion if one.facts not in moved],
        )


def plan_scaling(
    replicas: Replicas, *, current: str, update: str, now: float, claim_in_the_way: Callable[[int], str] = lambda _: ""
) -> ScalePlan:
    """Plan which Pods to create and delete. [AS-55 … AS-64]

    ``current`` and ``update`` are short hashes; ``now`` is in POSIX seconds; ``claim_in_the_way`` returns the claim
    that must be gone before the Pod with that ordinal may be created, or "". [AS-67, AS-71]
    """
    plan = ScalePlan(cancel_deletion=_wanted_again(replicas, current=current, update=update))
    revisions = NewRevisions(replicas, current=current, update=update)
    if _fill_slots(plan, replicas, revisions, now, claim_in_the_way):
        plan.blocked = True
        return plan
    _take_away(plan, replicas, now)
    return plan


def _fill_slots(
    plan: ScalePlan, replicas: Replicas, revisions: NewRevisions, now: float, claim_in_the_way: Callable[[int], str]
) -> bool:
    """Fill the slots in ascending order. Return whether OrderedReady stops at one of them."""
    settings = replicas.settings
    ordered, left = settings.ordered, settings.scale_limit
    present = {one.ordinal: one for one in replicas.wanted}
    for ordinal in settings.slots:
        found, charged = present.get(ordinal), False
        if found is None:
            if claim := claim_in_the_way(ordinal):
                plan.waits_for.append(claim)
                # Blocked creations are limited as well.
                charged = len(plan.waits_for) + len(plan.create) >= MAX_CREATIONS
            else:
                plan.create.append((ordinal, revisions.next(ordinal)))
                charged = True
        elif found.ended:
            _delete(plan, found)
            charged = True  # finished Pods are always replaced [AS-138]
        elif found.terminating or not found.available(now):
            charged = True
        if ordered and (found is None or found.ended or found.terminating or not found.available(now)):
            plan.held_by = found if found is not None and not found.ended else None
            return True
        if len(plan.create) + len(plan.waits_for) >= MAX_CREATIONS:
            break
        if charged and left is not None:
            left -= 1
            if left <= 0:
                break
    return False


def _take_away(plan: ScalePlan, replicas: Replicas, now: float) -> None:
    """Delete surplus Pods in descending order. [AS-60 … AS-62]"""
    if not replicas.condemned:
        return
    if not replicas.settings.ordered:
        for one in replicas.condemned:
            _delete(plan, one)
        return
    highest = replicas.condemned[0]
    plan.blocked = True
    if highest.terminating:
        return
    if not (highest.facts.preparing_delete or highest.ended):
        # A Pod that waits for its hook need not be available, and a finished Pod never will be. [AS-102]
        unhealthy = [one for one in replicas.condemned if not one.healthy]
        first_unhealthy = unhealthy[-1] if unhealthy else None
        if not (highest.running_and_ready and highest.available(now)) and highest is not first_unhealthy:
            return
    _delete(plan, highest)


def _delete(plan: ScalePlan, pod: Replica) -> None:
    """Delete the Pod, or start its preDelete hook. [AS-98]"""
    if pod.terminating:
        return
    if not pod.facts.delete_hooked:
        plan.delete.append(pod)
    elif not pod.facts.preparing_delete:
        plan.prepare.append(pod)


def _wanted_again(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """Return the Pods in slots whose pending deletion must be canceled. [AS-101]

    Pods that the update is about to replace are not included. A paused update replaces no Pods: OrderedReady would wait
    for them until the rollout is resumed. [AS-76]
    """
    waiting = [
        one
        for one in replicas.wanted
        if one.facts.lifecycle == LifecycleState.PREPARING_DELETE
        and not (one.terminating or one.ended or is_marked(one))
    ]
    if not waiting:
        return []
    listed = [] if replicas.settings.paused else candidates(replicas, current=current, update=update)
    replaced = {one.ordinal for one in listed}
    return [one for one in waiting if one.is_at(update) or one.ordinal not in replaced]


# Which Pods to update now, and which marked Pods to delete [AS-75 … AS-94]. Pure.

#: Reasons to replace a Pod that are unrelated to its revision.
MARKED = "it is marked for deletion"
BEGUN = "its deletion has begun"
CLAIMS_GROWN = "its claims wait for a file system resize at the next mount"

READY_CLAIMS = ClaimState()


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Pods to update now. ``update`` has the steps for the engine; ``grow`` are Pods whose claims must be expanded
    first."""

    update: UpdatePlan
    grow: Sequence[Replica] = ()


def released(replicas: Replicas, listed: Collection[Replica], *, update: str) -> frozenset[PodFacts]:
    """Return the Pods that are preparing for an update they no longer need. They return to service.

    ``listed`` are the update candidates. While the update is paused, Pods that already wait for their hook keep
    waiting.
    """
    chosen = {one.ordinal for one in listed}
    return frozenset(
        one.facts
        for one in replicas.everyone
        if one.facts.lifecycle == LifecycleState.PREPARING_UPDATE
        and (one.is_at(update) or (not replicas.settings.paused and one.ordinal not in chosen))
    )


def plan_update(
    replicas: Replicas,
    listed: Sequence[Replica],
    *,
    update: str,
    now: float,
    obstacle: Obstacle,
    claims: dict[int, ClaimState] | None = None,
    begin: bool = True,
    held_by: Replica | None = None,
) -> RolloutPlan:
    """Plan the update steps. [AS-76 … AS-94]

    ``listed`` are the candidates; ``obstacle`` returns why a Pod cannot be updated in place; ``claims`` are the claim
    states by ordinal if claims are expanded with the update. Unless ``begin`` is set, only updates that have begun
    continue [AS-57]. Even then, the outdated Pod ``held_by`` that OrderedReady waits for is updated if the set enables
    repairs. [AS-140]
    """
    settings, found = replicas.settings, claims or {}
    held_by = held_by if settings.repairs else None
    if settings.paused and not settings.on_delete:
        return RolloutPlan(UpdatePlan())
    disruptions = _Disruptions(replicas, now)
    steps: list[Step] = []
    grow: list[Replica] = []
    handled = _marked_steps(replicas, disruptions, steps, begin=begin)
    for pod in listed if begin else [one for one in listed if _is_begun(one) or _is_broken(one, held_by, update)]:
        state = found.get(pod.ordinal, READY_CLAIMS)
        if (pod.is_at(update) and state.compatible and not state.pending) or pod.ordinal in handled:
            continue
        if pod.terminating or not disruptions.allows(pod):
            continue
        if not state.compatible or not state.completed:
            # The Pod is updated after its claims are expanded. [AS-105]
            if not state.compatible:
                grow.append(pod)
            continue
        if pod.is_at(update) or pod.facts.preparing_delete:
            _replace(pod, BEGUN if pod.facts.preparing_delete else CLAIMS_GROWN, steps)  # [AS-148]
            continue
        reason = "the policy is ReCreate" if settings.policy is UpdatePolicy.RECREATE else obstacle(pod.facts)
        if reason is None:
            step = in_place_step(pod.facts, settings.lifecycle)
            if step is not None:
                steps.append(step)
        elif settings.policy is UpdatePolicy.IN_PLACE_ONLY:
            return RolloutPlan(UpdatePlan(update, tuple(steps), in_place_only_failure(pod, reason), reason), grow)
        else:
            _replace(pod, reason, steps)
    return RolloutPlan(UpdatePlan(update, tuple(steps)), grow)


def in_place_only_failure(pod: Replica, reason: str) -> str:
    """Return the message of condition FailedUpdatePod. [AS-110]"""
    return f"update strategy is InPlaceOnly but Pod {pod.name} can not update in-place: {reason}"


class _Disruptions:
    """Number of additional Pods that may become unavailable. [AS-77, AS-78]"""

    def __init__(self, replicas: Replicas, now: float) -> None:
        self._out = {one.ordinal for one in replicas.wanted if not one.usable(now)}
        self._left = replicas.settings.update_limit - len(self._out) - replicas.missing

    def allows(self, pod: Replica) -> bool:
        """Return whether the Pod may be taken out of service. If so, count it as unavailable from then on. [AS-81,
        AS-83, AS-90]"""
        if pod.ordinal in self._out:
            return True  # a Pod that is unavailable already costs nothing, regardless of its position [AS-139]
        if self._left <= 0:
            return False
        self._left -= 1
        self._out.add(pod.ordinal)
        return True


def _is_begun(pod: Replica) -> bool:
    """Return whether a hook of the Pod has started. Skipping such a Pod would deadlock an OrderedReady set."""
    return pod.facts.lifecycle in (LifecycleState.PREPARING_UPDATE, LifecycleState.PREPARING_DELETE)


def _is_broken(pod: Replica, held_by: Replica | None, update: str) -> bool:
    """Return whether the Pod blocks OrderedReady and the update may repair it. [AS-140]"""
    held = held_by is not None and pod.ordinal == held_by.ordinal
    return held and not pod.running_and_ready and not pod.is_at(update)


def _marked_steps(replicas: Replicas, disruptions: _Disruptions, steps: list[Step], *, begin: bool) -> set[int]:
    """Add steps for Pods that are marked for deletion. Return their ordinals. [AS-89 … AS-91, AS-94, AS-142]"""
    handled = set()
    for pod in reversed(replicas.wanted):
        if is_marked(pod) and (begin or _is_begun(pod)) and not pod.terminating and disruptions.allows(pod):
            handled.add(pod.ordinal)
            _replace(pod, MARKED, steps)
    return handled


def _replace(pod: Replica, why: str, steps: list[Step]) -> None:
    """Add a step that deletes the Pod or starts its preDelete hook, unless the hook is pending. [AS-98]"""
    if not (pod.facts.delete_hooked and pod.facts.preparing_delete):
        steps.append(Step(StepKind.RECREATE, pod.facts, why))


# Status of a StatefulSet [AS-88, AS-116, AS-117]. Pure.

REQUIRED: Final = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "currentReplicas",
    "updatedReplicas",
    "collisionCount",
)
FAILED_CREATE: Final = "FailedCreatePod"
FAILED_UPDATE: Final = "FailedUpdatePod"


def base_status(
    replicas: Replicas, revisions: Revisions, *, generation: int, label_selector: str, now: float
) -> dict[str, Any]:
    """Return the status without conditions and claims. ``now`` is in POSIX seconds."""
    everyone = replicas.everyone
    current, update = short_hash(revisions.current.name), short_hash(revisions.update.name)
    ready = [one for one in everyone if one.running_and_ready]
    available = [one for one in ready if one.available(now)]
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": len(everyone),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "currentReplicas": _at(current, everyone),
        "updatedReplicas": _at(update, everyone),
        "updatedReadyReplicas": sum(one.is_at(update) for one in ready),
        "updatedAvailableReplicas": sum(one.is_at(update) for one in available),
        "currentRevision": revisions.current.name,
        "updateRevision": revisions.update.name,
        "collisionCount": revisions.collision_count,
        "labelSelector": label_selector,
    }
    done = status["updatedReplicas"] == status["replicas"] == status["readyReplicas"]
    if done and not replicas.settings.on_delete:
        # With no Pods the update is complete at once. [AS-88]
        status["currentRevision"] = revisions.update.name
        status["currentReplicas"] = status["updatedReplicas"]
    return status


def _at(revision: str, pods: Iterable[Replica]) -> int:
    return sum(one.is_at(revision) and not one.terminating for one in pods)
