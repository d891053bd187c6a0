"""Writes of the CloneSet controller, and the state it keeps for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias

from app.features.cloneset.plan.new_pods import PodMaker, pod_name
from app.features.cloneset.plan.scale import Removal, ScalePlan
from app.features.cloneset.plan.settings import ResolvedSpec
from app.features.cloneset.types import CloneSet
from app.kube.errors import Forbidden, KubeError, message_of
from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.claims import cleanup, free_instance_ids, instance_id, instance_ids
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision, recorded_template
from app.workloads.settings import UpdatePolicy
from app.workloads.state import (
    AnySnapshot,
    Outcome,
    Snapshot,
    WorkloadState,
    creation_outcome,
    gather_results,
    outcome_of,
)
from app.workloads.steps import Step
from app.workloads.updater import Updater
from app.workloads.writer import Writer


@dataclass(slots=True)
class CloneSetState(WorkloadState[ResolvedSpec]):
    """State that the controller keeps for one CloneSet."""

    #: Instance IDs of Pods whose creation failed. They are reused first, so that a creation whose response was lost
    #: cannot result in two Pods.
    failed_ids: set[str] = field(default_factory=set)
    #: Instance IDs of Pods that the controller deleted and whose claims still exist.
    deleted_ids: set[str] = field(default_factory=set)
    #: The creation limit in the last event, and the monotonic time of that event.
    limited_to: int | None = None
    limited_at: float = 0.0


Observed: TypeAlias = Snapshot[CloneSet, CloneSetState, ResolvedSpec]


@dataclass(frozen=True, slots=True)
class PodsAndClaims:
    """Pods and claims of a CloneSet, used to choose instance IDs."""

    active: Sequence[Pod]
    inactive: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: Returns whether the Pod name for an instance ID is taken by a Pod of any owner.
    name_taken: Callable[[str], bool] = lambda _: False

    def claims_of(self, id_: str) -> list[PersistentVolumeClaim]:
        return [claim for claim in self.claims if id_ and instance_id(claim.metadata.labels) == id_]

    def without_claims_of_others(self) -> PodsAndClaims:
        """Return a copy without the claims of instances whose Pod name is taken by a Pod of another owner."""
        known = {instance_id(pod.metadata.labels) for pod in (*self.active, *self.inactive)}
        ids = [instance_id(claim.metadata.labels) for claim in self.claims]
        taken = {id_ for id_ in ids if id_ not in known and self.name_taken(id_)}
        kept = [claim for claim, id_ in zip(self.claims, ids, strict=True) if id_ not in taken]
        return replace(self, claims=kept) if taken else self


#: Seconds until an unchanged limit is reported again.
LIMIT_EVENT_INTERVAL: Final = 30.0


class Scaler:
    """Carries out scale plans. ``rng`` generates instance IDs."""

    def __init__(self, writer: Writer, rng: Random) -> None:
        self._writer = writer
        self._rng = rng

    async def carry_out(self, snapshot: Observed, owned: PodsAndClaims, plan: ScalePlan, now: float) -> Outcome:
        """Carry out one step of the plan. ``now`` is monotonic time. [CS-96 … CS-105]"""
        self._report_limit(snapshot, plan, now)
        try:
            if await self._finish(snapshot, owned):
                return Outcome(changed=True)  # the snapshot still lists the deleted claims
        except KubeError as error:
            return Outcome(changed=True, error=error, message=message_of(error))
        if plan.cancel_deletion:
            return await self._cancel_deletion(snapshot, plan)
        if plan.create:
            outcome = await self._create(snapshot, owned, plan, now)
            if plan.otherwise and not outcome.changed:
                removed = await self._remove(snapshot, owned, plan.otherwise)
                outcome.changed, outcome.error = removed.changed, outcome.error or removed.error
                outcome.requeue_after += removed.requeue_after
            return outcome
        snapshot.state.creation_backoff.reset()
        if plan.remove:
            return await self._remove(snapshot, owned, plan.remove)
        return Outcome()

    def _report_limit(self, snapshot: Observed, plan: ScalePlan, now: float) -> None:
        """Record an event when the creation limit changes, and periodically while it applies. [CS-99]"""
        limit, state = plan.limited_to, snapshot.state
        if limit is not None and (limit != state.limited_to or now - state.limited_at >= LIMIT_EVENT_INTERVAL):
            text = f"scaleUp is limited because of scaleStrategy.maxUnavailable, limit: {limit}"
            self._writer.event(snapshot.workload, "ScaleUpLimited", text, warning=True)
            state.limited_at = now
        state.limited_to = limit

    async def _cancel_deletion(self, snapshot: Observed, plan: ScalePlan) -> Outcome:
        uid, lifecycle = snapshot.owner.uid, snapshot.resolved.settings.lifecycle
        found = await gather_results(
            self._writer.set_state(uid, one.pod, LifecycleState.PREPARING_NORMAL, lifecycle)
            for one in plan.cancel_deletion
        )
        return outcome_of(found)

    async def _create(self, snapshot: Observed, owned: PodsAndClaims, plan: ScalePlan, now: float) -> Outcome:
        state, revisions = snapshot.state, snapshot.revisions
        if waits := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[waits])
        ids, waiting = self._instance_ids(snapshot, owned, plan.create)
        if not ids:
            return Outcome(message=_waiting(waiting))
        makers = [_maker(snapshot.resolved, revision) for revision in (revisions.current, revisions.update)]
        counts = (plan.create_current, plan.create_update)
        wanted = [maker for maker, count in zip(makers, counts, strict=True) for _ in range(count)]
        # If a revision was edited by hand and holds no usable template, the Pod is created at the update revision.
        pairs = [(maker or makers[1], id_) for maker, id_ in zip(wanted, ids, strict=False)]
        if all(maker is None for maker, _ in pairs):
            name = revisions.update.name
            return Outcome(message=f"ControllerRevision {name} contains no usable Pod template")
        claims = {id_: {claim.metadata.name for claim in owned.claims_of(id_)} for id_ in ids}
        new = {id_: maker.new_pod(id_, claims[id_]) for maker, id_ in pairs if maker is not None}
        made, refused = await self._writer.create_pods(
            snapshot.workload, list(new.values()), snapshot.resolved.selector
        )
        failures = {id_: refused[pod.name] for id_, pod in new.items() if pod.name in refused}
        state.failed_ids.difference_update(ids)
        state.failed_ids.update(failures)
        return creation_outcome(
            state.creation_backoff,
            failures,
            made=made,
            now=now,
            describe=lambda why: f"{why} ({plan.create - made} of {plan.create} Pods were not created)",
            waiting=_waiting(waiting) if waiting else "",
        )

    def _instance_ids(self, snapshot: Observed, owned: PodsAndClaims, count: int) -> tuple[list[str], list[Pod]]:
        """Return the IDs to use now, and the terminating Pods whose IDs must become free first. [CS-117, CS-119]

        A released Pod keeps its name and its claims, so its replacement gets another ID. [CS-68]
        """
        owned, state = owned.without_claims_of_others(), snapshot.state
        state.failed_ids = {id_ for id_ in state.failed_ids if not owned.name_taken(id_)}
        active, inactive = owned.active, owned.inactive
        held = {instance_id(pod.metadata.labels): pod for pod in inactive}
        in_use = {instance_id(pod.metadata.labels) for pod in active}
        free = free_instance_ids(active, owned.claims, held)
        offered = {instance_id(claim.metadata.labels) for claim in owned.claims}
        awaited = [
            pod
            for id_, pod in held.items()
            # A finished Pod might never be deleted, so it is replaced under another ID.
            if id_ in offered and id_ not in in_use and pod.metadata.deletion_timestamp is not None
        ]
        waiting = awaited[: max(0, count - len(free))] if snapshot.resolved.settings.reuse_claims else []
        free += sorted(state.failed_ids.difference(free, in_use, held))
        taken = in_use.union(held, offered)
        return instance_ids(count - len(waiting), free, taken, self._rng), waiting

    async def _finish(self, snapshot: Observed, owned: PodsAndClaims) -> bool:
        """Delete remaining claims of Pods that the controller deleted. Return whether any were left. Raises any API
        error. A forbidden deletion is not retried. [CS-106]"""
        state = snapshot.state
        state.deleted_ids.difference_update([instance_id(pod.metadata.labels) for pod in owned.active])
        found = False
        for id_ in sorted(state.deleted_ids):
            claims = owned.claims_of(id_)
            if not claims:
                state.deleted_ids.discard(id_)
            for claim in claims:
                try:
                    await self._writer.delete_claim(snapshot.workload, claim)
                except Forbidden:
                    state.deleted_ids.discard(id_)
                    raise
                found = True
        return found

    async def _remove(self, snapshot: Observed, owned: PodsAndClaims, removals: Sequence[Removal]) -> Outcome:
        """Delete the Pods concurrently; the plan already respects the limits. [CS-105]"""

        async def remove(pod: Pod, prepare: bool) -> None:
            if prepare:
                lifecycle = snapshot.resolved.settings.lifecycle
                await self._writer.set_state(snapshot.owner.uid, pod, LifecycleState.PREPARING_DELETE, lifecycle)
            else:
                id_ = instance_id(pod.metadata.labels)
                claims = by_id.get(id_, ())
                if await self._writer.delete_pod(snapshot.workload, pod) and claims:
                    deleted.append(id_)
                    snapshot.state.deleted_ids.add(id_)
                    for claim in claims:
                        await self._writer.delete_claim(snapshot.workload, claim)

        #: Instance IDs of deleted Pods, even if deleting their claims failed: the snapshot is stale in that case too.
        deleted: list[str] = []
        by_id: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in owned.claims:
            if id_ := instance_id(claim.metadata.labels):
                by_id.setdefault(id_, []).append(claim)
        found = await gather_results(remove(removal.pod.pod, removal.prepare) for removal in removals)
        outcome = outcome_of(found)
        outcome.changed = outcome.changed or bool(deleted)
        return outcome

    async def clean_up_claims(self, snapshot: Observed, owned: PodsAndClaims) -> PodsAndClaims:
        """Delete the claims of Pods that are gone, and return the active Pods and the remaining claims. Raises any API
        error. [CS-120]"""
        workload, plan = snapshot.workload, cleanup(owned.claims, owned.active, owned.inactive)
        for claim, pod in plan.hand_over:
            await self._writer.hand_over_claim(workload, claim, pod)
        kept = list(plan.kept)
        for claim in plan.delete:
            # The Pod watch may lag behind the claim watch, and a creation may have succeeded although its response was
            # lost.
            name = pod_name(snapshot.owner.name, instance_id(claim.metadata.labels))
            if await self._writer.pod_exists(workload, name):
                kept.append(claim)
            else:
                await self._writer.delete_claim(workload, claim, cleaning=True)
        return replace(owned, inactive=[], claims=kept)


def _maker(resolved: ResolvedSpec, revision: Revision) -> PodMaker | None:
    template = recorded_template(revision)
    return PodMaker(resolved, template, revision.name) if template is not None else None


def _waiting(pods: Collection[Pod]) -> str:
    names = ", ".join(sorted(pod.metadata.name for pod in pods))
    return f"waiting for terminating Pods whose names and claims will be reused: {names}"


logger = logging.getLogger(__name__)


class CloneSetUpdater(Updater):
    """Carries out update plans. A Pod to recreate is marked for deletion, and scaling replaces it. [CS-132]"""

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
        """Mark the Pod for deletion, so that scaling replaces it. [CS-132]"""
        name, workload = step.pod.name, snapshot.workload
        failed = f"failed to patch pod specified-delete {name} for update(revision {target.name})"
        with self.writer.reporting(workload, "FailedUpdatePodReCreate", failed):
            await self.writer.mark_for_deletion(snapshot.owner.uid, step.pod.pod)
        # [PM-189]
        namespace = snapshot.owner.namespace
        logger.info("inplace: recreating Pod %s/%s for %s: %s", namespace, name, target.name, step.obstacle)
        text = f"successfully patch pod {name} specified-delete for update(revision {target.name})"
        self.writer.event(workload, "SuccessfulUpdatePodReCreate", text)
        why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
        if snapshot.resolved.settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE:
            self.report_obstacle(snapshot, why)
