"""Carrying out what the plan says about scaling: Pods revived, created and deleted, and their claims."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from app.api.cloneset import CloneSet
from app.kube.errors import UNANSWERED, Conflict, Forbidden, KubeError, message_of
from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.claims import cleanup, free_instance_ids, instance_id, instance_ids
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision
from app.pods.templates import recorded_template
from app.workloads.cloneset.creation import PodMaker
from app.workloads.cloneset.resolved import ResolvedSpec
from app.workloads.cloneset.scale import ScalePlan, Shortfall
from app.workloads.cloneset.state import CloneSetState
from app.workloads.cloneset.writer import PodGoneError, Writer, gather_results

logger = logging.getLogger(__name__)

#: Seconds after a refused creation before the next try, doubled each time, and the longest such wait.
CREATION_BACKOFF: Final = 0.1
MAX_CREATION_BACKOFF: Final = 30.0
#: Seconds that a timer may fire early.
TIMER_TOLERANCE: Final = 0.005
#: Seconds after which a limit that stays the same is told again.
LIMIT_EVENT_INTERVAL: Final = 30.0


@dataclass(slots=True)
class Outcome:
    """What came of one part of a pass. ``message``: for the condition; '' for none; None: it says nothing new."""

    changed: bool = False
    error: KubeError | None = None
    message: str | None = ""
    requeue_after: list[float] = field(default_factory=list)
    shortfall: Shortfall | None = None


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


class Scaler:
    """Carries out scale plans. ``rng`` draws instance ids."""

    def __init__(self, writer: Writer, rng: Random) -> None:
        self._writer = writer
        self._rng = rng

    async def carry_out(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        plan: ScalePlan,
        revisions: tuple[Revision, Revision],
        pods_and_claims: PodsAndClaims,
        now: float,
    ) -> Outcome:
        """One of its steps (CS-96 … CS-105). ``revisions``: current and update; ``now``: the monotonic clock."""
        self._report_limit(owner, state, plan, now)
        try:
            if await self._finish(owner, state, pods_and_claims):
                return Outcome(changed=True)  # what was offered for new Pods is gone
        except KubeError as error:
            return Outcome(changed=True, error=error, message=message_of(error))
        if plan.cancel_deletion:
            return await self._cancel_deletion(resolved, plan)
        if plan.create:
            return await self._create(owner, state, resolved, plan, revisions, pods_and_claims, now)
        state.refused_creations, state.create_after = 0, 0.0
        if plan.remove:
            return await self._remove(owner, state, resolved, plan, pods_and_claims)
        return Outcome(shortfall=plan.shortfall)

    def _report_limit(self, owner: CloneSet, state: CloneSetState, plan: ScalePlan, now: float) -> None:
        """CS-99, B-14: when the limit changes, and now and then while it stays."""
        limit = plan.limited_to
        if limit is not None and (limit != state.limited_to or now - state.limited_at >= LIMIT_EVENT_INTERVAL):
            text = f"scaleUp is limited because of scaleStrategy.maxUnavailable, limit: {limit}"
            self._writer.event(owner, "ScaleUpLimited", text, warning=True)
            state.limited_at = now
        state.limited_to = limit

    async def _cancel_deletion(self, resolved: ResolvedSpec, plan: ScalePlan) -> Outcome:
        found = await gather_results(
            self._writer.set_state(
                resolved.owner.uid, one.pod, LifecycleState.PREPARING_NORMAL, resolved.settings.lifecycle
            )
            for one in plan.cancel_deletion
        )
        return _outcome(found)

    # ---- creating

    async def _create(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        plan: ScalePlan,
        revisions: tuple[Revision, Revision],
        pods_and_claims: PodsAndClaims,
        now: float,
    ) -> Outcome:
        if now < state.create_after - TIMER_TOLERANCE:
            # What was refused a moment ago is not asked again by every change of a Pod.
            return Outcome(message=None, requeue_after=[state.create_after - now], shortfall=Shortfall.CREATION_REFUSED)
        ids, waiting = self._instance_ids(state, resolved, plan.create, pods_and_claims)
        if not ids:
            return Outcome(message=_waiting(waiting), shortfall=Shortfall.WAITING_FOR_INSTANCE)
        makers = [_maker(resolved, revision) for revision in revisions]
        counts = (plan.create_current, plan.create_update)
        wanted = [maker for maker, count in zip(makers, counts, strict=True) for _ in range(count)]
        # A Pod that nothing can be made of (a revision made by hand) is made at the update revision instead.
        pairs = [(maker or makers[1], id_) for maker, id_ in zip(wanted, ids, strict=False)]
        if all(maker is None for maker, _ in pairs):
            return Outcome(message=f"ControllerRevision {revisions[1].name} holds no template a Pod could be made from")
        claims = {id_: {claim.metadata.name for claim in pods_and_claims.claims_of(id_)} for id_ in ids}
        made, failures = await self._writer.create_pods(
            owner, [(maker, id_) for maker, id_ in pairs if maker is not None], claims
        )
        state.failed_ids.difference_update(ids)
        if not failures:
            state.refused_creations, state.create_after = 0, 0.0
            return Outcome(changed=made > 0, message=_waiting(waiting) if waiting else "", shortfall=plan.shortfall)
        state.failed_ids.update(failures)
        state.create_after = now + min(CREATION_BACKOFF * 2 ** min(state.refused_creations, 20), MAX_CREATION_BACKOFF)
        state.refused_creations += 1
        error = next(iter(failures.values()))
        missing = plan.create - made
        return Outcome(
            changed=made > 0,
            error=error,
            message=f"{message_of(error)} ({missing} of {plan.create} Pods to create are missing)",  # B-17
            shortfall=Shortfall.CREATION_REFUSED,
        )

    def _instance_ids(
        self, state: CloneSetState, resolved: ResolvedSpec, count: int, pods_and_claims: PodsAndClaims
    ) -> tuple[list[str], list[Pod]]:
        """CS-117, CS-119: the ids to use now, and the Pods on their way out whose ids are waited for (B-8).

        A Pod that was released keeps its name, and its claims are offered: it is replaced under another id (CS-68).
        """
        pods_and_claims = pods_and_claims.without_claims_of_others()
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
        waiting = awaited[: max(0, count - len(free))] if resolved.settings.reuse_claims else []
        free += sorted(state.failed_ids.difference(free, in_use, held))
        taken = in_use.union(held, offered)
        return instance_ids(count - len(waiting), free, taken, self._rng), waiting

    # ---- deleting

    async def _finish(self, owner: CloneSet, state: CloneSetState, pods_and_claims: PodsAndClaims) -> bool:
        """CS-106: the claims go too of Pods we deleted, if that failed before or the cache shows them still. Whether
        there were such. Raises what the API server says; what it never allows stays, as it is."""
        state.deleted_ids.difference_update([instance_id(pod.metadata.labels) for pod in pods_and_claims.active])
        found = False
        for id_ in sorted(state.deleted_ids):
            claims = pods_and_claims.claims_of(id_)
            if not claims:
                state.deleted_ids.discard(id_)
            for claim in claims:
                try:
                    await self._writer.delete_claim(owner, claim)
                except Forbidden:
                    state.deleted_ids.discard(id_)
                    raise
                found = True
        return found

    async def _remove(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        plan: ScalePlan,
        pods_and_claims: PodsAndClaims,
    ) -> Outcome:
        """CS-105; side by side, for the plan has counted what may go."""

        async def remove(pod: Pod, prepare: bool) -> None:
            if prepare:
                lifecycle = resolved.settings.lifecycle
                await self._writer.set_state(resolved.owner.uid, pod, LifecycleState.PREPARING_DELETE, lifecycle)
            else:
                id_ = instance_id(pod.metadata.labels)
                claims = by_id.get(id_, ())
                if await self._writer.delete_pod(owner, pod) and claims:
                    deleted.append(id_)
                    state.deleted_ids.add(id_)
                    for claim in claims:
                        await self._writer.delete_claim(owner, claim)

        #: Pods that are gone even if their claims are not: nothing more may be decided on what was seen before.
        deleted: list[str] = []
        by_id: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in pods_and_claims.claims:
            if id_ := instance_id(claim.metadata.labels):
                by_id.setdefault(id_, []).append(claim)
        found = await gather_results(remove(removal.pod.pod, removal.prepare) for removal in plan.remove)
        outcome = _outcome(found)
        outcome.changed = outcome.changed or bool(deleted)
        outcome.shortfall = plan.shortfall
        return outcome

    async def clean_up_claims(
        self, owner: CloneSet, pods_and_claims: PodsAndClaims
    ) -> tuple[PersistentVolumeClaim, ...]:
        """CS-120: claims of Pods that are gone are not kept; those that stay. Raises what the API server says."""
        plan = cleanup(pods_and_claims.claims, pods_and_claims.active, pods_and_claims.inactive)
        for claim, pod in plan.hand_over:
            await self._writer.hand_over_claim(owner, claim, pod)
        kept = list(plan.kept)
        for claim in plan.delete:
            # The watch of Pods may be behind that of claims, and a creation may have come about without an answer.
            if await self._writer.pod_exists(owner, instance_id(claim.metadata.labels)):
                kept.append(claim)
            else:
                await self._writer.delete_claim(owner, claim, cleaning=True)
        return tuple(kept)


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


def _outcome(found: Sequence[object]) -> Outcome:
    """Changed if anything succeeded, or may have: what had no answer; the first refusal, of which conflicts and Pods
    that are gone are none."""
    errors = [one for one in found if isinstance(one, KubeError)]
    refused_creations = [error for error in errors if not isinstance(error, Conflict)]
    error = refused_creations[0] if refused_creations else errors[0] if errors else None
    return Outcome(
        changed=any(not isinstance(one, KubeError | PodGoneError) or isinstance(one, UNANSWERED) for one in found),
        error=error,
        message=message_of(refused_creations[0]) if refused_creations else "",
    )
