"""Targets as the API server has them now: how many Pods they want, and who is above whom (WS-18, WS-23)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from app.kube.client import Client
from app.kube.coalesced import Coalesced
from app.kube.errors import UNANSWERED, Forbidden, NotFound
from app.kube.mapping import KindMapper
from app.kube.objects import OwnerReference, decode_metadata
from app.kube.resources import ObjectKey, Resource
from app.placement.workloadspread.admission_lookups import TARGETS
from app.placement.workloadspread.index import PreparedSpread
from app.placement.workloadspread.plan.replicas import ReplicasPathError, replicas_of
from app.placement.workloadspread.plan.whitelist import Whitelist
from app.pods.owners import Owner, refers_to

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds to wait before what is needed for an answer is asked for again.
PAUSES: Final = (0.01, 0.05, 0.25, 0.7, 1.0)
#: Owners remembered, and for how many seconds: one may be adopted or set free.
MAX_REMEMBERED: Final = 4_096
REMEMBERED: Final = 60.0


class Owners(Protocol):
    """Finds who controls a workload."""

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        """The controller of this one; None if it has none. Raises KubeError, NotFound where the owner is gone."""
        ...


class Wanting(Protocol):
    """Says how many Pods a target wants."""

    async def wanted(self, spread: PreparedSpread) -> int:
        """The number by now. Raises KubeError or ReplicasPathError."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """What is read once for all who ask together."""

    group: str
    kind: str
    api_version: str
    key: ObjectKey


class LiveTargets:
    """Asks the API server; who asks for one target together shares a request."""

    def __init__(self, client: Client, whitelist: Callable[[], Whitelist]) -> None:
        self._client = client
        self._kinds = KindMapper(client)
        self._whitelist = whitelist
        #: A uid alone says nothing: whoever creates Pods writes any into their owner references.
        self._known: OrderedDict[tuple[str, OwnerReference], tuple[float, OwnerReference | None]] = OrderedDict()
        self._read = Coalesced(self._object)

    async def wanted(self, spread: PreparedSpread) -> int:
        """WS-18. A target that is gone, or on its way out, wants none."""
        group, kind, name = spread.target
        target = _Target(group, kind, spread.api_version, ObjectKey(spread.key.namespace, name))
        found = await self._patiently(lambda: self._read(target))
        if found is None:
            return 0
        custom = self._whitelist().targets.get((group, kind))
        path = custom.replicas_path if custom is not None and not spread.paths else ""
        try:
            wanted = replicas_of(found, (group, kind), spread.paths, path)
        except ReplicasPathError as error:
            if spread.paths:
                raise
            logger.warning("%s %s/%s: %s", kind, spread.key.namespace, name, error)
            return 0
        if wanted is not None:
            return wanted
        scale = await self.scale(spread.api_version, kind, ObjectKey(spread.key.namespace, name))
        return max(0, scale_replicas(scale))

    async def target(self, api_version: str, group: str, kind: str, key: ObjectKey) -> Mapping[str, Any] | None:
        """The target itself; None where it is gone or on its way out."""
        return await self._read(_Target(group, kind, api_version, key))

    async def is_served(self, group: str, kind: str, api_version: str) -> bool:
        """Whether there can be such a target. Raises KubeError."""
        return await self._resource(group, kind, api_version) is not None

    async def scale(self, api_version: str, kind: str, key: ObjectKey) -> Mapping[str, Any]:
        """The target's scale; empty where its kind has none."""
        mapped = await self._kinds.find(api_version, kind)
        if mapped is None or not mapped.scalable:
            return {}
        try:
            found = await self._client.get(mapped.resource, f"{key.name}", key.namespace, subresource="scale")
        except NotFound:
            return {}
        return found

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        """The owner's controller, remembered for a while."""
        now = self._client.clock.monotonic()
        asked = (namespace, owner)
        until, known = self._known.get(asked, (0.0, None))
        if now < until:
            return known
        resource = await self._resource(owner.group, owner.kind, owner.api_version)
        if resource is None:
            return None
        try:
            found = await self._patiently(
                lambda: self._client.get(resource, owner.name, namespace, decode=decode_metadata)
            )
        except Forbidden as error:
            logger.warning("%s %s/%s: who controls it cannot be read: %s", owner.kind, namespace, owner.name, error)
            return None
        same = not owner.uid or refers_to(owner, namespace, Owner.of(resource, found.metadata))
        above = found.metadata.controller if same else None
        self._known[asked] = (now + REMEMBERED, above)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return above

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A Pod waits for the answer, and need not be refused for an API server that is out of breath."""
        for pause in PAUSES:
            try:
                return await ask()
            except UNANSWERED:
                await self._client.clock.sleep(pause)
        return await ask()

    async def _object(self, target: _Target) -> Mapping[str, Any] | None:
        resource = await self._resource(target.group, target.kind, target.api_version)
        if resource is None:
            return None
        try:
            found = await self._client.get(resource, target.key.name, target.key.namespace)
        except NotFound:
            return None
        return None if (found.get("metadata") or {}).get("deletionTimestamp") else found

    async def _resource(self, group: str, kind: str, api_version: str) -> Resource | None:
        known = TARGETS.get((group, kind))
        if known is not None:
            return known
        mapped = await self._kinds.find(api_version, kind)
        return mapped.resource if mapped is not None and mapped.resource.namespaced else None


def scale_replicas(scale: Mapping[str, Any]) -> int:
    """What a scale asks for; -1 where it does not say."""
    spec = scale.get("spec")
    found = spec.get("replicas") if isinstance(spec, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else -1


class DirectTargets:
    """Knows no more than the Pod says; standalone mode."""

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:  # noqa: ARG002
        """Nobody knows."""
        return None

    async def wanted(self, spread: PreparedSpread) -> int:  # noqa: ARG002
        """Nobody knows."""
        return 0
