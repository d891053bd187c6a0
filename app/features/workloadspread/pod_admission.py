"""WorkloadSpreads in Pod admission: assign new Pods to subsets, and free the places of deleted ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from app.api import names
from app.features.workloadspread.index import NamespaceSpreads, PreparedSpread, SpreadIndex
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.placement import (
    NewPod,
    SubsetRecord,
    by_ordinal,
    choose,
    give_back,
    has_long_version,
    record_of,
    version_of,
)
from app.features.workloadspread.plan.subsets import PreparedSubset, affinity_with, patched, tolerations_with
from app.features.workloadspread.plan.targets import KNOWN_OWNERS, ReplicasPathError, Whitelist
from app.features.workloadspread.targets import MAX_HEIGHT, Targets
from app.features.workloadspread.types import WorkloadSpread
from app.kube.admission import Denied, Review
from app.kube.client import Client
from app.kube.clock import Clock, rfc3339
from app.kube.errors import KubeError, NotFound, message_of
from app.kube.jsonvalues import as_object
from app.kube.objects import OwnerReference
from app.kube.patches import PatchError
from app.kube.resources import ObjectKey
from app.kube.statuses import SharedStatus, Statuses
from app.kube.store import Store
from app.kube.validation import DNS1123_SUBDOMAIN_MAX_LENGTH
from app.pods.admission import MutatorOrder, PodRequest, PodRequestKind, StepOutcome, ValidatorOrder, check_shape
from app.pods.admission_draft import PodDraft, PodRefusedError
from app.pods.predicates import FINISHED, controller_of

# Find the WorkloadSpread of a Pod, and reserve and free places in its status. [WS-22 … WS-29, WS-35 … WS-43]

R = TypeVar("R")

_REPLICA_SET: Final = ("apps", "ReplicaSet")
_DEPLOYMENT: Final = ("apps", "Deployment")


def shared_statuses(client: Client, spreads: Store[WorkloadSpread], rng: Random) -> SharedStatus[WorkloadSpread]:
    """Return the shared statuses of a cluster's WorkloadSpreads."""
    return SharedStatus(
        client,
        WORKLOAD_SPREAD.resource(),
        spreads.by_key,
        rng,
        decode=WorkloadSpread.read,
        status_of=lambda spread: spread.status.to_dict() if spread.status is not None else {},
    )


class Placer:
    """Assigns Pods to subsets. ``versioned`` are the kinds whose versions are counted separately."""

    def __init__(
        self,
        index: SpreadIndex,
        statuses: Statuses[WorkloadSpread],
        targets: Targets,
        whitelist: Callable[[], Whitelist],
        clock: Clock,
        rng: Random,
        versioned: Collection[str],
    ) -> None:
        self.index = index
        self.statuses = statuses
        self._targets = targets
        self._whitelist = whitelist
        self._clock = clock
        self._rng = rng
        self._versioned = versioned

    async def find(
        self, here: NamespaceSpreads, controller: OwnerReference, labels: Mapping[str, str], namespace: str
    ) -> PreparedSpread | None:
        """Return the WorkloadSpread of a Pod, if any. Raises KubeError (NotFound if an owner is gone). [WS-22,
        WS-23]"""
        owners = self._whitelist().owners
        current: OwnerReference | None = controller
        for _ in range(MAX_HEIGHT):
            if current is None:
                return None
            group_kind = (current.group, current.kind)
            if group_kind not in owners:
                return None
            for spread in here.by_target.get((*group_kind, current.name), ()):
                if spread.selector is None or spread.selector.matches(labels):
                    return spread
            # Look up further owners only if a target may own this workload.
            if not here.kinds - KNOWN_OWNERS and not (group_kind == _REPLICA_SET and _DEPLOYMENT in here.kinds):
                return None
            current = await self._targets.above(current, namespace)
        return None

    async def take(
        self, spread: PreparedSpread, controller: OwnerReference, name: str, labels: Mapping[str, Any]
    ) -> SubsetRecord | None:
        """Reserve a place and return its subset, or None. Raises KubeError or ReplicasPathError."""
        if spread.sole:
            return SubsetRecord(spread.key.name, spread.sole)
        if spread.by_ordinal:
            copy = self.statuses.freshest(spread.key)
            subset = by_ordinal(copy, name) if copy is not None and not copy.deleting else ""
            return SubsetRecord(spread.key.name, subset) if subset else None
        wanted = await self._targets.wanted(spread) if spread.percent else 0
        key = name or str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        pod = NewPod(version_of(controller.kind, labels, self._versioned), key, wanted, rfc3339(self._clock.now()))
        place = await self.statuses.decide(spread.key, lambda copy: choose(copy, pod))
        if place is None:
            return None
        return SubsetRecord(spread.key.name, place.subset, place.counted if not name else "")

    async def give_back(
        self,
        spread: PreparedSpread,
        record: SubsetRecord,
        controller: OwnerReference,
        name: str,
        labels: Mapping[str, Any],
    ) -> None:
        """Free the place of a Pod that is about to be deleted. Raises KubeError. [WS-43]"""
        if spread.sole or spread.by_ordinal:
            return
        version = version_of(controller.kind, labels, self._versioned)
        now = rfc3339(self._clock.now())
        await self.statuses.decide(spread.key, lambda copy: give_back(copy, version, record.subset, name, now))


# Pod creation step that assigns a new Pod to a subset. [WS-21 … WS-34]

_PARTS: Final = ("metadata", "spec")


class WorkloadSpreadStep:
    """Reserves a place and applies the subset to the Pod."""

    order: Final = MutatorOrder.SUBSET

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Assign the Pod to a subset. Makes no requests if the namespace has no WorkloadSpread.

        Raises PodRefusedError (500) on errors, so that the workload controller retries.
        """
        here = self._placer.index.of(draft.namespace)
        if here is None or review.dry_run:
            return None
        controller = controller_of(draft.owner_references)
        if controller is None or len(draft.name) > DNS1123_SUBDOMAIN_MAX_LENGTH or has_long_version(draft.labels):
            return None  # the API server rejects such a name or label, so it must not reach the status
        return self._placed(draft, here, controller)

    async def _placed(self, draft: PodDraft, here: NamespaceSpreads, controller: OwnerReference) -> None:
        try:
            spread = await self._placer.find(here, controller, draft.labels, draft.namespace)
        except NotFound as error:
            raise _refused(draft, f"an owner of the Pod was not found: {message_of(error)}") from error
        except KubeError as error:
            raise _refused(draft, f"its owners cannot be read: {message_of(error)}") from error
        if spread is None:
            return
        try:
            record = await self._placer.take(spread, controller, draft.name, draft.labels)
        except (KubeError, ReplicasPathError) as error:
            text = str(error) if isinstance(error, ReplicasPathError) else message_of(error)
            raise _refused(draft, f"no place could be reserved in WorkloadSpread {spread.key}: {text}") from error
        if record is None:
            return
        subset = spread.subsets.get(record.subset)
        if subset is not None:
            inject(draft, subset, spread)
        draft.set_annotations(record.annotation(), "WS-33")
        cost = spread.costs.get(record.subset)
        if cost is not None and names.POD_DELETION_COST not in draft.annotations:
            draft.set_annotations({names.POD_DELETION_COST: cost}, "WS-55")  # otherwise the controller writes it


def inject(draft: PodDraft, subset: PreparedSubset, spread: PreparedSpread) -> None:
    """Apply the subset to the Pod. Raises PodRefusedError if its node selector term or patch cannot be applied. [WS-31,
    WS-32]"""
    if subset.tolerations:
        draft.change_field("spec", "tolerations", tolerations_with(subset, draft.spec), "WS-31")
    try:
        affinity = affinity_with(subset, draft.spec)
    except PatchError as error:
        text = f"WorkloadSpread {spread.key}, subset {subset.name}: its node selector cannot be applied: {error}"
        raise _refused(draft, text) from error
    draft.change_field("spec", "affinity", affinity, "WS-31")
    if not subset.patch:
        return
    try:
        merged: Any = patched(subset, {"metadata": draft.metadata, "spec": draft.spec})
        check_shape(merged)
    except (PatchError, PodRefusedError) as error:
        text = error.message if isinstance(error, PodRefusedError) else str(error)
        raise _refused(
            draft, f"WorkloadSpread {spread.key}, subset {subset.name}: its patch cannot be applied: {text}"
        ) from error
    for part in _PARTS:
        before = draft.metadata if part == "metadata" else draft.spec
        after = merged.get(part) or {}
        for field in {**before, **after}:
            if after.get(field) is not before.get(field):
                draft.change_field(part, field, after.get(field), "WS-32")


def _refused(draft: PodDraft, text: str) -> PodRefusedError:
    return PodRefusedError(f"{draft.display}: {text}", code=500)


# Pod guard that frees the places of Pods before their deletion. [WS-42 … WS-44]


class WorkloadSpreadGuard:
    """Records deletions of Pods. Never denies a request."""

    order: Final = ValidatorOrder.COUNTING

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    async def __call__(self, request: PodRequest) -> Denied | None:
        """Record the deletion. Makes no requests if the namespace has no WorkloadSpread. Raises KubeError."""
        if request.kind is PodRequestKind.UPDATE:
            return None  # updates do not free a place
        if request.dry_run or self._placer.index.of(request.namespace) is None:
            return None
        pod = await request.pod()
        if pod is None:
            return None
        metadata = as_object(pod.get("metadata"))
        annotations, labels = (as_object(metadata.get(field)) for field in ("annotations", "labels"))
        record = record_of({key: value for key, value in annotations.items() if isinstance(value, str)})
        references = metadata.get("ownerReferences")
        controller = controller_of(references) if isinstance(references, Sequence) else None
        is_active = not metadata.get("deletionTimestamp") and as_object(pod.get("status")).get("phase") not in FINISHED
        if record is None or controller is None or not is_active:
            return None
        spread = self._placer.index.get(ObjectKey(request.namespace, record.spread))
        if spread is not None:
            await self._placer.give_back(spread, record, controller, request.name, labels)
        return None
