"""Carrying out what the plan says about scaling: Pods created, deleted and taken back, and their claims."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from app.kube.errors import KubeError, message_of
from app.kube.objects import PersistentVolumeClaim
from app.kube.store import Store
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision
from app.pods.templates import recorded_template
from app.workloads.engine.named_claims import NamedClaimsWriter
from app.workloads.engine.outcome import Outcome, gather_results, most_urgent, outcome_of, refused_creations
from app.workloads.statefulset.plan.claims import Claims, in_the_way, missing_claims, reference_changes
from app.workloads.statefulset.plan.creation import PodMaker, identity
from app.workloads.statefulset.plan.replicas import Replica, Replicas
from app.workloads.statefulset.plan.scale import ScalePlan, plan_scaling
from app.workloads.statefulset.snapshot import Observed


@dataclass(frozen=True, slots=True)
class Scaler:
    """Carries out scale plans. ``claims``: the cache of claims, whoever's they are."""

    writer: NamedClaimsWriter
    claims: Store[PersistentVolumeClaim]

    def plan(self, snapshot: Observed, replicas: Replicas) -> ScalePlan:
        """What is due now."""
        return plan_scaling(
            replicas,
            current=snapshot.current_hash,
            update=snapshot.update_hash,
            now=snapshot.now.timestamp(),
            claim_in_the_way=partial(in_the_way, snapshot.resolved, self._claims(snapshot)),
        )

    async def carry_out(self, snapshot: Observed, replicas: Replicas, plan: ScalePlan, now: float) -> Outcome:
        """AS-55 … AS-64. ``now``: the monotonic clock."""
        upkeep = await self._keep_up(snapshot, replicas)
        creating = await self._create(snapshot, plan, now)
        # AS-63: who owns a claim must be right before its Pod goes.
        removing = Outcome() if upkeep.error is not None else await self._remove(snapshot, plan)
        return Outcome(
            changed=creating.changed or removing.changed,
            error=most_urgent(one.error for one in (creating, upkeep, removing)),
            message=creating.message,
            requeue_after=[*creating.requeue_after, *removing.requeue_after],
        )

    # ---- what is there

    async def _keep_up(self, snapshot: Observed, replicas: Replicas) -> Outcome:
        """AS-68, AS-72, AS-73: claims and labels of Pods that are there."""
        workload, resolved, claims = snapshot.workload, snapshot.resolved, self._claims(snapshot)
        changes = list(reference_changes(resolved, replicas, claims))
        missing = [
            claim
            for pod in replicas.wanted
            if resolved.claim_templates and pod.facts.pod.status.phase == "Pending" and not pod.terminating
            for claim in missing_claims(resolved, pod.ordinal, claims)
        ]
        relabelled = [pod for pod in replicas.wanted if not pod.terminating and self._mislabelled(snapshot, pod)]
        found = await gather_results(
            (
                *(self.writer.patch_claim(claim, body) for _, claim, body in changes),
                *(self.writer.create_claim(workload, claim) for claim in missing),
                *(self._relabel(snapshot, pod) for pod in relabelled),
            )
        )
        for name in dict.fromkeys(pod.name for pod, _, _ in changes):
            text = f"update Pod {name} in StatefulSet {snapshot.owner.name} successful"
            if not any(isinstance(one, KubeError) for one in found):
                self.writer.event(workload, "SuccessfulUpdate", text)
        return outcome_of(found)

    def _mislabelled(self, snapshot: Observed, pod: Replica) -> bool:
        wanted = self._identity(snapshot, pod)
        labels = pod.facts.pod.metadata.labels
        return any(labels.get(key) != value for key, value in wanted.items())

    def _identity(self, snapshot: Observed, pod: Replica) -> dict[str, str]:
        index_label = snapshot.resolved.settings.gates.pod_index_label
        return identity(snapshot.owner.name, pod.ordinal, index_label=index_label)

    async def _relabel(self, snapshot: Observed, pod: Replica) -> None:
        """AS-40."""
        found = pod.facts.pod
        body = {"metadata": {"uid": found.metadata.uid, "labels": self._identity(snapshot, pod)}}
        await self.writer.patch_pod(snapshot.owner.uid, found, body)

    # ---- creating

    async def _create(self, snapshot: Observed, plan: ScalePlan, now: float) -> Outcome:
        state, workload = snapshot.state, snapshot.workload
        waits = tuple(plan.waits_for)
        if waits and waits != state.waits_for:
            # AS-146
            text = (
                f"creating Pods of StatefulSet {snapshot.owner.name} waits: pvc {', '.join(waits[:5])} is to be deleted"
            )
            self.writer.event(workload, "FailedCreate", text, warning=True)
        state.waits_for = waits
        waiting = _failed(f"pvc {waits[0]} is to be deleted") if waits else ""
        if not plan.create:
            state.creation_backoff.reset()
            return Outcome(message=waiting)
        if seconds := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[seconds])
        claims, new = self._claims(snapshot), []
        for ordinal, updated in plan.create:
            maker = _maker(snapshot, updated=updated)
            if maker is None:
                name = snapshot.revisions.update.name
                return Outcome(message=_failed(f"ControllerRevision {name} holds no template a Pod could be made from"))
            new.append(maker.new_pod(ordinal, missing_claims(snapshot.resolved, ordinal, claims)))
        made, failures = await self.writer.create_pods(workload, new)
        if not failures:
            state.creation_backoff.reset()
            return Outcome(changed=made > 0, message=waiting)
        state.creation_backoff.refuse(now)
        retry_in = state.creation_backoff.remaining(now)
        message = _failed(message_of(next(iter(failures.values()))))
        return refused_creations(failures.values(), made=made, retry_in=retry_in, message=message)

    # ---- deleting

    async def _remove(self, snapshot: Observed, plan: ScalePlan) -> Outcome:
        """Side by side, for the plan has counted what may go."""
        found = await gather_results(
            (
                *(self._set_state(snapshot, one, LifecycleState.NORMAL) for one in plan.cancel_deletion),
                *(self._set_state(snapshot, one, LifecycleState.PREPARING_DELETE) for one in plan.prepare),
                *(self._delete(snapshot, one) for one in plan.delete),
            )
        )
        return outcome_of(found) if found else Outcome()

    async def _set_state(self, snapshot: Observed, one: Replica, state: LifecycleState) -> None:
        lifecycle = snapshot.resolved.settings.lifecycle
        await self.writer.set_state(snapshot.owner.uid, one.facts.pod, state, lifecycle)

    async def _delete(self, snapshot: Observed, one: Replica) -> None:
        await self.writer.delete_pod(snapshot.workload, one.facts.pod)

    def _claims(self, snapshot: Observed) -> Claims:
        return partial(self.claims.get, namespace=snapshot.owner.namespace)


def _failed(why: str) -> str:
    """AS-121."""
    return f"StatefulPodControl failed to create Pod error: {why}"


def _maker(snapshot: Observed, *, updated: bool) -> PodMaker | None:
    """What makes Pods of one revision; of the update revision where the other holds no template, as one made by hand
    may. None where that does not either."""
    revisions = snapshot.revisions
    chosen: list[Revision] = [revisions.update] if updated else [revisions.current, revisions.update]
    for revision in chosen:
        template = recorded_template(revision)
        if template is not None:
            return PodMaker(snapshot.resolved, template, revision.name)
    return None
