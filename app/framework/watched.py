"""Watched objects: their resource, decoder and indexes.

Features that watch the same objects share one cache with all their indexes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from app.api import names
from app.api.kind import KindDefinition
from app.kube import resources
from app.kube.admission import PolicyRule
from app.kube.client import Decode
from app.kube.objects import (
    ConfigMap,
    ControllerRevision,
    Job,
    Namespace,
    Node,
    Object,
    PersistentVolumeClaim,
    Pod,
    Workload,
    decode_config_map,
    decode_controller_revision,
    decode_job,
    decode_namespace,
    decode_node,
    decode_persistent_volume_claim,
    decode_pod,
    decode_workload,
)
from app.kube.resources import Resource
from app.kube.selector_query import SelectorError
from app.kube.selectors import parse_query
from app.kube.store import IndexFunction, Store
from app.pods.predicates import BY_CONTROLLER, controller_keys

T = TypeVar("T", bound=Object)

#: Identity of a cache.
CacheKey: TypeAlias = tuple[Resource, "Scope", str, str]


#: Prefix of a field selector for one object.
_BY_NAME: Final = "metadata.name="


class Scope(StrEnum):
    """Namespaces in which objects are watched."""

    #: All namespaces, or the one that ``--namespace`` names.
    WATCHED = "watched"
    #: All namespaces, regardless of flags: for cluster-scoped objects, or objects that affect all namespaces.
    CLUSTER = "cluster"
    #: The manager's own namespace.
    OWN = "own"
    #: The namespace whose Secrets node agents may read.
    AGENTS = "agents"


def agents_namespace() -> str:
    """Return the namespace whose Secrets node agents may read. [IMG-3]"""
    return os.environ.get(names.DAEMON_CONFIG_NAMESPACE_ENV) or names.DAEMON_CONFIG_NAMESPACE


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """The objects of one cache. ``name`` is their display name on debug pages and in messages."""

    name: str
    resource: Resource
    decode: Decode[T]
    scope: Scope = Scope.WATCHED
    label_selector: str = ""
    field_selector: str = ""
    indexes: Mapping[str, IndexFunction[T]] = field(default_factory=dict)
    #: Filter for cases that a label or field selector cannot express; None keeps every object. Features that share a
    #: cache must use the same filter.
    keep: Callable[[T], bool] | None = None

    @property
    def key(self) -> CacheKey:
        """The identity of the cache; equal for declarations that share a cache."""
        return self.resource, self.scope, self.label_selector, self.field_selector

    @property
    def object_name(self) -> str:
        """Return the name of the only watched object, or "" if there may be several."""
        return self.field_selector.removeprefix(_BY_NAME) if self.field_selector.startswith(_BY_NAME) else ""

    @property
    def permission(self) -> PolicyRule:
        """Return the permission its reflector needs, limited to one object if it watches only one."""
        resource, name = self.resource, self.object_name
        return PolicyRule(
            ("list", "watch"),
            (resource.group,),
            (resource.plural,),
            (name,) if name else (),
            own_namespace=self.scope is Scope.OWN,
            namespace=agents_namespace() if self.scope is Scope.AGENTS else "",
        )

    def indexed(self, **indexes: IndexFunction[T]) -> Watched[T]:
        """Return the same objects with additional indexes."""
        return dataclasses.replace(self, indexes={**self.indexes, **indexes})

    def selected(self, name: str, label_selector: str) -> Watched[T]:
        """Return the objects that a label selector matches. Their cache is separate and needs its own name."""
        return dataclasses.replace(self, name=name, label_selector=label_selector)

    @classmethod
    def kind(cls, kind: KindDefinition, model: type[T], **indexes: IndexFunction[T]) -> Watched[T]:
        """Return the objects of one of our kinds, in its stored version, as ``model``."""
        scope = Scope.WATCHED if kind.namespaced else Scope.CLUSTER
        decode = cast("Decode[T]", cast("Any", model).read)
        return cls(f"{kind.kind}s", kind.resource(), decode, scope, indexes=indexes)


def merged(declared: Iterable[Watched[Any]]) -> Mapping[CacheKey, Watched[Any]]:
    """Return one declaration per cache, with all indexes. Raises ValueError for conflicting declarations."""
    found: dict[CacheKey, Watched[Any]] = {}
    for one in declared:
        known = found.setdefault(one.key, one)
        if known.decode != one.decode or known.keep != one.keep:
            raise ValueError(f"{one.name}: two features decode or filter them differently")
        for name, function in one.indexes.items():
            if known.indexes.get(name, function) != function:
                raise ValueError(f"{one.name}: duplicate index {name}")
        found[one.key] = dataclasses.replace(known, indexes={**known.indexes, **one.indexes})
    taken: dict[str, CacheKey] = {}
    for key, one in found.items():
        if taken.setdefault(one.name, key) != key:
            raise ValueError(f"duplicate cache {one.name}")
    return found


class Stores:
    """The caches of a process, by declaration."""

    def __init__(self, declared: Iterable[Watched[Any]]) -> None:
        self.declared = merged(declared)
        self._stores: dict[CacheKey, Store[Any]] = {
            key: Store(indexes=one.indexes) for key, one in self.declared.items()
        }

    def __call__(self, watched: Watched[T]) -> Store[T]:
        """Return the cache. Raises KeyError if no running feature declared it."""
        try:
            return self._stores[watched.key]
        except KeyError:
            raise KeyError(f"{watched.name} are not watched here: declare them in `watched`") from None

    def replaced(self, stores: Mapping[CacheKey, Store[Any]]) -> Stores:
        """Return a copy in which these caches replace the current ones."""
        made = Stores(self.declared.values())
        made._stores.update({**self._stores, **stores})
        return made

    @property
    def by_name(self) -> Mapping[str, Store[Any]]:
        """Return the caches by display name."""
        return {one.name: self._stores[key] for key, one in self.declared.items()}


_OWNED: Final[Mapping[str, Callable[[Any], Iterable[str]]]] = {BY_CONTROLLER: controller_keys}

PODS: Final[Watched[Pod]] = Watched("Pods", resources.PODS, decode_pod, indexes=_OWNED)
BY_NAMESPACE: Final = "namespace"


def _namespace(pod: Pod) -> list[str]:
    return [pod.metadata.namespace]


#: Pods, also indexed by namespace.
PODS_BY_NAMESPACE: Final = PODS.indexed(**{BY_NAMESPACE: _namespace})


def matching_pods(pods: Store[Pod], namespace: str, query: str) -> list[Pod]:
    """Return the Pods of a namespace that match a selector in string form, from :data:`PODS_BY_NAMESPACE`. An empty or
    invalid selector matches none."""
    try:
        selector = parse_query(query)
    except SelectorError:
        return []
    here = () if selector.empty else pods.by_index(BY_NAMESPACE, namespace)
    return [pod for pod in here if selector.matches(pod.metadata.labels)]


CLAIMS: Final[Watched[PersistentVolumeClaim]] = Watched(
    "PersistentVolumeClaims", resources.PERSISTENTVOLUMECLAIMS, decode_persistent_volume_claim, indexes=_OWNED
)
#: Revisions of workloads, labeled with their hash.
REVISIONS: Final[Watched[ControllerRevision]] = Watched(
    "ControllerRevisions of workloads",
    resources.CONTROLLERREVISIONS,
    decode_controller_revision,
    label_selector=names.CONTROLLER_HASH,
    indexes=_OWNED,
)
NAMESPACES: Final[Watched[Namespace]] = Watched("Namespaces", resources.NAMESPACES, decode_namespace, Scope.CLUSTER)
NODES: Final[Watched[Node]] = Watched("Nodes", resources.NODES, decode_node, Scope.CLUSTER)
#: Built-in workloads, with the fields needed to count their Pods.
DEPLOYMENTS: Final[Watched[Workload]] = Watched("Deployments", resources.DEPLOYMENTS, decode_workload)
REPLICASETS: Final[Watched[Workload]] = Watched("ReplicaSets", resources.REPLICASETS, decode_workload, indexes=_OWNED)
JOBS: Final[Watched[Job]] = Watched("Jobs", resources.JOBS, decode_job)
STATEFULSETS: Final[Watched[Workload]] = Watched("native StatefulSets", resources.STATEFULSETS, decode_workload)
#: The operator's runtime configuration, in the manager's namespace.
CONFIGURATION: Final[Watched[ConfigMap]] = Watched(
    f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}",
    resources.CONFIGMAPS,
    decode_config_map,
    Scope.OWN,
    field_selector=f"metadata.name={names.CONFIGURATION_CONFIG_MAP}",
)
