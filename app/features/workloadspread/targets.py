"""Find the targets of WorkloadSpreads in caches or on the API server."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import orjson

from app.api import names
from app.features.cloneset.types import CloneSet
from app.features.statefulset.types import StatefulSet
from app.features.workloadspread.index import PreparedSpread
from app.features.workloadspread.plan.targets import ReplicasPathError, Whitelist, replicas_of
from app.features.workloadspread.types import WorkloadSpread
from app.features.workloadspread.webhooks import TARGETS
from app.framework.watched import matching_pods
from app.kube.client import Client
from app.kube.concurrency import Coalesced
from app.kube.discovery import KindMapper
from app.kube.errors import UNANSWERED, Forbidden, NotFound
from app.kube.jsonvalues import as_object
from app.kube.objects import (
    ConfigMap,
    Job,
    Node,
    ObjectMeta,
    OwnerReference,
    Pod,
    Struct,
    decode_metadata,
    decoder,
    is_short,
)
from app.kube.objects import Workload as NativeWorkload
from app.kube.resources import DEPLOYMENTS, REPLICASETS, ObjectKey, Resource
from app.kube.store import Store
from app.pods.predicates import BY_CONTROLLER, Owner, refers_to

# Targets read from the API server: their replicas and owners. [WS-18, WS-23]

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds to wait between attempts to read an object.
PAUSES: Final = (0.01, 0.05, 0.25, 0.7, 1.0)
#: Maximum length of an owner chain: users may write owner references that form a cycle.
MAX_HEIGHT: Final = 8
#: Maximum number of cached owners, and the seconds after which an entry expires: an owner may be adopted or released.
MAX_REMEMBERED: Final = 4_096
REMEMBERED: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Target:
    """Key by which concurrent reads are coalesced. Unless ``whole``, only the fields that determine the replicas are
    decoded: every new Pod waits for the read, and the Pod template may be a megabyte long."""

    group: str
    kind: str
    api_version: str
    key: ObjectKey
    whole: bool


class _BriefSpec(Struct, frozen=True):
    replicas: Any = None
    parallelism: Any = None


class _Brief(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _BriefSpec = _BriefSpec()


_decode_brief: Final = decoder(_Brief)


def _brief(body: bytes) -> Mapping[str, Any]:
    """Decode the replicas of a workload, and whether it is being deleted."""
    found = _decode_brief(body)
    spec = {"replicas": found.spec.replicas, "parallelism": found.spec.parallelism}
    return {"metadata": {"deletionTimestamp": found.metadata.deletion_timestamp}, "spec": spec}


class LiveTargets:
    """Reads targets from the API server. Concurrent reads of a target share a request."""

    def __init__(self, client: Client, whitelist: Callable[[], Whitelist]) -> None:
        self._client = client
        self._kinds = KindMapper(client)
        self._whitelist = whitelist
        #: Cached controllers of owners. They are not keyed by UID alone: the creator of a Pod can write any UID into
        #: its owner references.
        self._known: OrderedDict[tuple[str, OwnerReference], tuple[float, OwnerReference | None]] = OrderedDict()
        self._read = Coalesced(self._object)

    async def wanted(self, spread: PreparedSpread) -> int:
        """Return the current replicas. Return 0 if the target is gone or being deleted. [WS-18]"""
        group, kind, name = spread.target
        custom = self._whitelist().targets.get((group, kind))
        path = custom.replicas_path if custom is not None and not spread.paths else ""
        key = ObjectKey(spread.key.namespace, name)
        target = _Target(group, kind, spread.api_version, key, whole=bool(spread.paths or path))
        found = await self._patiently(lambda: self._read(target))
        if found is None:
            return 0
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
        """Return the target, or None if it is gone or being deleted."""
        return await self._read(_Target(group, kind, api_version, key, whole=True))

    async def is_served(self, group: str, kind: str, api_version: str) -> bool:
        """Return whether the kind is served. Raises KubeError."""
        return await self._resource(group, kind, api_version) is not None

    async def scale(self, api_version: str, kind: str, key: ObjectKey) -> Mapping[str, Any]:
        """Return the target's scale, or {} if its kind has none."""
        mapped = await self._kinds.find(api_version, kind)
        if mapped is None or not mapped.scalable:
            return {}
        try:
            found = await self._client.get(mapped.resource, f"{key.name}", key.namespace, subresource="scale")
        except NotFound:
            return {}
        return found

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        """Return the owner's controller, which is cached for REMEMBERED seconds."""
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
            logger.warning("%s %s/%s: cannot read its controller: %s", owner.kind, namespace, owner.name, error)
            return None
        same = not owner.uid or refers_to(owner, namespace, Owner.of(resource, found.metadata))
        above = found.metadata.controller if same else None
        if is_short((asked, above)):
            self._known[asked] = (now + REMEMBERED, above)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return above

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a read: refusing the Pod because the API server is briefly overloaded would be worse than a short
        delay."""
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
            name, namespace = target.key.name, target.key.namespace
            found: Mapping[str, Any] = await self._client.get(
                resource, name, namespace, decode=orjson.loads if target.whole else _brief
            )
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
    """Return the replicas of a Scale object, or -1 if they are missing."""
    found = as_object(scale.get("spec")).get("replicas")
    return found if isinstance(found, int) and not isinstance(found, bool) else -1


class DirectTargets:
    """Targets in standalone mode, where nothing but the Pod is available."""

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:  # noqa: ARG002
        """Return None: the controller is unknown."""
        return None

    async def wanted(self, spread: PreparedSpread) -> int:  # noqa: ARG002
        """Return a placeholder: the replicas are unknown."""
        return 0


Targets: TypeAlias = DirectTargets | LiveTargets

# Pods, replicas and latest version of a target. Targets of watched kinds are read from caches. Other targets, and the
# fields at replicas paths, are read from the API server. [WS-18, WS-19, WS-57]

#: Annotation with the revision of a Deployment's ReplicaSet. The ReplicaSet with the highest revision has the current
#: template.
REVISION: Final = "deployment.kubernetes.io/revision"
_DEPLOYMENT: Final = ("apps", "Deployment")
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_CLONE_SET: Final = (names.APPS_GROUP, "CloneSet")
_JOB: Final = ("batch", "Job")


class UnknownKindError(Exception):
    """The target's kind is not served."""


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches that the controller reads."""

    spreads: Store[WorkloadSpread]
    pods: Store[Pod]
    nodes: Store[Node]
    deployments: Store[NativeWorkload]
    replicasets: Store[NativeWorkload]
    statefulsets: Store[NativeWorkload]
    clonesets: Store[CloneSet]
    advanced_statefulsets: Store[StatefulSet]
    jobs: Store[Job]
    configuration: Store[ConfigMap]


@dataclass(frozen=True, slots=True)
class Target:
    """A target: all its Pods, its replicas, its latest version (empty if versions are not counted), and whether it is
    watched."""

    pods: Sequence[Pod] = ()
    wanted: int = 0
    latest: str = ""
    watched: bool = True


class Workloads:
    """Finds targets. ``versioned`` are the kinds whose versions are counted separately."""

    def __init__(
        self, client: Client, caches: Caches, whitelist: Callable[[], Whitelist], versioned: Collection[str]
    ) -> None:
        self._caches = caches
        self._whitelist = whitelist
        self._live = LiveTargets(client, whitelist)
        self._versioned = versioned
        self._stores: Mapping[tuple[str, str], Store[Any]] = {
            _DEPLOYMENT: caches.deployments,
            _REPLICA_SET: caches.replicasets,
            ("apps", "StatefulSet"): caches.statefulsets,
            _CLONE_SET: caches.clonesets,
            (names.APPS_GROUP, "StatefulSet"): caches.advanced_statefulsets,
            _JOB: caches.jobs,
        }

    async def find(self, spread: PreparedSpread) -> Target:
        """Return the target of a WorkloadSpread. Raises KubeError, ReplicasPathError or UnknownKindError."""
        group, kind, name = spread.target
        store = self._stores.get((group, kind))
        if store is None:
            return await self._custom(spread)
        found = store.get(name, spread.key.namespace)
        if found is None or found.metadata.deletion_timestamp:
            return Target()
        own, pods = _replicas(found), self._pods_of(_owner(spread, found.metadata.uid))
        wanted = await self._at_paths(spread) if spread.paths else own
        return Target(_selected(spread, pods), wanted, self._latest((group, kind), found))

    def _pods_of(self, owner: Owner) -> Sequence[Pod]:
        owners = [owner]
        if (owner.api_version.partition("/")[0], owner.kind) == _DEPLOYMENT:
            owners = [Owner.of(REPLICASETS, one.metadata) for one in self._replica_sets(owner)]
        return [pod for one in owners for pod in self._caches.pods.by_index(BY_CONTROLLER, one.index_key)]

    def _replica_sets(self, deployment: Owner) -> Sequence[NativeWorkload]:
        found = self._caches.replicasets.by_index(BY_CONTROLLER, deployment.index_key)
        return [one for one in found if one.metadata.deletion_timestamp is None]

    def _latest(self, kind: tuple[str, str], found: Any) -> str:
        """Return the latest version of a workload. [WS-57]"""
        if kind == _DEPLOYMENT and "deployment" in self._versioned:
            newest = max(self._replica_sets(Owner.of(DEPLOYMENTS, found.metadata)), key=_revision, default=None)
            return newest.metadata.labels.get(names.POD_TEMPLATE_HASH, "") if newest is not None else ""
        if kind == _REPLICA_SET and "replicaset" in self._versioned:
            return str(found.metadata.labels.get(names.POD_TEMPLATE_HASH, ""))
        if kind == _CLONE_SET and "cloneset" in self._versioned and found.status is not None:
            return str(found.status.update_revision).rpartition("-")[2]
        return ""

    async def _at_paths(self, spread: PreparedSpread) -> int:
        group, kind, name = spread.target
        found = await self._live.target(spread.api_version, group, kind, ObjectKey(spread.key.namespace, name))
        return replicas_of(found, (group, kind), spread.paths, "") or 0 if found is not None else 0

    async def _custom(self, spread: PreparedSpread) -> Target:
        """Return a target of a whitelisted kind. These kinds are not watched. [WS-18, WS-19]"""
        group, kind, name = spread.target
        key = ObjectKey(spread.key.namespace, name)
        found = await self._live.target(spread.api_version, group, kind, key)
        if found is None:
            if not await self._live.is_served(group, kind, spread.api_version):
                raise UnknownKindError(f"spec.targetRef: {spread.api_version} serves no namespaced kind {kind}")
            return Target(watched=False)
        custom = self._whitelist().targets.get((group, kind))
        wanted = replicas_of(found, (group, kind), spread.paths, custom.replicas_path if custom is not None else "")
        metadata = found.get("metadata") or {}
        pods = self._pods_of(_owner(spread, str(metadata.get("uid") or "")))
        scale: Mapping[str, Any] = {}
        if wanted is None or not pods:
            scale = await self._live.scale(spread.api_version, kind, key)
        if not pods:
            query = as_object(scale.get("status")).get("selector")
            pods = matching_pods(self._caches.pods, key.namespace, query) if isinstance(query, str) else ()
        return Target(_selected(spread, pods), scale_replicas(scale) if wanted is None else wanted, watched=False)

    def keys_above(self, metadata: ObjectMeta) -> Iterable[tuple[str, str, str]]:
        """Yield group, kind and name of the owners of an object, from the bottom up, until one is not cached."""
        controller = metadata.controller
        for _ in range(MAX_HEIGHT):
            if controller is None:
                return
            yield controller.group, controller.kind, controller.name
            if (controller.group, controller.kind) != _REPLICA_SET:
                return
            owner = self._caches.replicasets.get(controller.name, metadata.namespace)
            controller = owner.metadata.controller if owner is not None else None


def _owner(spread: PreparedSpread, uid: str) -> Owner:
    _, kind, name = spread.target
    return Owner(spread.api_version, kind, name, spread.key.namespace, uid)


def _selected(spread: PreparedSpread, pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the Pods that the target filter selects. [WS-20]"""
    return pods if spread.selector is None else [pod for pod in pods if spread.selector.matches(pod.metadata.labels)]


def _replicas(found: Any) -> int:
    wanted = found.spec.parallelism if isinstance(found, Job) else found.spec.replicas
    return 1 if wanted is None else int(wanted)


def _revision(found: NativeWorkload) -> tuple[int, str]:
    text = found.metadata.annotations.get(REVISION, "")
    return (int(text) if text.isdecimal() and len(text) < 20 else 0), found.metadata.name
