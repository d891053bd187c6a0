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
from app.workloads.cloneset.memory import Memory
from app.workloads.cloneset.scale import ScalePlan, Shortfall
from app.workloads.cloneset.view import View
from app.workloads.cloneset.writer import PodGoneError, Writer, outcomes

logger = logging.getLogger(__name__)

#: Seconds after a refused creation before the next try, doubled each time, and the longest such wait.
REFUSED: Final = 0.1
LONGEST_REFUSAL: Final = 30.0
#: Seconds that a timer may fire early.
EARLY: Final = 0.005
#: Seconds after which a limit that stays the same is told again.
LIMIT_TOLD_AGAIN: Final = 30.0


@dataclass(slots=True)
class Outcome:
    """What came of one part of a pass. ``message``: for the condition; '' for none; None: it says nothing new."""

    changed: bool = False
    error: KubeError | None = None
    message: str | None = ""
    again_after: list[float] = field(default_factory=list)
    shortfall: Shortfall | None = None


@dataclass(frozen=True, slots=True)
class Instances:
    """The Pods and claims of a CloneSet, as instance ids are drawn from them."""

    active: Sequence[Pod]
    inactive: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: Whether some Pod, whoever's it is, has the name that belongs to an instance id.
    name_taken: Callable[[str], bool] = lambda _: False

    def claims_of(self, id_: str) -> list[PersistentVolumeClaim]:
        """The claims of one instance."""
        return [claim for claim in self.claims if id_ and instance_id(claim.metadata.labels) == id_]

    def without_claims_of_others(self) -> Instances:
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
        memory: Memory,
        view: View,
        plan: ScalePlan,
        revisions: tuple[Revision, Revision],
        instances: Instances,
        now: float,
    ) -> Outcome:
        """One of its steps (CS-96 … CS-105). ``revisions``: current and update; ``now``: the monotonic clock."""
        self._tell_limit(owner, memory, plan, now)
        try:
            if await self._finish(owner, memory, instances):
                return Outcome(changed=True)  # what was offered for new Pods is gone
        except KubeError as error:
            return Outcome(changed=True, error=error, message=message_of(error))
        if plan.revive:
            return await self._revive(view, plan)
        if plan.create:
            return await self._create(owner, memory, view, plan, revisions, instances, now)
        memory.refusals, memory.create_after = 0, 0.0
        if plan.remove:
            return await self._remove(owner, memory, view, plan, instances)
        return Outcome(shortfall=plan.shortfall)

    def _tell_limit(self, owner: CloneSet, memory: Memory, plan: ScalePlan, now: float) -> None:
        """CS-99, B-14: when the limit changes, and now and then while it stays."""
        limit = plan.limited_to
        if limit is not None and (limit != memory.limited_to or now - memory.limited_at >= LIMIT_TOLD_AGAIN):
            text = f"scaleUp is limited because of scaleStrategy.maxUnavailable, limit: {limit}"
            self._writer.event(owner, "ScaleUpLimited", text, warning=True)
            memory.limited_at = now
        memory.limited_to = limit

    async def _revive(self, view: View, plan: ScalePlan) -> Outcome:
        found = await outcomes(
            self._writer.set_state(view.owner.uid, one.pod, LifecycleState.PREPARING_NORMAL, view.settings.lifecycle)
            for one in plan.revive
        )
        return _outcome(found)

    # ---- creating

    async def _create(
        self,
        owner: CloneSet,
        memory: Memory,
        view: View,
        plan: ScalePlan,
        revisions: tuple[Revision, Revision],
        instances: Instances,
        now: float,
    ) -> Outcome:
        if now < memory.create_after - EARLY:
            # What was refused a moment ago is not asked again by every change of a Pod.
            return Outcome(message=None, again_after=[memory.create_after - now], shortfall=Shortfall.CREATION_REFUSED)
        ids, waiting = self._instance_ids(memory, view, plan.create, instances)
        if not ids:
            return Outcome(message=_waiting(waiting), shortfall=Shortfall.WAITING_FOR_INSTANCE)
        makers = [_maker(view, revision) for revision in revisions]
        counts = (plan.create_current, plan.create_update)
        wanted = [maker for maker, count in zip(makers, counts, strict=True) for _ in range(count)]
        # A Pod that nothing can be made of (a revision made by hand) is made at the update revision instead.
        pairs = [(maker or makers[1], id_) for maker, id_ in zip(wanted, ids, strict=False)]
        if all(maker is None for maker, _ in pairs):
            return Outcome(message=f"ControllerRevision {revisions[1].name} holds no template a Pod could be made from")
        claims = {id_: {claim.metadata.name for claim in instances.claims_of(id_)} for id_ in ids}
        made, failures = await self._writer.create_pods(
            owner, [(maker, id_) for maker, id_ in pairs if maker is not None], claims
        )
        memory.failed_ids.difference_update(ids)
        if not failures:
            memory.refusals, memory.create_after = 0, 0.0
            return Outcome(changed=made > 0, message=_waiting(waiting) if waiting else "", shortfall=plan.shortfall)
        memory.failed_ids.update(failures)
        memory.create_after = now + min(REFUSED * 2 ** min(memory.refusals, 20), LONGEST_REFUSAL)
        memory.refusals += 1
        error = next(iter(failures.values()))
        missing = plan.create - made
        return Outcome(
            changed=made > 0,
            error=error,
            message=f"{message_of(error)} ({missing} of {plan.create} Pods to create are missing)",  # B-17
            shortfall=Shortfall.CREATION_REFUSED,
        )

    def _instance_ids(
        self, memory: Memory, view: View, count: int, instances: Instances
    ) -> tuple[list[str], list[Pod]]:
        """CS-117, CS-119: the ids to use now, and the Pods on their way out whose ids are waited for (B-8).

        A Pod that was released keeps its name, and its claims are offered: it is replaced under another id (CS-68).
        """
        instances = instances.without_claims_of_others()
        memory.failed_ids = {id_ for id_ in memory.failed_ids if not instances.name_taken(id_)}
        active, inactive = instances.active, instances.inactive
        held = {instance_id(pod.metadata.labels): pod for pod in inactive}
        in_use = {instance_id(pod.metadata.labels) for pod in active}
        free = free_instance_ids(active, instances.claims, held)
        offered = {instance_id(claim.metadata.labels) for claim in instances.claims}
        awaited = [
            pod
            for id_, pod in held.items()
            # One that has ended stays as long as somebody leaves it: its place is taken by another.
            if id_ in offered and id_ not in in_use and pod.metadata.deletion_timestamp is not None
        ]
        waiting = awaited[: max(0, count - len(free))] if view.settings.reuse_claims else []
        free += sorted(memory.failed_ids.difference(free, in_use, held))
        taken = in_use.union(held, offered)
        return instance_ids(count - len(waiting), free, taken, self._rng), waiting

    # ---- deleting

    async def _finish(self, owner: CloneSet, memory: Memory, instances: Instances) -> bool:
        """CS-106: the claims go too of Pods we deleted, if that failed before or the cache shows them still. Whether
        there were such. Raises what the API server says; what it never allows stays, as it is."""
        memory.leaving_ids.difference_update([instance_id(pod.metadata.labels) for pod in instances.active])
        found = False
        for id_ in sorted(memory.leaving_ids):
            claims = instances.claims_of(id_)
            if not claims:
                memory.leaving_ids.discard(id_)
            for claim in claims:
                try:
                    await self._writer.delete_claim(owner, claim)
                except Forbidden:
                    memory.leaving_ids.discard(id_)
                    raise
                found = True
        return found

    async def _remove(
        self, owner: CloneSet, memory: Memory, view: View, plan: ScalePlan, instances: Instances
    ) -> Outcome:
        """CS-105; side by side, for the plan has counted what may go."""

        async def remove(pod: Pod, prepare: bool) -> None:
            if prepare:
                state = LifecycleState.PREPARING_DELETE
                await self._writer.set_state(view.owner.uid, pod, state, view.settings.lifecycle)
            else:
                id_ = instance_id(pod.metadata.labels)
                claims = by_id.get(id_, ())
                if await self._writer.delete_pod(owner, pod) and claims:
                    deleted.append(id_)
                    memory.leaving_ids.add(id_)
                    for claim in claims:
                        await self._writer.delete_claim(owner, claim)

        #: Pods that are gone even if their claims are not: nothing more may be decided on what was seen before.
        deleted: list[str] = []
        by_id: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in instances.claims:
            if id_ := instance_id(claim.metadata.labels):
                by_id.setdefault(id_, []).append(claim)
        found = await outcomes(remove(removal.pod.pod, removal.prepare) for removal in plan.remove)
        outcome = _outcome(found)
        outcome.changed = outcome.changed or bool(deleted)
        outcome.shortfall = plan.shortfall
        return outcome

    async def clean_up_claims(self, owner: CloneSet, instances: Instances) -> tuple[PersistentVolumeClaim, ...]:
        """CS-120: claims of Pods that are gone are not kept; those that stay. Raises what the API server says."""
        plan = cleanup(instances.claims, instances.active, instances.inactive)
        for claim, pod in plan.hand_over:
            await self._writer.hand_over_claim(owner, claim, pod)
        kept = list(plan.kept)
        for claim in plan.delete:
            # The watch of Pods may be behind that of claims, and a creation may have come about without an answer.
            if await self._writer.lives(owner, instance_id(claim.metadata.labels)):
                kept.append(claim)
            else:
                await self._writer.delete_claim(owner, claim, cleaning=True)
        return tuple(kept)


def _maker(view: View, revision: Revision) -> PodMaker | None:
    template = recorded_template(revision)
    if template is None:
        return None
    return PodMaker(
        view.owner,
        template,
        view.claim_templates,
        revision.name,
        view.selector_labels,
        bare_hash=view.settings.gates.short_hash,
        ready_gate=view.settings.gates.ready_gate,
        managed_fields=view.settings.gates.managed_fields,
    )


def _waiting(pods: Collection[Pod]) -> str:
    names = ", ".join(sorted(pod.metadata.name for pod in pods))
    return f"waiting for terminating Pods whose names and claims are used again: {names}"


def _outcome(found: Sequence[object]) -> Outcome:
    """Changed if anything succeeded, or may have: what had no answer; the first refusal, of which conflicts and Pods
    that are gone are none."""
    errors = [one for one in found if isinstance(one, KubeError)]
    refusals = [error for error in errors if not isinstance(error, Conflict)]
    error = refusals[0] if refusals else errors[0] if errors else None
    return Outcome(
        changed=any(not isinstance(one, KubeError | PodGoneError) or isinstance(one, UNANSWERED) for one in found),
        error=error,
        message=message_of(refusals[0]) if refusals else "",
    )
