"""Workloads of subsets that no cache shows: those just created, for a subset must not get another (UD-33), and those
whose label of the subset somebody took away (UD-32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.api import names
from app.api.uniteddeployment import UnitedDeployment
from app.api.uniteddeployment.types import template_of
from app.kube.client import Client
from app.kube.objects import decode_metadata
from app.kube.resources import Resource
from app.kube.store import Store
from app.pods.owners import is_controlled_by
from app.workloads.uniteddeployment.plan.revision import KIND
from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload, decode_subset_workload
from app.workloads.uniteddeployment.writer import Written

#: Seconds until a created workload that no cache shows is looked up.
BELIEF_SECONDS: Final = 10.0
#: Seconds after a creation without an answer in which the cache shows the workload, if there is one.
DOUBT_SECONDS: Final = 3.0
#: By how much a timer is late, so that what it waits for is past.
TIMER_TOLERANCE: Final = 0.001


@dataclass(slots=True)
class Creations:
    """Those of one object."""

    #: Names of workloads that were created → when they were.
    made: dict[str, float] = field(default_factory=dict)
    #: Until when the cache may not show a workload whose creation had no answer.
    doubt_until: float = 0.0

    def note(self, written: Written, now: float) -> None:
        """Remember what came of a creation."""
        self.made.update(dict.fromkeys(written.names, now))
        if written.unanswered:
            self.doubt_until = now + DOUBT_SECONDS


class UnseenWorkloads:
    """Compares creations with the caches. ``resources``: where workloads are, by the template they are made from."""

    def __init__(
        self, client: Client, caches: Mapping[str, Store[SubsetWorkload]], resources: Mapping[str, Resource]
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._resources = resources

    async def wait(self, united: UnitedDeployment, creations: Creations) -> float:
        """Seconds to wait for a workload that is not seen yet; 0: all are."""
        now, namespace = self._clock.monotonic(), united.metadata.namespace
        if creations.doubt_until:
            if (left := creations.doubt_until - now) > 0:
                return left + TIMER_TOLERANCE
            # The cache may be later than that: what there is decides.
            creations.made.update(dict.fromkeys(await self._there(united), now))
            creations.doubt_until = 0.0
        for name in list(creations.made):
            if any(store.get(name, namespace) is not None for store in self._caches.values()):
                del creations.made[name]
        if any(now - since > BELIEF_SECONDS for since in creations.made.values()):
            there = await self._there(united)
            creations.made = {name: since for name, since in creations.made.items() if name in there}
        return 1.0 if creations.made else 0.0

    async def unlabelled(self, united: UnitedDeployment, kind: str) -> list[SubsetWorkload]:
        """UD-32: the workloads that it owns still, and that say no more which subset they are for."""
        namespace, selector = united.metadata.namespace or "", f"!{names.SUBSET_NAME}"
        listed = await self._client.list(
            self._resources[kind], namespace, label_selector=selector, decode=decode_subset_workload
        )
        owner = KIND.owner(united.metadata)
        return [
            one
            for one in listed.items
            if is_controlled_by(one.metadata, owner) and one.metadata.deletion_timestamp is None
        ]

    async def _there(self, united: UnitedDeployment) -> list[str]:
        """The names of the workloads that it has, by the API server itself."""
        found = template_of(united.spec)
        if found is None:
            return []
        listed = await self._client.list(
            self._resources[found[0]],
            united.metadata.namespace or "",
            label_selector=names.SUBSET_NAME,
            decode=decode_metadata,
        )
        owner = KIND.owner(united.metadata)
        return [one.metadata.name for one in listed.items if is_controlled_by(one.metadata, owner)]
