"""Finding the WorkloadSpread of a Pod, taking and giving back places in its status (WS-22 … WS-29, WS-35 … WS-43)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Final, Protocol, TypeVar

from app.api.workloadspread import WORKLOAD_SPREAD, WorkloadSpread
from app.kube.client import Client
from app.kube.clock import Clock, rfc3339
from app.kube.objects import OwnerReference
from app.kube.resources import ObjectKey
from app.kube.rulings import Decision, Ruling
from app.kube.shared_status import SharedStatus
from app.kube.store import Store
from app.placement.workloadspread.index import NamespaceSpreads, PreparedSpread, SpreadIndex
from app.placement.workloadspread.plan.choice import NewPod, Place, by_ordinal, choose, give_back
from app.placement.workloadspread.plan.record import SubsetRecord, version_of
from app.placement.workloadspread.plan.whitelist import KNOWN_OWNERS, GroupKind, Whitelist
from app.placement.workloadspread.targets import Owners, Wanting

R = TypeVar("R")

#: Nobody stacks more workloads.
MAX_HEIGHT: Final = 8
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_DEPLOYMENT: Final = ("apps", "Deployment")


class Statuses(Protocol):
    """The statuses, as many write them; see :class:`app.kube.shared_status.SharedStatus`."""

    async def decide(self, key: ObjectKey, decision: Decision[WorkloadSpread, R], /) -> R:
        """The answer to one request."""
        ...

    def freshest(self, key: ObjectKey, /) -> WorkloadSpread | None:
        """The newest copy known."""
        ...


def shared_statuses(client: Client, spreads: Store[WorkloadSpread], rng: Random) -> SharedStatus[WorkloadSpread]:
    """The statuses in a cluster."""
    return SharedStatus(
        client,
        WORKLOAD_SPREAD.resource(),
        spreads.by_key,
        rng,
        decode=WorkloadSpread.model_validate_json,
        status_of=lambda spread: spread.status.to_dict() if spread.status is not None else {},
    )


class LocalStatuses:
    """The statuses in standalone mode: as the files have them, changed in memory only."""

    def __init__(self, spreads: Store[WorkloadSpread]) -> None:
        self._spreads = spreads
        self._changed: dict[ObjectKey, tuple[WorkloadSpread, WorkloadSpread]] = {}

    async def decide(self, key: ObjectKey, decision: Decision[WorkloadSpread, R]) -> R:
        """The answer; what it takes is taken here alone."""
        found = self._spreads.by_key(key)
        ruling: Ruling[WorkloadSpread, R] = decision(self.freshest(key))
        if ruling.changed is not None and found is not None:
            self._changed[key] = (found, ruling.changed)
        return ruling.answer

    def freshest(self, key: ObjectKey) -> WorkloadSpread | None:
        """As it is by now, until the file changes."""
        found = self._spreads.by_key(key)
        origin, changed = self._changed.get(key, (None, None))
        return changed if origin is found and changed is not None else found


class Placer:
    """Answers for the Pods of a process. ``versioned``: kinds whose versions are counted apart."""

    def __init__(
        self,
        index: SpreadIndex,
        statuses: Statuses,
        targets: Wanting,
        owners: Owners,
        whitelist: Callable[[], Whitelist],
        clock: Clock,
        rng: Random,
        versioned: Collection[str],
    ) -> None:
        self.index = index
        self.statuses = statuses
        self._targets = targets
        self._owners = owners
        self._whitelist = whitelist
        self._clock = clock
        self._rng = rng
        self._versioned = versioned

    async def find(
        self, here: NamespaceSpreads, controller: OwnerReference, labels: Mapping[str, str], namespace: str
    ) -> PreparedSpread | None:
        """WS-22, WS-23. Raises KubeError, NotFound where an owner is gone."""
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
            if not _may_be_below(group_kind, here.kinds):
                return None
            current = await self._owners.above(current, namespace)
        return None

    async def take(
        self, spread: PreparedSpread, controller: OwnerReference, name: str, labels: Mapping[str, Any]
    ) -> SubsetRecord | None:
        """The subset of a new Pod, its place taken; None for none. Raises KubeError or ReplicasPathError."""
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
        return self._record(spread, place, name)

    @staticmethod
    def _record(spread: PreparedSpread, place: Place | None, name: str) -> SubsetRecord | None:
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
        """WS-43: the Pod is about to go. Raises KubeError."""
        if spread.sole or spread.by_ordinal:
            return
        version = version_of(controller.kind, labels, self._versioned)
        now = rfc3339(self._clock.now())
        await self.statuses.decide(spread.key, lambda copy: give_back(copy, version, record.subset, name, now))


def _may_be_below(kind: GroupKind, targets: frozenset[GroupKind]) -> bool:
    """Whether a workload of this kind may have one of the targets above it: nobody is asked for nothing."""
    return bool(targets - KNOWN_OWNERS) or (kind == _REPLICA_SET and _DEPLOYMENT in targets)
