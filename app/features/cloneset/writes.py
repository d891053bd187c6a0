"""What a reconcile of a CloneSet carries out, and the state it does so by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias

from app.features.cloneset.plan.rollout import Inputs, RolloutState, planned_update, released
from app.features.cloneset.plan.scale import ScalePlan
from app.features.cloneset.plan.settings import ResolvedSpec
from app.features.cloneset.plan.update import PodMaker, pod_name
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
    gather_results,
    outcome_of,
    refused_creations,
)
from app.workloads.steps import Step
from app.workloads.updater import Updater
from app.workloads.writer import Writer


@dataclass(slots=True)
class CloneSetState(WorkloadState[ResolvedSpec]):
    """One CloneSet."""

    #: Instance ids of Pods whose creation failed, to be used first: a request whose answer was lost cannot make two.
    failed_ids: set[str] = field(default_factory=set)
    #: Instance ids of Pods we deleted, as long as claims of theirs are there.
    deleted_ids: set[str] = field(default_factory=set)
    #: The limit that was reported last, and when (B-14).
    limited_to: int | None = None
    limited_at: float = 0.0


Observed: TypeAlias = Snapshot[CloneSet, CloneSetState, ResolvedSpec]


@dataclass(frozen=True, slots=True)
class PodsAndClaims:
    """The Pods and claims of a CloneSet, as instance ids are drawn from them."""

    active: Sequence[Pod]
    inactive: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: Whether some Pod, whoever's it is, has the name that belongs to an instance id.
    name_taken: Callable[[str], bool] = lambda _: False

    def claims_of(self, id_: str) -> list[PersistentVolumeClaim]:
        """The claims of one instance."""
        return [claim for claim in self.claims if id_ and instance_id(claim.metadata.labels) == id_]

    def without_claims_of_others(self) -> PodsAndClaims:
        """The same without the claims of instances whose Pod would have the name of a Pod that is none of these."""
        known = {instance_id(pod.metadata.labels) for pod in (*self.active, *self.inactive)}
        ids = [instance_id(claim.metadata.labels) for claim in self.claims]
        taken = {id_ for id_ in ids if id_ not in known and self.name_taken(id_)}
        kept = [claim for claim, id_ in zip(self.claims, ids, strict=True) if id_ not in taken]
        return replace(self, claims=kept) if taken else self


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSetSnapshot(Snapshot[CloneSet, CloneSetState, ResolvedSpec]):
    """One CloneSet as it is."""

    inputs: Inputs
    rollout: RolloutState
    pods_and_claims: PodsAndClaims

    @classmethod
    def of(
        cls, observed: Observed, inputs: Inputs, rollout: RolloutState, pods_and_claims: PodsAndClaims
    ) -> CloneSetSnapshot:
        """Add the plan's counts to what was observed."""
        return cls(
            workload=observed.workload,
            state=observed.state,
            resolved=observed.resolved,
            status=observed.status,
            observed=observed.observed,
            claims=observed.claims,
            revisions=observed.revisions,
            now=observed.now,
            inputs=inputs,
            rollout=rollout,
            pods_and_claims=pods_and_claims,
        )


#: Seconds after which a limit that stays the same is reported again.
LIMIT_EVENT_INTERVAL: Final = 30.0


class Scaler:
    """Carries out scale plans. ``rng`` draws instance ids."""

    def __init__(self, writer: Writer, rng: Random) -> None:
        self._writer = writer
        self._rng = rng

    async def carry_out(self, snapshot: CloneSetSnapshot, plan: ScalePlan, now: float) -> Outcome:
        """One of its steps (CS-96 … CS-105). ``now``: the monotonic clock."""
        self._report_limit(snapshot, plan, now)
        try:
            if await self._finish(snapshot):
                return Outcome(changed=True)  # what was offered for new Pods is gone
        except KubeError as error:
            return Outcome(changed=True, error=error, message=message_of(error))
        if plan.cancel_deletion:
            return await self._cancel_deletion(snapshot, plan)
        if plan.create:
            return await self._create(snapshot, plan, now)
        snapshot.state.creation_backoff.reset()
        if plan.remove:
            return await self._remove(snapshot, plan)
        return Outcome()

    def _report_limit(self, snapshot: CloneSetSnapshot, plan: ScalePlan, now: float) -> None:
        """CS-99, B-14: when the limit changes, and now and then while it stays."""
        limit, state = plan.limited_to, snapshot.state
        if limit is not None and (limit != state.limited_to or now - state.limited_at >= LIMIT_EVENT_INTERVAL):
            text = f"scaleUp is limited because of scaleStrategy.maxUnavailable, limit: {limit}"
            self._writer.event(snapshot.workload, "ScaleUpLimited", text, warning=True)
            state.limited_at = now
        state.limited_to = limit

    async def _cancel_deletion(self, snapshot: CloneSetSnapshot, plan: ScalePlan) -> Outcome:
        uid, lifecycle = snapshot.owner.uid, snapshot.resolved.settings.lifecycle
        found = await gather_results(
            self._writer.set_state(uid, one.pod, LifecycleState.PREPARING_NORMAL, lifecycle)
            for one in plan.cancel_deletion
        )
        return outcome_of(found)

    # ---- creating

    async def _create(self, snapshot: CloneSetSnapshot, plan: ScalePlan, now: float) -> Outcome:
        state, revisions = snapshot.state, snapshot.revisions
        if waits := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[waits])
        ids, waiting = self._instance_ids(snapshot, plan.create)
        if not ids:
            return Outcome(message=_waiting(waiting))
        makers = [_maker(snapshot.resolved, revision) for revision in (revisions.current, revisions.update)]
        counts = (plan.create_current, plan.create_update)
        wanted = [maker for maker, count in zip(makers, counts, strict=True) for _ in range(count)]
        # A Pod that nothing can be made of (a revision made by hand) is made at the update revision instead.
        pairs = [(maker or makers[1], id_) for maker, id_ in zip(wanted, ids, strict=False)]
        if all(maker is None for maker, _ in pairs):
            name = revisions.update.name
            return Outcome(message=f"ControllerRevision {name} holds no template a Pod could be made from")
        claims = {id_: {claim.metadata.name for claim in snapshot.pods_and_claims.claims_of(id_)} for id_ in ids}
        new = {id_: maker.new_pod(id_, claims[id_]) for maker, id_ in pairs if maker is not None}
        made, refused = await self._writer.create_pods(snapshot.workload, list(new.values()))
        failures = {id_: refused[pod.name] for id_, pod in new.items() if pod.name in refused}
        state.failed_ids.difference_update(ids)
        if not failures:
            state.creation_backoff.reset()
            return Outcome(changed=made > 0, message=_waiting(waiting) if waiting else "")
        state.failed_ids.update(failures)
        state.creation_backoff.refuse(now)
        missing, why = plan.create - made, message_of(next(iter(failures.values())))
        return refused_creations(
            failures.values(),
            made=made,
            retry_in=state.creation_backoff.remaining(now),
            message=f"{why} ({missing} of {plan.create} Pods to create are missing)",  # B-17
        )

    def _instance_ids(self, snapshot: CloneSetSnapshot, count: int) -> tuple[list[str], list[Pod]]:
        """CS-117, CS-119: the ids to use now, and the Pods on their way out whose ids are waited for (B-8).

        A Pod that was released keeps its name, and its claims are offered: it is replaced under another id (CS-68).
        """
        pods_and_claims, state = snapshot.pods_and_claims.without_claims_of_others(), snapshot.state
        state.failed_ids = {id_ for id_ in state.failed_ids if not pods_and_claims.name_taken(id_)}
        active, inactive = pods_and_claims.active, pods_and_claims.inactive
        held = {instance_id(pod.metadata.labels): pod for pod in inactive}
        in_use = {instance_id(pod.metadata.labels) for pod in active}
        free = free_instance_ids(active, pods_and_claims.claims, held)
        offered = {instance_id(claim.metadata.labels) for claim in pods_and_claims.claims}
        awaited = [
            pod
            for id_, pod in held.items()
            # One that has ended stays as long as somebody leaves it: its place is taken by another.
            if id_ in offered and id_ not in in_use and pod.metadata.deletion_timestamp is not None
        ]
        waiting = awaited[: max(0, count - len(free))] if snapshot.resolved.settings.reuse_claims else []
        free += sorted(state.failed_ids.difference(free, in_use, held))
        taken = in_use.union(held, offered)
        return instance_ids(count - len(waiting), free, taken, self._rng), waiting

    # ---- deleting

    async def _finish(self, snapshot: CloneSetSnapshot) -> bool:
        """CS-106: the claims go too of Pods we deleted, if that failed before or the cache shows them still. Whether
        there were such. Raises what the API server says; what it never allows stays, as it is."""
        state, pods_and_claims = snapshot.state, snapshot.pods_and_claims
        state.deleted_ids.difference_update([instance_id(pod.metadata.labels) for pod in pods_and_claims.active])
        found = False
        for id_ in sorted(state.deleted_ids):
            claims = pods_and_claims.claims_of(id_)
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

    async def _remove(self, snapshot: CloneSetSnapshot, plan: ScalePlan) -> Outcome:
        """CS-105; side by side, for the plan has counted what may go."""

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

        #: Pods that are gone even if their claims are not: nothing more may be decided on what was seen before.
        deleted: list[str] = []
        by_id: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in snapshot.pods_and_claims.claims:
            if id_ := instance_id(claim.metadata.labels):
                by_id.setdefault(id_, []).append(claim)
        found = await gather_results(remove(removal.pod.pod, removal.prepare) for removal in plan.remove)
        outcome = outcome_of(found)
        outcome.changed = outcome.changed or bool(deleted)
        return outcome

    async def clean_up_claims(self, snapshot: CloneSetSnapshot) -> CloneSetSnapshot:
        """CS-120: claims of Pods that are gone are not kept; the snapshot with those that stay. Raises what the API
        server says."""
        present, workload = snapshot.pods_and_claims, snapshot.workload
        plan = cleanup(present.claims, present.active, present.inactive)
        for claim, pod in plan.hand_over:
            await self._writer.hand_over_claim(workload, claim, pod)
        kept = list(plan.kept)
        for claim in plan.delete:
            # The watch of Pods may be behind that of claims, and a creation may have come about without an answer.
            name = pod_name(snapshot.owner.name, instance_id(claim.metadata.labels))
            if await self._writer.pod_exists(workload, name):
                kept.append(claim)
            else:
                await self._writer.delete_claim(workload, claim, cleaning=True)
        return replace(snapshot, pods_and_claims=PodsAndClaims(present.active, [], kept))


def _maker(resolved: ResolvedSpec, revision: Revision) -> PodMaker | None:
    template = recorded_template(revision)
    if template is None:
        return None
    return PodMaker(
        resolved.owner,
        template,
        resolved.claim_templates,
        revision.name,
        resolved.selector_labels,
        bare_hash=resolved.settings.gates.short_hash,
        ready_gate=resolved.settings.gates.ready_gate,
        managed_fields=resolved.settings.gates.managed_fields,
    )


def _waiting(pods: Collection[Pod]) -> str:
    names = ", ".join(sorted(pod.metadata.name for pod in pods))
    return f"waiting for terminating Pods whose names and claims are used again: {names}"


logger = logging.getLogger(__name__)


class CloneSetUpdater(Updater):
    """Carries out update plans; a Pod that is replaced is marked for deletion, and scaling replaces it (CS-132)."""

    async def update(self, snapshot: CloneSetSnapshot) -> Outcome:
        """CS-122 … CS-132."""
        outcome, moved = await self.refresh(snapshot, released(snapshot.rollout))
        if outcome.error is not None:
            return outcome
        return await self.carry_out(snapshot, planned_update(snapshot.inputs, snapshot.rollout), outcome, moved)

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
        """CS-132."""
        name, workload = step.pod.name, snapshot.workload
        try:
            await self.writer.mark_for_deletion(snapshot.owner.uid, step.pod.pod)
        except KubeError as error:
            text = (
                f"failed to patch pod specified-delete {name} for update(revision {target.name}): {message_of(error)}"
            )
            self.writer.event(workload, "FailedUpdatePodReCreate", text, warning=True)
            raise
        # B-22, PM-189
        namespace = snapshot.owner.namespace
        logger.info("inplace: Pod %s/%s is replaced for %s: %s", namespace, name, target.name, step.obstacle)
        text = f"successfully patch pod {name} specified-delete for update(revision {target.name})"
        self.writer.event(workload, "SuccessfulUpdatePodReCreate", text)
        why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
        if snapshot.resolved.settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE:
            self.report_obstacle(snapshot, why)
