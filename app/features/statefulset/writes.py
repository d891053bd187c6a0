"""Writes of the StatefulSet controller, to Pods and claims, and the state it keeps for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from app.api.model import KubeObject
from app.features.statefulset.plan.claims import (
    STORAGE_CLASSES,
    Claims,
    Expandable,
    Growth,
    decode_storage_class,
    expandable,
    in_the_way,
    missing_claims,
    reference_changes,
)
from app.features.statefulset.plan.new_pods import PodMaker, identity
from app.features.statefulset.plan.scale import ScalePlan, plan_scaling
from app.features.statefulset.plan.settings import Replica, Replicas, ResolvedSpec
from app.features.statefulset.plan.update import BEGUN, CLAIMS_GROWN, MARKED
from app.features.statefulset.types import StatefulSet
from app.kube.errors import AlreadyExists, Conflict, KubeError, is_namespace_ending, message_of
from app.kube.fielderrors import quote
from app.kube.objects import Metadata, PersistentVolumeClaim, Pod, decode_metadata
from app.kube.resources import PERSISTENTVOLUMECLAIMS
from app.kube.store import Change, Store
from app.pods.lifecycle import LifecycleState
from app.pods.predicates import is_ready
from app.pods.revisions import Revision, recorded_template
from app.workloads.pods import NewPod, PodFacts, pod_facts
from app.workloads.settings import UpdatePolicy
from app.workloads.state import (
    AnySnapshot,
    Outcome,
    PodGoneError,
    Snapshot,
    WorkloadState,
    creation_outcome,
    gather_results,
    most_urgent,
    outcome_of,
)
from app.workloads.steps import Step
from app.workloads.updater import Updater
from app.workloads.writer import Wording, Writer

#: Maximum number of awaited claims that are reported in events at a time.
MAX_NAMED_CLAIMS: Final = 5


class ClaimGoingError(KubeError):
    """A claim that a Pod needs is being deleted."""


class NamedClaimsWriter(Writer):
    """Writer for claims with fixed names. It needs no expectations: creating a claim twice fails with AlreadyExists."""

    def is_failed_creation(self, error: KubeError) -> bool:
        """Return whether to record an event for the error. AlreadyExists is not reported. [AS-123]"""
        return super().is_failed_creation(error) and not isinstance(error, AlreadyExists)

    async def delete_pod(self, workload: KubeObject, pod: Pod) -> bool:
        """Delete the Pod. Like OpenKruise, record a second event if that fails. [AS-123]"""
        with self.reporting(workload, "FailedDelete", f"failed to delete pod {pod.metadata.name}"):
            return await super().delete_pod(workload, pod)

    async def create_claims(self, workload: KubeObject, pod: NewPod) -> None:
        """Create the claims of a new Pod, and try all of them even if one fails. Like OpenKruise, also record
        a failure to create the Pod. Raises any API error. [AS-67]"""
        failures = []
        for claim in pod.claims:
            try:
                await self.create_claim(workload, claim)
            except ClaimGoingError as error:
                failures.append(str(error))
            except KubeError as error:
                if is_namespace_ending(error):
                    raise
                failures.append(f"failed to create PVC {claim['metadata']['name']}: {message_of(error)}")
        if failures:
            why = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
            self.record_not_created(workload, pod.name, why)
            raise KubeError(why)

    async def create_claim(self, workload: KubeObject, claim: Mapping[str, Any]) -> None:
        """Create a claim for a new Pod. Raises ClaimGoingError and any API error. [AS-65]"""
        name, namespace = claim["metadata"]["name"], workload.metadata.namespace
        owner = f"{self._kind.resource.kind} {workload.metadata.name}"
        pod = _pod_of(workload, name)
        existing: Metadata | None = None
        with self.reporting(workload, "FailedCreate", f"create Claim {name} for Pod {pod} in {owner} failed error"):
            try:
                await self._client.create(PERSISTENTVOLUMECLAIMS, claim, namespace, decode=decode_metadata)
            except AlreadyExists:
                existing = await self._client.get(PERSISTENTVOLUMECLAIMS, name, namespace, decode=decode_metadata)
        if existing is None:
            self.event(workload, "SuccessfulCreate", f"create Claim {name} Pod {pod} in {owner} success")
        elif existing.metadata.deletion_timestamp is not None:
            raise ClaimGoingError(_going(name))

    def record_not_created(self, workload: KubeObject, pod: str, why: str) -> None:
        text = self.wording.not_created.format(pod=pod, owner=workload.metadata.name, why=why)
        self.event(workload, "FailedCreate", text, warning=True)

    async def grow_claims(self, workload: KubeObject, wanted: Sequence[tuple[str, Growth]]) -> str:
        """Expand claims, each given with the name of its Pod. Return an error message, or "". [AS-104]"""
        try:
            asks = any(growth.storage_class for _, growth in wanted)
            classes = await self._expandable() if asks else Expandable()
        except KubeError as error:
            return str(error)
        found = [await self._grow_claim(workload, pod, growth, classes) for pod, growth in wanted]
        return "; ".join([problem for problem in found if problem][:3])

    async def _expandable(self) -> Expandable:
        return expandable((await self._client.list(STORAGE_CLASSES, decode=decode_storage_class)).items)

    async def _grow_claim(self, workload: KubeObject, pod: str, growth: Growth, classes: Expandable) -> str:
        name, owner = growth.claim.metadata.name, f"{self._kind.resource.kind} {workload.metadata.name}"
        if growth.patch is None:
            text = f"failed to update pvc {name}: contains diff other than spec resource, wait pvc to be deleted"
            self.event(workload, "FailedUpdatePVC", text, warning=True)
            return text
        try:
            _check_class(growth.storage_class, classes)
            await self.patch_claim(growth.claim, growth.patch)
        except KubeError as error:
            text = f"resize Claim {name} for Pod {pod} in {owner} failed error: {message_of(error)}"
            self.event(workload, "FailedResize", text, warning=True)
            return message_of(error)
        self.event(workload, "SuccessfulResize", f"resize Claim {name} Pod {pod} in {owner} success")
        return ""


def _pod_of(workload: KubeObject, claim: str) -> str:
    """Return the name of the Pod that a claim belongs to."""
    return f"{workload.metadata.name}-{claim.rpartition('-')[2]}"


def _going(claim: str) -> str:
    return f"pvc {claim} is to be deleted"


def _check_class(name: str, classes: Expandable) -> None:
    """Raise KubeError if the class does not allow expansion. A claim without a class is not checked. [AS-104]"""
    if name and classes[name] is not True:
        raise KubeError(f"storage class {quote(name)} does not allow volume expansion")


@dataclass(slots=True)
class StatefulSetState(WorkloadState[ResolvedSpec]):
    """State that the controller keeps for one StatefulSet."""

    #: Facts about terminating and finished Pods, by UID.
    leaving: dict[str, PodFacts] = field(default_factory=dict)
    #: Claims that block the creation of Pods, as last reported.
    waits_for: tuple[str, ...] = ()
    #: Names of claims that the status does not count yet.
    uncounted: frozenset[str] = frozenset()

    def set_resolved(self, resolved: ResolvedSpec | None, key: object) -> None:
        """Drop everything derived from the former spec."""
        WorkloadState.set_resolved(self, resolved, key)
        self.leaving = {}

    def waits_for_change(self, change: Change[Any]) -> bool:
        """Return whether OrderedReady can continue because a Pod became ready or is gone."""
        if self.resolved is None or not self.resolved.settings.ordered or not isinstance(change.object, Pod):
            return False
        return change.new is None or (is_ready(change.new) and not (change.old is not None and is_ready(change.old)))

    def facts_of(self, pods: Iterable[Pod], resolved: ResolvedSpec) -> list[PodFacts]:
        known, self.leaving = self.leaving, {}
        for pod in pods:
            found = known.get(pod.metadata.uid)
            if found is None or found.pod is not pod:
                found = pod_facts(pod, resolved.settings)
            self.leaving[pod.metadata.uid] = found
        return list(self.leaving.values())


Observed: TypeAlias = Snapshot[StatefulSet, StatefulSetState, ResolvedSpec]


@dataclass(frozen=True, slots=True)
class Scaler:
    """Carries out scale plans. ``claims`` is the cache of all claims."""

    writer: NamedClaimsWriter
    claims: Store[PersistentVolumeClaim]

    def plan(self, snapshot: Observed, replicas: Replicas) -> ScalePlan:
        return plan_scaling(
            replicas,
            current=snapshot.current_hash,
            update=snapshot.update_hash,
            now=snapshot.now.timestamp(),
            claim_in_the_way=partial(in_the_way, snapshot.resolved, self.claims_of(snapshot)),
        )

    async def carry_out(self, snapshot: Observed, plan: ScalePlan, upkeep: Outcome, now: float) -> Outcome:
        """Carry out the plan. ``upkeep`` is the outcome of :meth:`keep_up`, which must run first. ``now`` is monotonic
        time. [AS-55 … AS-64]"""
        creating = await self._create(snapshot, plan, now)
        if snapshot.state.creation_backoff.refused or plan.waits_for:
            plan = plan.without_replaced(snapshot.resolved.settings.slots)
        # Claims must have the right owners before their Pods are deleted. [AS-63]
        removing = Outcome() if upkeep.error is not None else await self._remove(snapshot, plan)
        return Outcome(
            changed=creating.changed or removing.changed,
            error=most_urgent(one.error for one in (creating, upkeep, removing)),
            message=creating.message,
            requeue_after=[*creating.requeue_after, *removing.requeue_after],
        )

    async def keep_up(self, snapshot: Observed, replicas: Replicas) -> Outcome:
        """Correct the claims and labels of existing Pods. The outcome's message is for condition FailedUpdatePod.
        [AS-68, AS-72, AS-73]"""
        workload, resolved, claims = snapshot.workload, snapshot.resolved, self.claims_of(snapshot)
        missing = [
            claim
            for pod in replicas.wanted
            if resolved.claim_templates and pod.facts.pod.status.phase == "Pending" and not pod.terminating
            for claim in missing_claims(resolved, pod.ordinal, claims)
        ]
        corrections = [
            *(
                (pod.name, self.writer.patch_claim(claim, body))
                for pod, claim, body in reference_changes(resolved, replicas, claims)
            ),
            *(
                (pod.name, self._relabel(snapshot, pod))
                for pod in replicas.wanted
                if not pod.terminating and self._mislabeled(snapshot, pod)
            ),
        ]
        found = await gather_results(
            (*(work for _, work in corrections), *(self.writer.create_claim(workload, claim) for claim in missing))
        )
        corrected = [(name, one) for (name, _), one in zip(corrections, found, strict=False)]
        return replace(outcome_of(found), message=self._report_corrections(snapshot, corrected))

    def _report_corrections(self, snapshot: Observed, found: Sequence[tuple[str, object]]) -> str:
        """Record an event for each corrected Pod. Return the message of the first failure, or "". ``found``
        pairs the names of Pods with results. [AS-121, AS-123]"""
        results: dict[str, list[object]] = {}
        for name, one in found:
            results.setdefault(name, []).append(one)
        failure = ""
        for name, ones in results.items():
            text = f"update Pod {name} in StatefulSet {snapshot.owner.name}"
            refusals = [one for one in ones if isinstance(one, KubeError) and not isinstance(one, Conflict)]
            if refusals:
                why = message_of(refusals[0])
                self.writer.event(snapshot.workload, "FailedUpdate", f"{text} failed error: {why}", warning=True)
                failure = failure or f"StatefulPodControl failed to update Pod error: {why}"
            elif not any(isinstance(one, KubeError | PodGoneError) for one in ones):
                self.writer.event(snapshot.workload, "SuccessfulUpdate", f"{text} successful")
        return failure

    def _mislabeled(self, snapshot: Observed, pod: Replica) -> bool:
        wanted = self._identity(snapshot, pod)
        labels = pod.facts.pod.metadata.labels
        return any(labels.get(key) != value for key, value in wanted.items())

    def _identity(self, snapshot: Observed, pod: Replica) -> dict[str, str]:
        index_label = snapshot.resolved.settings.gates.pod_index_label
        return identity(snapshot.owner.name, pod.ordinal, index_label=index_label)

    async def _relabel(self, snapshot: Observed, pod: Replica) -> None:
        """Restore the identity labels of the Pod. [AS-40]"""
        found = pod.facts.pod
        body = {"metadata": {"uid": found.metadata.uid, "labels": self._identity(snapshot, pod)}}
        await self.writer.patch_pod(snapshot.owner.uid, found, body)

    async def _create(self, snapshot: Observed, plan: ScalePlan, now: float) -> Outcome:
        state, workload = snapshot.state, snapshot.workload
        waits = tuple(plan.waits_for)
        for claim in waits[:MAX_NAMED_CLAIMS]:
            # Recorded only once. [AS-67, AS-146]
            if claim not in state.waits_for[:MAX_NAMED_CLAIMS]:
                self.writer.record_not_created(workload, _pod_of(workload, claim), _going(claim))
        state.waits_for = waits
        waiting = _failed(_going(waits[0])) if waits else ""
        if not plan.create:
            state.creation_backoff.reset()
            return Outcome(message=waiting)
        if seconds := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[seconds])
        claims, new = self.claims_of(snapshot), []
        for ordinal, updated in plan.create:
            maker = _maker(snapshot, updated=updated)
            if maker is None:
                name = snapshot.revisions.update.name
                return Outcome(message=_failed(f"ControllerRevision {name} contains no usable Pod template"))
            new.append(maker.new_pod(ordinal, missing_claims(snapshot.resolved, ordinal, claims)))
        made, failures = await self.writer.create_pods(workload, new, snapshot.resolved.selector)
        backoff = state.creation_backoff
        return creation_outcome(backoff, failures, made=made, now=now, describe=_failed, waiting=waiting)

    async def _remove(self, snapshot: Observed, plan: ScalePlan) -> Outcome:
        """Carry out the planned deletions concurrently; the plan already respects the limits."""
        found = await gather_results(
            (
                *(self._set_state(snapshot, one, LifecycleState.NORMAL) for one in plan.cancel_deletion),
                *(self._set_state(snapshot, one, LifecycleState.PREPARING_DELETE) for one in plan.prepare),
                *(self.writer.delete_pod(snapshot.workload, one.facts.pod) for one in plan.delete),
            )
        )
        return outcome_of(found) if found else Outcome()

    async def _set_state(self, snapshot: Observed, one: Replica, state: LifecycleState) -> None:
        lifecycle = snapshot.resolved.settings.lifecycle
        await self.writer.set_state(snapshot.owner.uid, one.facts.pod, state, lifecycle)

    def claims_of(self, snapshot: Observed) -> Claims:
        return partial(self.claims.get, namespace=snapshot.owner.namespace)


def _failed(why: str) -> str:
    """Return the message of condition FailedCreatePod. [AS-121]"""
    return f"StatefulPodControl failed to create Pod error: {why}"


def _maker(snapshot: Observed, *, updated: bool) -> PodMaker | None:
    """Return the builder for Pods of one revision. If that revision was edited by hand and contains no usable template,
    use the update revision. Return None if neither contains a usable template."""
    revisions = snapshot.revisions
    chosen: list[Revision] = [revisions.update] if updated else [revisions.current, revisions.update]
    for revision in chosen:
        template = recorded_template(revision)
        if template is not None:
            return PodMaker(snapshot.resolved, template, revision.name)
    return None


#: Reasons for replacing a Pod that are not obstacles to its in-place update.
_OTHER_REASONS: Final = (MARKED, BEGUN, CLAIMS_GROWN)


class StatefulSetUpdater(Updater):
    """Carries out update plans. A Pod to replace is deleted after its preDelete hook has completed. [AS-98]"""

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
        """Delete the Pod, or start its preDelete hook; the next reconcile creates a Pod with the same name."""
        if step.pod.delete_hooked:
            lifecycle = snapshot.resolved.settings.lifecycle
            await self.writer.set_state(snapshot.owner.uid, step.pod.pod, LifecycleState.PREPARING_DELETE, lifecycle)
            return
        await self.writer.delete_pod(snapshot.workload, step.pod.pod)
        wanted_in_place = snapshot.resolved.settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if wanted_in_place and step.obstacle not in _OTHER_REASONS:
            why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
            self.report_obstacle(snapshot, why)


#: Event messages of StatefulSets. [AS-123]
WORDING: Final = Wording(
    created="create Pod {pod} in StatefulSet {owner} successful",
    not_created="create Pod {pod} in StatefulSet {owner} failed error: {why}",
    deleted="delete Pod {pod} in StatefulSet {owner} successful",
    not_deleted="delete Pod {pod} in StatefulSet {owner} failed error: {why}",
)
