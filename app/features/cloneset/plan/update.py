"""Updates of a CloneSet: which Pods to update now, in which order, and how new Pods and claims are built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from app.api import names
from app.features.cloneset.plan.scale import Diff
from app.features.cloneset.plan.settings import Settings
from app.features.cloneset.types import RollingUpdate
from app.kube.objects import Pod
from app.kube.selector_query import SelectorError
from app.pods.claims import claims_of_pod, with_claim_volumes
from app.pods.lifecycle import LifecycleState, state_members
from app.pods.order import in_default_update_order, in_update_order
from app.pods.predicates import Owner
from app.pods.revisions import pod_of_template, revision_labels, short_hash
from app.workloads.pods import NewPod, PodFacts
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step

# Which Pods move to another revision now, and by which step [CS-124 … CS-132]. Pure.

#: Sorts candidates into update order. [CS-125 … CS-128]
UpdateOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


def plan_update(
    pods: Sequence[PodFacts],
    difference: Diff,
    settings: Settings,
    *,
    current: str,
    update: str,
    now: float,
    order: UpdateOrder,
    obstacle: Obstacle,
) -> UpdatePlan:
    """Plan the update steps. ``current`` and ``update`` are the short hashes of the revisions; ``now`` is in POSIX
    seconds. [CS-123 … CS-132]"""
    if settings.on_delete or settings.paused or not difference.update:
        return UpdatePlan()
    target = update if difference.update > 0 else current
    chosen = chosen_pods(pods, difference, update=update, now=now, order=order)
    steps: list[Step] = []
    for pod in chosen:
        reason = obstacle(pod) if _in_place_wanted(settings) else "the policy is ReCreate"
        if reason is None:
            step = in_place_step(pod, settings.lifecycle)
            if step is not None:
                steps.append(step)
        elif settings.rolling_update is not None and settings.rolling_update.policy is UpdatePolicy.IN_PLACE_ONLY:
            return UpdatePlan(target, tuple(steps), in_place_only_failure(pod), reason)
        else:
            steps.append(Step(StepKind.RECREATE, pod, reason))
    return UpdatePlan(target, tuple(steps))


def released_pods(
    pods: Sequence[PodFacts], difference: Diff, settings: Settings, *, update: str
) -> frozenset[PodFacts]:
    """Return the Pods that are preparing for an update they no longer need. They return to service.

    OpenKruise always returns Pods at the update revision to service, and only those [PM-75]. So a partition rollback
    that waits for a hook never completes there, and a Pod whose update was canceled by a higher partition or by
    OnDelete stays out of service.
    """
    preparing = [pod for pod in pods if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    if not preparing:
        return frozenset()
    wanted = 0 if settings.on_delete else difference.update
    forward = wanted > 0
    candidates = [pod for pod in preparing if wanted and (pod.revision == update) != forward]
    if settings.paused:
        # While the rollout is paused, Pods that already wait for their hook keep waiting.
        candidates = [pod for pod in preparing if pod.revision != update]
        return frozenset(preparing) - frozenset(candidates)
    kept = sorted(candidates, key=lambda pod: pod.name)[: abs(wanted)]
    return frozenset(preparing) - frozenset(kept)


def in_place_only_failure(pod: PodFacts) -> str:
    """Return the message of condition FailedUpdate. [CS-132]"""
    return f"find Pod {pod.name} update strategy is InPlaceOnly but can not update in-place"


def chosen_pods(
    pods: Sequence[PodFacts], difference: Diff, *, update: str, now: float, order: UpdateOrder
) -> list[PodFacts]:
    """Return the candidates in order, as many as maxUnavailable allows. [CS-124]"""
    forward = difference.update > 0
    unavailable = at_target = 0
    candidates = []
    for pod in pods:
        is_new = pod.revision == update
        if pod.available_after >= now:
            unavailable += 1
            at_target += is_new == forward
        # A Pod in its grace period may switch revisions at once: the pending update is never applied. [PM-57a]
        if is_new != forward and not pod.preparing_delete:
            candidates.append(pod)
    # Pods in PreparingUpdate are out of service already, so they are always included.
    preparing = [pod for pod in candidates if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    # Do not sort candidates that cannot be updated.
    if difference.update_max <= at_target:
        candidates = preparing
    if not candidates:
        return []
    chosen: list[PodFacts] = []
    for pod in order(candidates)[: abs(difference.update)]:
        if pod.lifecycle == LifecycleState.PREPARING_UPDATE:
            chosen.append(pod)
            continue
        if at_target + len(chosen) >= difference.update_max:
            break
        if pod.available_after < now:
            if unavailable >= difference.update_max:
                # Updating a broken Pod later in the order costs no availability, and the Pod may need this update to
                # recover.
                continue
            unavailable += 1
        chosen.append(pod)
    return chosen


def _in_place_wanted(settings: Settings) -> bool:
    return settings.rolling_update is not None and settings.rolling_update.policy is not UpdatePolicy.RECREATE


# The update order [CS-125 … CS-128]. Pure.


def update_order(
    all_pods: Sequence[PodFacts], strategy: RollingUpdate | None
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """Return a function that sorts candidates for the update. An invalid selector, which admission rejects, is ignored.
    [CS-125 … CS-128]"""

    def ordered(candidates: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in candidates}
        whole = [one.pod for one in all_pods] if strategy is not None and strategy.scatter_strategy else ()
        return [facts[pod.metadata.uid] for pod in in_order([one.pod for one in candidates], whole, strategy)]

    return ordered


def in_order(pods: Sequence[Pod], whole: Sequence[Pod], strategy: RollingUpdate | None) -> list[Pod]:
    """Return the Pods in update order. ``whole`` is all Pods of the CloneSet, needed only for scattering."""
    found = in_default_update_order(pods)
    priority = strategy.priority_strategy if strategy is not None else None
    scatter = strategy.scatter_strategy if strategy is not None else None
    try:
        return in_update_order(found, whole, priority, scatter)
    except SelectorError:
        return in_update_order(found, whole, None, scatter)


# Construction of a Pod and its claims [CS-115 … CS-118, CS-142]. IDs and times are arguments. Pure.

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodMaker:
    """Builds the Pods of one revision. ``template`` is the Pod template; ``claim_templates`` are the current
    volumeClaimTemplates [CS-74]; ``bare_hash`` is the gate CloneSetShortHash. ``ready_gate`` adds the readiness gate
    KruisePodReady to Pods, and ``managed_fields`` keeps their metadata.managedFields."""

    owner: Owner
    template: Json
    claim_templates: Sequence[Json]
    revision: str
    selector_labels: Mapping[str, str]
    bare_hash: bool = False
    ready_gate: bool = True
    managed_fields: bool = False

    def new_pod(self, instance: str, existing: Collection[str]) -> NewPod:
        """Return the Pod with that instance ID and those of its claims that do not exist yet."""
        name = pod_name(self.owner.name, instance)
        return NewPod(name, partial(self.pod, instance), self.claims(instance, existing), self.managed_fields)

    def pod(self, instance: str, now: datetime) -> Json:
        name = pod_name(self.owner.name, instance)
        state_labels, annotations = state_members(LifecycleState.PREPARING_NORMAL, now)
        body = pod_of_template(
            self.template,
            name,
            self.owner.namespace,
            self.owner.reference,
            generate_name=f"{self.owner.name}-",
            labels={
                **revision_labels(self.revision, short_hash(self.revision), bare_hash=self.bare_hash),
                **state_labels,
                names.CLONESET_INSTANCE_ID: instance,
            },
            annotations=annotations,
            readiness_gates=self._readiness_gates,
        )
        if self.claim_templates:
            spec = body["spec"]
            spec["volumes"] = with_claim_volumes(spec.get("volumes"), self.claim_templates, name)
        return body

    @property
    def _readiness_gates(self) -> tuple[str, ...]:
        """Readiness gates that Pods get under every update policy [PM-4]. Including the one that admission would append
        [PM-176] saves the webhook a patch."""
        return (names.IN_PLACE_UPDATE_READY, *((names.KRUISE_POD_READY,) if self.ready_gate else ()))

    def claims(self, instance: str, existing: Collection[str]) -> list[dict[str, Any]]:
        """Return the claims of that instance ID that do not exist yet. [CS-118]"""
        return claims_of_pod(
            self.claim_templates,
            pod_name(self.owner.name, instance),
            self.owner.namespace,
            self.owner.reference,
            {**self.selector_labels, names.CLONESET_INSTANCE_ID: instance},
            existing,
        )


def pod_name(owner: str, instance: str) -> str:
    """Return the name of the Pod with that instance ID. [CS-116]"""
    return f"{owner}-{instance}"
