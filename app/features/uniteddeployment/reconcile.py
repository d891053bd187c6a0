"""The UnitedDeployment controller: its watches and its reconcile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR, optional
from app.api.gojson import GoTypeError, go_value, pointer, struct
from app.api.gopod import METADATA, POD_TEMPLATE
from app.features.uniteddeployment.defaults import REVISION_HISTORY_LIMIT
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.plan import rollout
from app.features.uniteddeployment.plan.rollout import Situation
from app.features.uniteddeployment.plan.status import TIMER_TOLERANCE, Outcome
from app.features.uniteddeployment.plan.subsets import (
    KIND,
    RESOURCES,
    Claims,
    SubsetWorkload,
    claim,
    content_of,
    decode_subset_workload,
    is_of,
    stuck_pods,
)
from app.features.uniteddeployment.types import (
    STATEFUL_SET,
    TEMPLATES,
    ShareError,
    UnitedDeployment,
    template_of,
)
from app.features.uniteddeployment.writes import (
    Creations,
    SubsetWriter,
    UnseenWorkloads,
    report,
)
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import BY_NAMESPACE, PODS, REVISIONS, Watched
from app.kube.client import Client, get_or_none
from app.kube.controller import Result, Watch
from app.kube.errors import ApiError, KubeError, NotFound, message_of
from app.kube.events import INVALID_SPEC, EventRecorder
from app.kube.expectations import is_at_least
from app.kube.jsonvalues import as_object
from app.kube.objects import ControllerRevision, Pod, decode_metadata
from app.kube.resources import ObjectKey, Resource
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector
from app.kube.statuses import KnownStatus, newest_status
from app.kube.store import Change, Store
from app.pods.predicates import BY_CONTROLLER, controller_keys, is_controlled_by, ownerless
from app.workloads.history import History
from app.workloads.settings import OWNER, Content

# The reconcile: read workloads and Pods, compute the plan, carry it out, report. [UD-26 … UD-70]


#: Name of the index of Pods by namespace and subset.
SUBSET: Final = "subset"
COALESCE_SECONDS: Final = 0.1
#: Seconds until the next reconcile after a change of ownership, unless the change reaches the cache earlier.
CLAIM_SECONDS: Final = 1.0
#: Seconds for which the cache may still contain workloads owned by a deleted object with the same name.
PREDECESSOR_SECONDS: Final = 5.0
#: Maximum total size in bytes of the workloads built in one reconcile, and seconds until the rest are built.
BUILD_BYTES: Final = 1024 * 1024
BUILD_AGAIN: Final = 0.5
_WORKLOAD: Final = struct(optional("metadata", METADATA), optional("spec", struct(optional("template", POD_TEMPLATE))))
#: Go types of the parts of the spec without a schema.
TEMPLATE_TYPES: Final = struct(
    optional("selector", pointer(LABEL_SELECTOR)),
    optional("template", struct(*(optional(name, pointer(_WORKLOAD)) for name in TEMPLATES))),
)


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches that the controller reads. ``workloads`` has the workloads of subsets, by template."""

    united: Store[UnitedDeployment]
    pods: Store[Pod]
    revisions: Store[ControllerRevision]
    workloads: Mapping[str, Store[SubsetWorkload]]


@dataclass(slots=True)
class _State:
    """State kept for one object between reconciles."""

    uid: str
    #: Time of the first reconcile.
    since: float
    creations: Creations = field(default_factory=Creations)
    #: By Pod UID: the label that was written, and the resourceVersion of the Pod after that write.
    labels: dict[str, tuple[bool, str]] = field(default_factory=dict)
    status: KnownStatus | None = None
    #: The generation that was read last, and its content and selector, or the error in its spec.
    generation: int | None = None
    read: tuple[Content, Selector] | str = ""
    #: Subsets whose workloads could not be built.
    unbuilt: frozenset[str] = frozenset()


class UnitedDeploymentReconciler:
    """Reconciles UnitedDeployments."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._writer = SubsetWriter(client, events)
        self._unseen = UnseenWorkloads(client, caches.workloads)
        self._history = History(client, caches.revisions)
        self._states: dict[ObjectKey, _State] = {}

    def keys_for_united(self, change: Change[UnitedDeployment]) -> Iterable[ObjectKey]:
        """Return the object's key unless only its status changed."""
        if change.old is not None and change.new is not None:
            before, after = change.old.metadata, change.new.metadata
            if before.generation == after.generation and before.labels == after.labels:
                return ()
        return (ObjectKey(change.object.metadata.namespace, change.object.name),)

    def keys_for_workload(self, change: Change[SubsetWorkload]) -> Iterable[ObjectKey]:
        """Return the current and the former owner of the workload."""
        keys: dict[ObjectKey, None] = {}
        for one in (change.old, change.new):
            reference = KIND.managing_reference(one.metadata) if one is not None else None
            if reference is not None and one is not None:
                keys[ObjectKey(one.metadata.namespace, reference.name)] = None
        return keys

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the UnitedDeployment that the Pod's revision label names, if it exists. [UD-26]"""
        metadata = change.object.metadata
        name, _, _ = metadata.labels.get(names.UNITED_REVISION_HASH, "").rpartition("-")
        key = ObjectKey(metadata.namespace, name)
        return (key,) if name and names.SUBSET_NAME in metadata.labels and key in self._caches.united else ()

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """Notify the history. No reconcile is needed."""
        self._history.observe(change)
        return ()

    async def __call__(self, key: ObjectKey) -> Result | None:
        united = self._caches.united.by_key(key)
        if united is None:
            self._states.pop(key, None)
            return None
        if united.deleting:
            return None  # its dependents are garbage-collected [UD-27]
        state = self._states.get(key)
        if state is None or state.uid != united.metadata.uid:
            state = self._states[key] = _State(united.metadata.uid, self._clock.monotonic())
        if (wait := await self._unseen.wait(united, state.creations)) > 0:
            return Result(requeue_after=wait)
        found = template_of(united.spec)
        if found is None:
            return None
        if state.generation != united.metadata.generation:
            # Reading a large spec is slow, and every Pod change triggers a reconcile.
            state.generation, state.read = united.metadata.generation, _read(united)
        if isinstance(state.read, str):
            self._writer.event(united, "Warning", INVALID_SPEC, state.read)
            return None
        content, selector = state.read
        claims = self._claims(united, found, selector)
        if not claims.release and self._lacks_known(united, state, claims):
            strayed = await self._unseen.unlabeled(united, found[0])
            claims = replace(claims, release=[(found[0], one) for one in strayed])
        if claims.adopt or claims.release:
            return await self._claim(united, found[0], claims)
        if self._awaits_predecessor(united, state, found[0], claims):
            return Result(requeue_after=CLAIM_SECONDS / 2)
        here = await self._situation(united, state, found, content, selector, claims.existing)
        return await self._carry_out(here, state, content, claims.surplus)

    def _awaits_predecessor(self, united: UnitedDeployment, state: _State, kind: str, claims: Claims) -> bool:
        """Return whether the cache contains workloads owned by a deleted object with the same name. They will be
        orphaned or deleted soon. [UD-32]"""
        missing = {one.name for one in united.spec.subsets} - claims.existing.keys()
        if not missing or self._clock.monotonic() - state.since > PREDECESSOR_SECONDS:
            return False
        owner = KIND.owner(united.metadata)
        for one in self._caches.workloads[kind].by_index(BY_NAMESPACE, united.metadata.namespace):
            if one.subset not in missing:
                continue
            reference = KIND.managing_reference(one.metadata)
            if reference is not None and reference.name == united.name and not is_controlled_by(one.metadata, owner):
                return True
        return False

    @staticmethod
    def _lacks_known(united: UnitedDeployment, state: _State, claims: Claims) -> bool:
        """Return whether a subset in both the topology and the status has no workload."""
        entries = newest_status(united, state.status).status.get("subsetStatuses")
        known = {one.get("name") for one in entries if isinstance(one, dict)} if isinstance(entries, list) else set()
        wanted = {one.name for one in united.spec.subsets}
        return bool((wanted & known) - claims.existing.keys() - {one.subset for one in claims.adopt})

    def _claims(self, united: UnitedDeployment, found: tuple[str, dict[str, Any]], selector: Selector) -> Claims:
        kind, template = found
        owned_by, namespace = KIND.owner(united.metadata).index_key, united.metadata.namespace
        subsets = {one.name for one in united.spec.subsets}
        owned = {name: self._caches.workloads[name].by_index(OWNER, owned_by) for name in TEMPLATES}
        orphans = self._caches.workloads[kind].by_index(OWNER, ownerless(namespace))
        given = as_object(as_object(template.get("metadata")).get("labels"))
        written = {**given, **as_object(united.spec.selector.get("matchLabels"))}
        # If the selector does not match the labels of new workloads, ignore it; otherwise each workload would be
        # released and recreated.
        matches = selector.matches if selector.matches(written) else lambda _: True
        return claim(kind, subsets, owned, list(orphans), matches)

    async def _claim(self, united: UnitedDeployment, kind: str, claims: Claims) -> Result:
        """Adopt and release workloads. The next reconcile starts from the updated cache. [UD-32]"""
        try:
            if claims.adopt and not await self._is_current(united):
                return Result(requeue_after=CLAIM_SECONDS)
            for one in claims.adopt:
                await self._writer.adopt(united, kind, one)
            for template, one in claims.release:
                await self._writer.release(united, template, one)
        except KubeError as error:
            if not isinstance(error, NotFound) and not _is_stale(error):
                said = message_of(error)
                self._writer.event(united, "Warning", "FailedFindSubsets", said)
                self._writer.event(united, "Warning", "Failed FindSubsets", f"failed to claim subsets: {said}")
                return Result(requeue=True)
        return Result(requeue_after=CLAIM_SECONDS)

    async def _is_current(self, united: UnitedDeployment) -> bool:
        """Return whether the object still exists, is not being deleted, and equals the cached one. [PM-109, UD-49]"""
        resource, namespace = UNITED_DEPLOYMENT.resource(), united.metadata.namespace
        live = await get_or_none(self._client, resource, united.name, namespace, decode=decode_metadata)
        return live is not None and live.metadata.deletion_timestamp is None and united.has_spec_of(live)

    async def _situation(
        self,
        united: UnitedDeployment,
        state: _State,
        found: tuple[str, dict[str, Any]],
        content: Content,
        selector: Selector,
        existing: Mapping[str, SubsetWorkload],
    ) -> Situation:
        kind, template = found
        status = newest_status(united, state.status).status
        ordered = self._history.revisions(content, selector)
        current, collisions = str(status.get("currentRevision") or ""), int(status.get("collisionCount") or 0)
        try:
            revisions = await self._history.record(content, selector, ordered, current, collisions)
        except KubeError as error:
            self._writer.event(united, "Warning", "FailedRevisionProvision", message_of(error))
            raise
        namespace = united.metadata.namespace
        pods = {
            subset: [
                pod
                for pod in self._caches.pods.by_index(SUBSET, f"{namespace}/{subset}")
                if is_of(RESOURCES[kind], workload, pod)
            ]
            for subset, workload in existing.items()
        }
        labels = self._unseen_labels(state, pods)
        now = self._clock.now()
        here = Situation(united, kind, template, revisions, status, existing, pods, now, labels)
        return replace(here, **rollout.judged(here))

    def _unseen_labels(self, state: _State, pods: Mapping[str, Sequence[Pod]]) -> dict[str, bool]:
        """Return labels that were written but are not in the cache yet. Forget the others."""
        if not state.labels:
            return {}
        shown = {pod.metadata.uid: pod.metadata.resource_version for found in pods.values() for pod in found}
        state.labels = {
            uid: (label, version)
            for uid, (label, version) in state.labels.items()
            if uid in shown and not is_at_least(shown[uid], version)
        }
        return {uid: label for uid, (label, _) in state.labels.items()}

    async def _carry_out(
        self, here: Situation, state: _State, content: Content, surplus: Sequence[tuple[str, SubsetWorkload]]
    ) -> Result | None:
        united = here.united
        labels = [one for found in here.reservations.values() for one in found.labels]
        written, errors = await self._writer.label(labels)
        state.labels.update(written)
        if errors:
            # Pods without their label would be counted wrongly. [UD-56]
            return await self._failed(here, state, errors)
        try:
            allocated = rollout.allocated(here)
        except ShareError as error:
            # [UD-41]
            said = f"Specified subset replicas is ineffective: {error}"
            self._writer.event(united, "Warning", "Failed SpecifySubsetReplicas", said)
            return await self._failed(here, state, [str(error)])
        wanted, unbuilt = rollout.wanted(here, allocated.replicas, build_bytes=BUILD_BYTES, last=state.unbuilt)
        state.unbuilt = frozenset(unbuilt)
        for said in unbuilt.values():
            self._writer.event(united, "Warning", "FailedUpdateSubset", said)
        due = [(name, one.built) for name, one in sorted(wanted.items()) if one.built is not None]
        missing = [one for name, one in due if name not in here.existing]
        changed = [(here.existing[name], one) for name, one in due if name in here.existing]
        later = any(one.later for one in wanted.values())
        made = await self._writer.create(united, here.kind, missing)
        state.creations.note(made, self._clock.monotonic())
        if surplus and not await self._is_current(united):
            # The new spec may need the subset again, and deleting a workload deletes all its Pods.
            return Result(requeue_after=CLAIM_SECONDS)
        left = await self._delete(here, surplus)
        unprovisioned = "; ".join(
            (*(said for name, said in unbuilt.items() if name not in here.existing), *made.errors, *left)
        )
        errors = [said for name, said in unbuilt.items() if name in here.existing]
        if not unprovisioned:  # existing subsets must not shrink in favor of one that cannot be created [UD-49]
            errors += await self._writer.update(united, here.kind, changed)
            errors += await self._unblock(here)
        outcome = Outcome(
            bool(missing or surplus or later),
            "; ".join((*errors, *([unprovisioned] if unprovisioned else ()))),
            unprovisioned,
        )
        present = newest_status(united, state.status)
        state.status = await report(self._client, here, present, wanted, allocated.remarked, outcome) or state.status
        await self._truncate(here, state, content)
        if outcome.error:
            return Result(requeue=True)
        if later:
            return Result(requeue_after=BUILD_AGAIN)
        times = [one.again for one in here.schedulable.values() if one.again > 0]
        if here.adapts and (missing or changed):
            times.append(float(here.limits.critical))  # new Pods may turn out to be unschedulable [UD-60]
        return Result(requeue_after=min(times) + TIMER_TOLERANCE) if times else None

    async def _delete(self, here: Situation, surplus: Sequence[tuple[str, SubsetWorkload]]) -> list[str]:
        """Delete surplus workloads. Return the errors. [UD-33, UD-68]"""

        def is_second(kind: str, workload: SubsetWorkload) -> bool:
            return kind == here.kind and workload.subset in here.existing

        second = [one for one in surplus if is_second(*one)]
        others = [one for one in surplus if not is_second(*one)]
        errors = await self._writer.delete(here.united, second, failed="FailedDeleteDuplicatedSubsets")
        if errors:
            self._writer.event(here.united, "Warning", "Failed FindSubsets", f"failed to delete subsets: {errors[0]}")
        return errors + await self._writer.delete(here.united, others, failed="FailedUpdateSubset")

    async def _unblock(self, here: Situation) -> list[str]:
        """Delete Pods that block the rollout of a native StatefulSet. [UD-50]"""
        if here.kind != STATEFUL_SET:
            return []
        update = here.revisions.update.name
        return await self._writer.delete_pods(
            [
                pod
                for name, workload in here.existing.items()
                for pod in stuck_pods(workload, here.pods.get(name, ()), update)
            ]
        )

    async def _failed(self, here: Situation, state: _State, errors: Sequence[str]) -> Result:
        """Write the errors to the status and change nothing else."""
        present = newest_status(here.united, state.status)
        outcome = Outcome(error="; ".join(errors))
        state.status = await report(self._client, here, present, {}, frozenset(), outcome) or state.status
        return Result(requeue=True)

    async def _truncate(self, here: Situation, state: _State, content: Content) -> None:
        """Delete old revisions beyond the limit. [PM-93]"""
        limit = here.united.spec.revision_history_limit
        # Use the status just written: that write triggers no reconcile, so this reconcile is the last of a rollout.
        current = str(newest_status(here.united, state.status).status.get("currentRevision") or "")
        used: set[str] = {here.revisions.update.name, current}
        used |= {one.metadata.labels.get(names.UNITED_REVISION_HASH, "") for one in here.existing.values()}
        most = REVISION_HISTORY_LIMIT if limit is None else limit
        await self._history.truncate(content, here.revisions.ordered, used, most)


def _read(united: UnitedDeployment) -> tuple[Content, Selector] | str:
    """Return the content to record and the selector, or the error in the spec."""
    try:
        go_value(TEMPLATE_TYPES, united.spec.to_dict(), "spec")
        return content_of(united), compile_selector(united.spec.selector)
    except GoTypeError as error:
        return str(error)
    except SelectorError as error:
        return f"spec.selector: {error}"


def _is_stale(error: KubeError) -> bool:
    """Return whether a test in a JSON patch failed because the object differs from the cached one."""
    return isinstance(error, ApiError) and error.code in (409, 422)


NAME: Final = "uniteddeployment-controller"
UNITED: Final = Watched.kind(UNITED_DEPLOYMENT, UnitedDeployment)


def subset_keys(pod: Pod) -> Iterable[str]:
    """Yield the index key of a Pod of a subset: its namespace and subset."""
    subset = pod.metadata.labels.get(names.SUBSET_NAME)
    return (f"{pod.metadata.namespace}/{subset}",) if subset else ()


def _workloads(template: str, resource: Resource) -> Watched[SubsetWorkload]:
    name = f"workloads of subsets ({template})"
    indexes = {BY_CONTROLLER: controller_keys, BY_NAMESPACE: lambda found: [found.metadata.namespace]}
    return Watched(name, resource, decode_subset_workload, label_selector=names.SUBSET_NAME, indexes=indexes)


SUBSET_PODS: Final = PODS.indexed(**{SUBSET: subset_keys})
WORKLOADS: Final = {template: _workloads(template, resource) for template, resource in RESOURCES.items()}
WATCHED: Final[tuple[Watched[Any], ...]] = (UNITED, SUBSET_PODS, REVISIONS, *WORKLOADS.values())


def uniteddeployment_controller(context: ControllerContext) -> Reconciling:
    """Return the UnitedDeployment controller."""
    stores = context.stores
    workloads = {template: stores(watched) for template, watched in WORKLOADS.items()}
    caches = Caches(stores(UNITED), stores(SUBSET_PODS), stores(REVISIONS), workloads)
    reconciler = UnitedDeploymentReconciler(context.client, caches, context.events)
    return Reconciling(
        reconciler,
        [
            Watch(caches.revisions, reconciler.keys_for_revision),
            Watch(caches.pods, reconciler.keys_for_pod, COALESCE_SECONDS),
            *(Watch(store, reconciler.keys_for_workload, COALESCE_SECONDS) for store in workloads.values()),
            Watch(caches.united, reconciler.keys_for_united),
        ],
    )
