"""WorkloadSpread controller: watches, mappers and reconcile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from app.api import names
from app.api.model import is_status_change
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.types import CloneSet
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.types import StatefulSet
from app.features.workloadspread.index import NamespaceSpreads, PreparedSpread, SpreadIndex
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.deletion_costs import Cost, costs, is_priced
from app.features.workloadspread.plan.placement import (
    VERSION_IGNORED,
    record_of,
    version_of,
    versioned_kinds,
    versions_apart,
)
from app.features.workloadspread.plan.status import Outcome, compute, entry_keys, keys_of
from app.features.workloadspread.plan.subsets import NO_SUBSET, Adoption, Candidate, adopt, recorded_subset
from app.features.workloadspread.plan.targets import KNOWN_OWNERS, ReplicasPathError, Whitelist
from app.features.workloadspread.pod_admission import shared_statuses
from app.features.workloadspread.targets import REVISION, Caches, Target, UnknownKindError, Workloads
from app.features.workloadspread.types import WorkloadSpread
from app.features.workloadspread.webhooks import SPREADS, CustomWorkloads
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import (
    CONFIGURATION,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS_BY_NAMESPACE,
    REPLICASETS,
    STATEFULSETS,
    Watched,
)
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.concurrency import together
from app.kube.controller import Result, Watch
from app.kube.errors import Conflict, Forbidden, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ResourceVersionExpectations
from app.kube.jsonvalues import json_size, without_managed_fields
from app.kube.objects import ObjectMeta, Pod, decode_metadata
from app.kube.resources import PODS, ObjectKey
from app.kube.rulings import Ruling
from app.kube.statuses import SharedStatus
from app.kube.store import Change, key_of
from app.pods.custom_workloads import HOW_TO_GRANT
from app.pods.predicates import is_active


def pod_facts(pod: Pod) -> tuple[Any, ...]:
    """Return the fields of a Pod whose changes trigger a reconcile."""
    metadata, scheduled = pod.metadata, pod.condition("PodScheduled")
    return (
        is_active(pod),
        pod.spec.node_name,
        metadata.annotations.get(names.MATCHED_WORKLOAD_SPREAD),
        metadata.annotations.get(names.POD_DELETION_COST),
        metadata.labels,
        metadata.controller,
        (scheduled.status, scheduled.reason) if scheduled is not None else None,
    )


def workload_facts(workload: Any) -> tuple[Any, ...]:
    """Return the fields of a workload whose changes trigger a reconcile."""
    metadata, status = workload.metadata, getattr(workload, "status", None)
    return (
        metadata.generation,
        bool(metadata.deletion_timestamp),
        metadata.controller,
        metadata.annotations.get(REVISION),
        metadata.labels.get(names.POD_TEMPLATE_HASH),
        getattr(status, "update_revision", None),
    )


#: Maximum number of concurrent requests for individual Pods.
MAX_CONCURRENT: Final = 16
#: Seconds over which changes to Pods and to statuses are coalesced. A status change only affects the requeue time.
GATHER: Final = 0.05
GATHER_STATUS: Final = 1.0
#: Seconds until a WorkloadSpread with an unwatched target is requeued.
UNWATCHED_AGAIN: Final = 5.0
#: Maximum total size of the Pods whose JSON is kept, in bytes.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: Limit on the comparisons in one reconcile (Pod size in bytes × number of subsets), and seconds until the other Pods
#: are compared. A Pod above the limit is not assigned to a subset.
COMPARE_BYTES: Final = 4 * 1024 * 1024
COMPARE_AGAIN: Final = 1.0
#: Seconds until discovery of an unserved kind is retried.
UNKNOWN_KIND_RETRY: Final = 30.0

Versions = dict[str, dict[str, list[Pod]]]


class PodReader:
    """Reads Pods as JSON, with the fields that caches omit (tolerations, affinity). It caches the size of each
    unchanged Pod, and its JSON up to a total of KEPT_BYTES: a namespace may have thousands of Pods of a megabyte
    each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Resource version and size of each Pod, by UID.
        self._sizes: dict[str, tuple[str, int]] = {}
        #: JSON of Pods, by UID.
        self._kept: dict[str, Mapping[str, Any]] = {}
        self.kept_bytes = 0

    async def read(self, pod: Pod, largest: int) -> tuple[Mapping[str, Any], int] | None:
        """Return the Pod and its size, or None if it is gone, or larger than ``largest``. Raises KubeError."""
        uid, version = pod.metadata.uid, pod.metadata.resource_version
        known, size = self._sizes.get(uid, ("", 0))
        if known == version:
            if size > largest:
                return None
            if (kept := self._kept.get(uid)) is not None:
                return kept, size
        try:
            found = without_managed_fields(await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace))
        except NotFound:
            return None
        metadata = found.get("metadata") or {}
        if metadata.get("uid") != uid:
            return None
        content = {"metadata": metadata, "spec": found.get("spec") or {}}
        self.forget(uid)
        size = json_size(content)
        self._sizes[uid] = version, size
        if size > largest:
            return None
        # Dropping other Pods instead would make every read a miss, because the Pods are read cyclically.
        if self.kept_bytes + size <= KEPT_BYTES:
            self._kept[uid] = content
            self.kept_bytes += size
        return content, size

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone, or no longer needed."""
        _, size = self._sizes.pop(uid, ("", 0))
        if self._kept.pop(uid, None) is not None:
            self.kept_bytes -= size


class WorkloadSpreadReconciler:
    """Reconciles WorkloadSpreads. ``statuses`` are shared with Pod admission in this process."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        statuses: SharedStatus[WorkloadSpread],
        events: EventRecorder,
        whitelist: Callable[[], Whitelist],
        versioned: Collection[str],
    ) -> None:
        self._client = client
        self._caches = caches
        self._statuses = statuses
        self._events = events
        self._versioned = versioned
        self._index = SpreadIndex(caches.spreads)
        self._workloads = Workloads(client, caches, whitelist, versioned)
        self._written = ResourceVersionExpectations(client.clock)
        self._pods = PodReader(client)
        #: Last event about a target that cannot be read.
        self._last_events: dict[ObjectKey, str] = {}
        #: Subsets written to Pods but not yet in the cache, by the UID of the Pod.
        self._adopted: dict[str, str] = {}
        #: UIDs of the Pods already compared with the subsets, for WorkloadSpreads with Pods left to compare.
        self._compared: dict[ObjectKey, frozenset[str]] = {}

    def delay(self, change: Change[Any], _key: ObjectKey) -> float:
        """Return the delay over which changes to Pods and statuses are coalesced."""
        if not isinstance(change.new, WorkloadSpread):
            return GATHER
        return GATHER_STATUS if is_status_change(change) else 0.0

    def of_spread(self, change: Change[WorkloadSpread]) -> Iterable[ObjectKey]:
        """Return the WorkloadSpread and, if it was deleted or its Pod filter changed, the others that may
        take over its Pods."""
        key, old, new = key_of(change.object), change.old, change.new
        refiltered = old is not None and new is not None and old.spec.target_filter != new.spec.target_filter
        here = self._index.of(key.namespace) if refiltered or self._index.get(key) is None else None
        others = here.by_target.values() if here is not None else ()
        return sorted({key, *(spread.key for spreads in others for spread in spreads)})

    def of_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the WorkloadSpreads that the Pod's annotation names or that target its workload. Ignore changes to
        fields outside :func:`pod_facts`. [WS-46, WS-47]"""
        pod = change.object
        if change.new is None:
            self._written.forget(pod.metadata.uid)
            self._pods.forget(pod.metadata.uid)
            self._adopted.pop(pod.metadata.uid, None)
        else:
            self._written.observe(change.new.metadata)
            if record_of(change.new.metadata.annotations) is not None:
                self._adopted.pop(pod.metadata.uid, None)
        here, old, new = self._index.of(pod.metadata.namespace), change.old, change.new
        if here is None or (old is not None and new is not None and pod_facts(old) == pod_facts(new)):
            return ()
        found = set()
        for one in (change.old, change.new):
            if one is None:
                continue
            record = record_of(one.metadata.annotations)
            if record is not None:
                found.add(ObjectKey(one.metadata.namespace, record.spread))
            found |= self._above(here, one.metadata)
        return [key for key in sorted(found) if self._index.get(key) is not None]

    def of_workload(self, group: str, kind: str) -> Callable[[Change[Any]], Iterable[ObjectKey]]:
        """Return a function that maps a change of a workload to the WorkloadSpreads that target it. [WS-46]"""

        def keys(change: Change[Any]) -> Iterable[ObjectKey]:
            metadata = change.object.metadata
            here = self._index.of(metadata.namespace)
            if here is None or (
                change.old is not None
                and change.new is not None
                and workload_facts(change.old) == workload_facts(change.new)
            ):
                return ()
            found = {spread.key for spread in here.by_target.get((group, kind, metadata.name), ())}
            if kind == "ReplicaSet":
                found.update(*(self._above(here, one.metadata) for one in (change.old, change.new) if one is not None))
            return sorted(found)

        return keys

    def _above(self, here: NamespaceSpreads, metadata: ObjectMeta) -> set[ObjectKey]:
        owners = self._workloads.keys_above(metadata)
        return {spread.key for workload in owners for spread in here.by_target.get(workload, ())}

    def of_configuration(self, _change: Change[Any]) -> Iterable[ObjectKey]:
        """Return all WorkloadSpreads, because the whitelist may have changed."""
        return [ObjectKey(one.metadata.namespace, one.metadata.name) for one in self._caches.spreads.list()]

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile one WorkloadSpread. [WS-48]"""
        spread, prepared = self._caches.spreads.by_key(key), self._index.get(key)
        if spread is None or prepared is None or spread.deleting:
            self._statuses.forget(key)
            self._last_events.pop(key, None)
            self._compared.pop(key, None)
            return None
        try:
            target = await self._workloads.find(prepared)
        except ReplicasPathError as error:
            self._event(spread, "Warning", "ReplicasUnknown", str(error))
            raise
        except UnknownKindError as error:
            self._event_once(key, spread, "UnknownWorkload", str(error))
            return Result(requeue_after=UNKNOWN_KIND_RETRY)
        except Forbidden as error:
            said = f"The manager is not allowed to read a workload: {message_of(error)}; {HOW_TO_GRANT}"
            self._event_once(key, spread, "MissingRight", said)
            raise
        self._last_events.pop(key, None)
        versions, more = await self._grouped(spread, prepared, target)
        failures = await self._price(spread, versions, target)
        outcome = await self._write(key, spread, versions, target)
        self._record_events(spread, outcome)
        failures += await self._move_on(spread, outcome)
        if failures:
            raise failures[0]
        unwatched, next_part = None if target.watched else UNWATCHED_AGAIN, COMPARE_AGAIN if more else None
        waits = [seconds for seconds in (outcome.again_after, unwatched, next_part) if seconds]
        return Result(requeue_after=min(waits)) if waits else None

    async def _grouped(self, spread: WorkloadSpread, prepared: PreparedSpread, target: Target) -> tuple[Versions, bool]:
        """Group the Pods by version and subset, assigning Pods without a subset to one that fits. Return the groups,
        and whether more Pods must be compared with the subsets in the next reconcile. [WS-50 … WS-53]"""
        versions: Versions = {}
        homeless: list[tuple[Pod, str]] = []
        counted: Counter[tuple[str, str]] = Counter()
        found = [(pod, self._version(pod)) for pod in target.pods]
        apart = versions_apart({version for _, version in found}, spread)
        for pod, own in found:
            version = own if own in apart else VERSION_IGNORED
            subset = recorded_subset(spread, pod)
            if subset is None and self._is_of_another(pod.metadata):
                continue
            if subset is None:
                homeless.append((pod, version))
                continue
            versions.setdefault(version, {}).setdefault(subset, []).append(pod)
            counted[version, subset] += 1
        candidates, more = await self._in_turn(prepared, homeless)
        adopted = await self._adopt(spread, prepared, candidates, counted, target) if candidates else []
        subsets = {one.pod.metadata.uid: one.subset for one in adopted}
        for pod, version in homeless:
            # A written assignment may not be in the cache yet.
            subset = subsets.get(pod.metadata.uid) or self._adopted.get(pod.metadata.uid, NO_SUBSET)
            versions.setdefault(version, {}).setdefault(subset, []).append(pod)
        return versions, more

    def _version(self, pod: Pod) -> str:
        controller = pod.metadata.controller
        return version_of(controller.kind if controller else "", pod.metadata.labels, self._versioned)

    def _is_of_another(self, pod: ObjectMeta) -> bool:
        """Return whether the Pod is recorded for another WorkloadSpread that also applies to it, such as one for its
        Deployment. If such Pods were not skipped, the two WorkloadSpreads would keep taking them from each other.
        [WS-51]"""
        record = record_of(pod.annotations)
        other = self._index.get(ObjectKey(pod.namespace, record.spread)) if record is not None else None
        if other is None or not (other.selector is None or other.selector.matches(pod.labels)):
            return False
        # A workload of a whitelisted kind may find its Pods by selector instead of by owner.
        return other.target in self._workloads.keys_above(pod) or other.target[:2] not in KNOWN_OWNERS

    async def _in_turn(
        self, spread: PreparedSpread, homeless: Sequence[tuple[Pod, str]]
    ) -> tuple[Sequence[Candidate], bool]:
        """Return the Pods to compare with the subsets now, without those compared in previous reconciles, and whether
        any are left. Comparing a large Pod with hundreds of subsets takes seconds and blocks all other controllers."""
        compared = self._compared.pop(spread.key, frozenset())
        waiting = [one for one in homeless if one[0].metadata.uid not in compared]
        chosen: list[Candidate] = []
        room = largest = COMPARE_BYTES // max(1, len(spread.subsets))
        for start in range(0, len(waiting), MAX_CONCURRENT):
            looks = (self._look(pod, version, largest) for pod, version in waiting[start : start + MAX_CONCURRENT])
            for found in await together(looks, MAX_CONCURRENT):
                if found is None:
                    continue
                candidate, size = found
                if size > room:
                    self._compared[spread.key] = compared.union(one.pod.metadata.uid for one in chosen)
                    return chosen, True
                room -= size
                chosen.append(candidate)
        return chosen, False

    async def _look(self, pod: Pod, version: str, largest: int) -> tuple[Candidate, int] | None:
        """Return the Pod and its size if it is active, on a known node, and not larger than ``largest``; otherwise
        None."""
        node = self._caches.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        # A Pod whose assignment is written but not cached yet must not be assigned again.
        if node is None or not is_active(pod) or self._written.unsatisfied(pod.metadata) is not None:
            return None
        read = await self._pods.read(pod, largest)
        return (Candidate(pod, read[0], node, version), read[1]) if read is not None else None

    async def _adopt(
        self,
        spread: WorkloadSpread,
        prepared: PreparedSpread,
        candidates: Sequence[Candidate],
        counted: Mapping[tuple[str, str], int],
        target: Target,
    ) -> list[Adoption]:
        """Assign Pods that fit a subset, reserving their places first. Raises KubeError. [WS-51 … WS-53]"""
        now, seen = rfc3339(self._client.clock.now()), entry_keys(target.pods)

        def decision(fresh: WorkloadSpread | None) -> Ruling[WorkloadSpread, list[Adoption]]:
            if fresh is None or fresh.deleting or not fresh.has_spec_of(spread):
                return Ruling([], provisional=True)  # the prepared subsets belong to another spec
            return adopt(fresh, list(prepared.subsets.values()), candidates, counted, seen, target.wanted, now)

        found = await self._statuses.decide(prepared.key, decision)

        async def write(one: Adoption) -> None:
            await self._patch(one.pod, one.metadata)
            self._adopted[one.pod.metadata.uid] = one.subset
            self._pods.forget(one.pod.metadata.uid)

        await together(map(write, found), MAX_CONCURRENT)
        return found

    async def _price(self, spread: WorkloadSpread, versions: Versions, target: Target) -> list[KubeError]:
        """Write deletion costs. Return the errors. [WS-54 … WS-59]"""
        if not is_priced(spread):
            return []

        failures: list[KubeError] = []

        async def price(one: Cost) -> None:
            if self._written.unsatisfied(one.pod.metadata) is not None:
                return
            try:
                await self._patch(one.pod, {"annotations": {names.POD_DELETION_COST: one.cost}})
            except Conflict as error:
                failures.append(error)  # retried without an event
            except KubeError as error:
                pod = one.pod.metadata
                text = (
                    f"WorkloadSpread {pod.namespace}/{spread.name} failed to patch deletion-cost annotation "
                    f"to {one.cost} for Pod {pod.namespace}/{pod.name} in subset {one.subset}: {message_of(error)}"
                )
                self._event(spread, "Warning", "PatchPodDeletionCostFailed", text)
                failures.append(error)

        await together(map(price, costs(spread, versions, target.latest, target.wanted)), MAX_CONCURRENT)
        return failures

    async def _patch(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        """Patch the metadata of this Pod, identified by UID. A deleted Pod is ignored. Raises KubeError."""
        body = {"metadata": {**metadata, "uid": pod.metadata.uid}}
        try:
            written = await self._client.patch(
                PODS, pod.metadata.name, body, pod.metadata.namespace, decode=decode_metadata
            )
        except NotFound:
            return
        self._written.expect(written.metadata)

    async def _write(self, key: ObjectKey, spread: WorkloadSpread, versions: Versions, target: Target) -> Outcome:
        """Write the status, computed from the freshest copy. Raises KubeError. [WS-60 … WS-63]"""
        now = self._client.clock.now()
        absent = await self._absent(key, versions, target, now)

        def decision(fresh: WorkloadSpread | None) -> Ruling[WorkloadSpread, Outcome]:
            if fresh is None or fresh.deleting or not fresh.has_spec_of(spread):
                return Ruling(Outcome(), provisional=True)
            outcome = compute(fresh, versions, target.wanted, now, absent)
            same = fresh.status is not None and fresh.status.to_dict() == outcome.status.to_dict()
            changed = None if same else fresh.model_copy(update={"status": outcome.status})
            return Ruling(outcome, changed, provisional=True)

        return await self._statuses.decide(key, decision)

    async def _absent(self, key: ObjectKey, versions: Versions, target: Target, now: datetime) -> set[str]:
        """Return the keys of overdue creation entries whose Pods the API server does not have. Raises KubeError.
        [WS-61]

        The cache may lag. Without this check, the place of a Pod that exists would be given to another Pod.
        """
        spread = self._statuses.freshest(key)
        if spread is None or spread.deleting:
            return set()
        late = {one.pod for one in compute(spread, versions, target.wanted, now).missed if one.coming}
        if not late:
            return late
        found = await self._client.list(PODS, key.namespace, metadata_only=True, decode=decode_metadata)
        return late - {one for pod in found.items if not self._is_cached(pod.metadata) for one in keys_of(pod.metadata)}

    def _is_cached(self, pod: ObjectMeta) -> bool:
        known = self._caches.pods.get(pod.name, pod.namespace)
        return known is not None and known.metadata.uid == pod.uid

    async def _move_on(self, spread: WorkloadSpread, outcome: Outcome) -> list[KubeError]:
        """Delete unschedulable Pods. Return the errors. A Pod that has changed may have been scheduled and is kept.
        [WS-67]"""

        failures: list[KubeError] = []

        async def delete(subset: str, pod: Pod) -> None:
            metadata = pod.metadata
            name, namespace, version = metadata.name, metadata.namespace, metadata.resource_version
            try:
                await self._client.delete(PODS, name, namespace, uid=metadata.uid, resource_version=version)
            except NotFound:
                return
            except Conflict as error:
                failures.append(error)  # it has changed and may have been scheduled
            except KubeError as error:
                text = (
                    f"failed to delete unschedulable Pod {namespace}/{name} in Subset {subset} of "
                    f"WorkloadSpread {namespace}/{spread.name}: {message_of(error)}"
                )
                self._event(spread, "Warning", "DeletePodFailed", text)
                failures.append(error)

        await together((delete(subset, pod) for subset, pod in outcome.moved_on), MAX_CONCURRENT)
        return failures

    def _record_events(self, spread: WorkloadSpread, outcome: Outcome) -> None:
        """Record the events of an outcome. [WS-70]"""
        namespace = spread.metadata.namespace
        for missed in outcome.missed:
            verb, reason = ("created", "CreatePodFailed") if missed.coming else ("deleted", "DeletePodFailed")
            text = f"Pod {namespace}/{missed.pod} was expected to be {verb} but it wasn't"
            self._event(spread, "Warning", reason, text)
        for subset in outcome.recovered:
            text = (
                f"Subset {subset} of WorkloadSpread {namespace}/{spread.name} is recovered from unschedulable to "
                "schedulable"
            )
            self._event(spread, "Normal", "RecoverSchedulable", text)

    def _event_once(self, key: ObjectKey, spread: WorkloadSpread, reason: str, text: str) -> None:
        if self._last_events.get(key) != text:
            self._event(spread, "Warning", reason, text)
        self._last_events[key] = text

    def _event(self, spread: WorkloadSpread, kind: Literal["Normal", "Warning"], reason: str, text: str) -> None:
        self._events.event(reference(WORKLOAD_SPREAD.resource(), spread), kind, reason, text)


# Controller declaration: watches and mappers. [WS-46]

NAME: Final = "workloadspread-controller"
VERSIONED_FLAG: Final = "ws-enabled-versioned-status"

CLONE_SETS: Final = Watched.kind(CLONE_SET, CloneSet)
ADVANCED_STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
WATCHED: Final = (
    SPREADS,
    PODS_BY_NAMESPACE,
    NODES,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    CLONE_SETS,
    ADVANCED_STATEFUL_SETS,
    JOBS,
    CONFIGURATION,
)


def workloadspread_controller(context: ControllerContext) -> Reconciling:
    """Build the controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = WorkloadSpreadReconciler(
        context.client,
        caches,
        shared_statuses(context.client, caches.spreads, context.rng),
        context.events,
        CustomWorkloads(caches.configuration, context.own_namespace),
        versioned_kinds(context.flags.text(VERSIONED_FLAG)),
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.spreads, reconciler.of_spread, reconciler.delay),
            Watch(caches.deployments, reconciler.of_workload("apps", "Deployment")),
            Watch(caches.replicasets, reconciler.of_workload("apps", "ReplicaSet")),
            Watch(caches.statefulsets, reconciler.of_workload("apps", "StatefulSet")),
            Watch(caches.clonesets, reconciler.of_workload(names.APPS_GROUP, "CloneSet")),
            Watch(caches.advanced_statefulsets, reconciler.of_workload(names.APPS_GROUP, "StatefulSet")),
            Watch(caches.jobs, reconciler.of_workload("batch", "Job")),
            Watch(caches.configuration, reconciler.of_configuration),
            Watch(caches.pods, reconciler.of_pod, reconciler.delay),
        ],
    )
