"""Finds the Pods of a budget and the number of desired Pods. [PUB-33 … PUB-36]

Watched workloads are read from caches, others from the API server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from app.api import names
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.types import CloneSet
from app.features.podunavailablebudget.index import MAX_HEIGHT
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.plan.pods import Claim, Workload, claim_of, matches, workload_of
from app.features.podunavailablebudget.plan.status import UNKNOWN, Expected
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.types import StatefulSet
from app.framework.watched import (
    BY_NAMESPACE,
    CONFIGURATION,
    DEPLOYMENTS,
    PODS_BY_NAMESPACE,
    REPLICASETS,
    STATEFULSETS,
    Stores,
    Watched,
    matching_pods,
)
from app.kube.client import Client
from app.kube.discovery import KindMapper
from app.kube.errors import Forbidden, NotFound
from app.kube.jsonvalues import as_object
from app.kube.objects import ConfigMap, Metadata, ObjectMeta, OwnerReference, Pod, Struct, decode_metadata
from app.kube.objects import Workload as NativeWorkload
from app.kube.resources import Resource
from app.kube.store import Store
from app.pods.custom_workloads import ConfiguredList, GroupKind, ListedKind, listed_kinds
from app.pods.predicates import BY_CONTROLLER, Owner, is_active, owner_key, refers_to

BUDGETS: Final = Watched.kind(POD_UNAVAILABLE_BUDGET, PodUnavailableBudget)
#: Watched workloads by group and kind.
WORKLOADS: Final[Mapping[GroupKind, Watched[Any]]] = {
    (one.resource.group, one.resource.kind): one
    for one in (
        DEPLOYMENTS,
        REPLICASETS,
        STATEFULSETS,
        Watched.kind(CLONE_SET, CloneSet),
        Watched.kind(STATEFUL_SET, StatefulSet),
    )
}
WATCHED: Final[tuple[Watched[Any], ...]] = (BUDGETS, PODS_BY_NAMESPACE, *WORKLOADS.values(), CONFIGURATION)
_DEPLOYMENT: Final = ("apps", "Deployment")
_REPLICASET: Final = ("apps", "ReplicaSet")
#: Maximum number of deleted workloads that are remembered.
MAX_GONE: Final = 10_000
#: Maximum number of unwatched workloads whose Pods one selector may select, because each is read in every reconcile.
MAX_READ: Final = 1_000
#: Default replicas of a workload.
_DEFAULT: Final = 1


class UnknownWorkloadError(Exception):
    """A workload's kind is not served, or too many workloads would have to be read. [PUB-36]"""


class _ScaleSpec(Struct, frozen=True):
    replicas: int | None = None


class _ScaleStatus(Struct, frozen=True):
    selector: str = ""


class _Listed(Metadata, frozen=True):
    spec: Any = None


class _Scale(Metadata, frozen=True):
    spec: _ScaleSpec = _ScaleSpec()
    status: _ScaleStatus = _ScaleStatus()


_decode_scale: Final = msgspec.json.Decoder(_Scale).decode
_decode_listed: Final = msgspec.json.Decoder(_Listed).decode


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches that the controller reads."""

    budgets: Store[PodUnavailableBudget]
    pods: Store[Pod]
    workloads: Mapping[GroupKind, Store[Any]]
    configuration: Store[ConfigMap]

    @classmethod
    def of(cls, stores: Stores) -> Caches:
        workloads = {kind: stores(one) for kind, one in WORKLOADS.items()}
        return cls(stores(BUDGETS), stores(PODS_BY_NAMESPACE), workloads, stores(CONFIGURATION))


@dataclass(frozen=True, slots=True)
class Members:
    """The active Pods of a budget and the number of desired Pods. ``watched`` is set if changes to that number trigger
    a watch event."""

    pods: Sequence[Pod]
    expected: Expected
    watched: bool = True


@dataclass(frozen=True, slots=True)
class _Found:
    """A workload that exists and is not being deleted."""

    uid: str
    replicas: int
    selector: str = ""
    watched: bool = True


class Workloads:
    """Finds workloads and their Pods. ``listed`` returns the kinds that the operator has listed to be treated
    like StatefulSets."""

    def __init__(self, client: Client, caches: Caches, listed: Callable[[], Collection[GroupKind]]) -> None:
        self._client = client
        self._caches = caches
        self._listed = listed
        self._kinds = KindMapper(client)
        #: Nonexistent workloads to which Pods refer: at most MAX_GONE digests of owner keys, because Pods may refer to
        #: any number of workloads, with UIDs of any length.
        self._gone: OrderedDict[bytes, None] = OrderedDict()

    async def members(self, budget: PodUnavailableBudget) -> Members:
        """Return the Pods of a budget. Raises ``UnknownWorkloadError`` or ``KubeError``."""
        target = budget.spec.target_ref
        if target is not None:
            reference = OwnerReference(target.api_version, target.kind, target.name)
            return await self._of_target(reference, budget.metadata.namespace)
        return await self._of_selector(claim_of(budget), budget.metadata.namespace)

    async def _of_target(self, target: OwnerReference, namespace: str) -> Members:
        found = await self._find(target, namespace, "spec.targetRef")
        if found is None:
            return Members((), Expected(0, gone=True))
        if found.replicas == 0:
            return Members((), Expected(0), found.watched)
        return Members(self._pods_of(target, found, namespace), Expected(found.replicas), found.watched)

    def _pods_of(self, target: OwnerReference, found: _Found, namespace: str) -> Sequence[Pod]:
        caches = self._caches
        owners = [Owner(target.api_version, target.kind, target.name, namespace, found.uid)]
        if (target.group, target.kind) == _DEPLOYMENT:
            sets = caches.workloads[_REPLICASET].by_index(BY_CONTROLLER, owners[0].index_key)
            owners = [
                Owner.of(REPLICASETS.resource, one.metadata) for one in sets if one.metadata.deletion_timestamp is None
            ]
        pods = [pod for owner in owners for pod in caches.pods.by_index(BY_CONTROLLER, owner.index_key)]
        if not pods:
            pods = matching_pods(caches.pods, namespace, found.selector)
        return [pod for pod in pods if is_active(pod)]

    async def _of_selector(self, claim: Claim, namespace: str) -> Members:
        here = self._caches.pods.by_index(BY_NAMESPACE, namespace)
        pods = [pod for pod in here if is_active(pod) and matches(claim, pod.metadata.labels, ())]
        controllers = {
            owner_key(reference, namespace): reference
            for pod in pods
            if (reference := pod.metadata.controller) is not None
        }
        owned = sum(pod.metadata.controller is not None for pod in pods)
        replicas: dict[str, int] = {}
        lacking = {key for key, reference in controllers.items() if await self._lacks_replicas(reference)}
        to_read = [
            reference
            for key, reference in controllers.items()
            if key not in lacking and (reference.group, reference.kind) not in self._caches.workloads
        ]
        if len(to_read) > MAX_READ:
            raise UnknownWorkloadError(
                f"spec.selector: selects Pods of more than {MAX_READ} workloads of kinds that are not watched; "
                "use a targetRef or a narrower selector"
            )
        watched = True
        for key, reference in controllers.items():
            if replicas and key in lacking:
                # This workload adds no replicas, and another one was found, so not all of them are gone.
                watched = False
                continue
            above = self._deployment_of(reference, namespace)
            found = await self._find(above or reference, namespace, "the controller of its Pods")
            if found is None or (above is None and not _means(reference, namespace, found.uid)):
                continue
            watched = watched and found.watched
            replicas[found.uid] = max(0, found.replicas)
        # Pods whose workloads are all gone need not stay available. [PUB-125]
        gone = bool(controllers) and not replicas and owned == len(pods)
        return Members(pods, Expected(sum(replicas.values()), gone), watched)

    async def _lacks_replicas(self, reference: OwnerReference) -> bool:
        """Return whether the kind is served but cannot be scaled, such as Job."""
        kind = (reference.group, reference.kind)
        if kind in self._caches.workloads or kind in self._listed():
            return False
        mapped = await self._kinds.find(reference.api_version, reference.kind)
        return mapped is not None and mapped.resource.namespaced and not mapped.scalable

    def _deployment_of(self, reference: OwnerReference, namespace: str) -> OwnerReference | None:
        """Return the Deployment of a ReplicaSet. The Deployment's replicas do not include surge Pods. [PUB-33]"""
        if (reference.group, reference.kind) != _REPLICASET:
            return None
        found = self._caches.workloads[_REPLICASET].get(reference.name, namespace)
        above = found.metadata.controller if found is not None else None
        return above if above is not None and (above.group, above.kind) == _DEPLOYMENT else None

    async def _find(self, reference: OwnerReference, namespace: str, where: str) -> _Found | None:
        """Return the workload, or None if it is missing or being deleted. [PUB-35]

        Raises ``UnknownWorkloadError`` or ``KubeError``.
        """
        store = self._caches.workloads.get((reference.group, reference.kind))
        if store is None:
            return await self._live(reference, namespace, where)
        known = store.get(reference.name, namespace)
        if known is None or not _means(reference, namespace, known.metadata.uid):
            # One cache may lag behind another: Pods must not lose protection because their workload is not cached yet.
            return await self._unseen(reference, namespace)
        if known.metadata.deletion_timestamp:
            return None
        return _Found(known.metadata.uid, _or_default(known.spec.replicas))

    def _remember_gone(self, reference: OwnerReference, namespace: str) -> None:
        self._gone[_digest(reference, namespace)] = None
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)

    async def _unseen(self, reference: OwnerReference, namespace: str) -> _Found | None:
        """Read a watched workload that is not in the cache. A missing workload is remembered, because its UID is never
        reused."""
        if _digest(reference, namespace) in self._gone:
            return None
        try:
            found = await self._client.get(
                WORKLOADS[reference.group, reference.kind].resource, reference.name, namespace, decode=_decode_listed
            )
        except NotFound:
            found = None
        if found is None or not _means(reference, namespace, found.metadata.uid) or found.metadata.deletion_timestamp:
            if reference.uid:
                self._remember_gone(reference, namespace)
            return None
        replicas = as_object(found.spec).get("replicas")
        return _Found(found.metadata.uid, replicas if isinstance(replicas, int) else _DEFAULT)

    async def _live(self, reference: OwnerReference, namespace: str, where: str) -> _Found | None:
        """Read an unwatched workload: its scale, or its replicas if its kind is listed."""
        mapped = await self._kinds.find(reference.api_version, reference.kind)
        if mapped is None or not mapped.resource.namespaced:
            raise UnknownWorkloadError(f"{where}: {reference.api_version} serves no namespaced kind {reference.kind}")
        resource = mapped.resource
        try:
            if (reference.group, reference.kind) in self._listed():
                return await self._by_replicas(resource, reference.name, namespace)
            metadata = await self._metadata(resource, reference.name, namespace, scalable=mapped.scalable)
            if metadata is not None and metadata.deletion_timestamp is not None:
                return None
            if metadata is not None and not mapped.scalable:
                return _Found(metadata.uid, UNKNOWN, watched=False)
            scale = await self._client.get(
                resource, reference.name, namespace, subresource="scale", decode=_decode_scale
            )
        except NotFound:
            return None
        uid = (metadata or scale.metadata).uid
        return _Found(uid, _or_default(scale.spec.replicas), scale.status.selector, watched=False)

    async def _metadata(self, resource: Resource, name: str, namespace: str, *, scalable: bool) -> ObjectMeta | None:
        """Read a workload's metadata. Return None if permissions cover only its scale, as OpenKruise's do."""
        try:
            found: Metadata = await self._client.get(resource, name, namespace, decode=decode_metadata)
        except Forbidden:
            if not scalable:
                raise
            return None
        return found.metadata

    async def _by_replicas(self, resource: Resource, name: str, namespace: str) -> _Found | None:
        """Read a workload of a listed kind. A missing spec.replicas counts as 0. [PUB-34]"""
        found: _Listed = await self._client.get(resource, name, namespace, decode=_decode_listed)
        if found.metadata.deletion_timestamp is not None:
            return None
        replicas = as_object(found.spec).get("replicas")
        wanted = replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0
        return _Found(found.metadata.uid, max(0, wanted), watched=False)

    def above(self, pod: Pod) -> Sequence[Workload]:
        """Return the workloads above the Pod, up to the first one that is not cached. [PUB-122]"""
        found: list[Workload] = []
        reference = pod.metadata.controller
        while reference is not None and len(found) < MAX_HEIGHT:
            found.append(workload_of(reference.api_version, reference.kind, reference.name))
            reference = self._controller_of(reference, pod.metadata.namespace)
        return found

    def _controller_of(self, reference: OwnerReference, namespace: str) -> OwnerReference | None:
        store = self._caches.workloads.get((reference.group, reference.kind))
        workload = store.get(reference.name, namespace) if store is not None else None
        owner = workload.metadata.controller if workload is not None else None
        return OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid, True) if owner is not None else None


def _digest(reference: OwnerReference, namespace: str) -> bytes:
    return sha256(owner_key(reference, namespace).encode()).digest()


def _means(reference: OwnerReference, namespace: str, uid: str) -> bool:
    """Return whether a reference refers to the workload with this UID. A targetRef has no UID."""
    owner = Owner(reference.api_version, reference.kind, reference.name, namespace, uid)
    return not reference.uid or refers_to(reference, namespace, owner)


def _or_default(replicas: int | None) -> int:
    return _DEFAULT if replicas is None else replicas


#: Relevant parts of a workload: its key, the labels of its template, and its replicas.
Wanted = tuple[Workload, Mapping[str, str], int]


def relevant_parts(kind: GroupKind, found: NativeWorkload | CloneSet | StatefulSet) -> Wanted:
    """Return the relevant parts of a watched workload of this kind."""
    if isinstance(found, NativeWorkload):
        labels = found.spec.template.metadata.labels
    else:
        labels = as_object(as_object(as_object(found.spec.template).get("metadata")).get("labels"))
    return Workload(*kind, found.metadata.name), labels, _or_default(found.spec.replicas)


def listed_workloads(config_maps: Store[ConfigMap], namespace: str) -> ConfiguredList[Mapping[GroupKind, ListedKind]]:
    """Return the operator's list of kinds treated like StatefulSets, read from the ConfigMap. [PUB-34]"""
    key = names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY
    return ConfiguredList(config_maps, namespace, key, lambda text: listed_kinds(text, key))
