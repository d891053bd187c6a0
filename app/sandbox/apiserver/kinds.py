"""Which resources the server has, and how each is treated: data, no code per kind.

What is served stands in :mod:`.discovery`; here is what discovery does not say. A CustomResourceDefinition adds rows
while it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from app.kube.resources import Resource
from app.sandbox.apiserver.discovery import ServedResource, builtin_resources

if TYPE_CHECKING:
    from app.sandbox.apiserver.customresources import CustomVersion

#: ``g``: metadata.generation counts changes of the spec; ``u``: a PUT creates what is not there; ``r``: a PUT without
#: resourceVersion is refused; ``d``: a deletion answers with the object instead of a Status.
_FLAGS: Final[Mapping[str, str]] = {
    "csidrivers.storage.k8s.io": "gdr",
    "csinodes.storage.k8s.io": "dr",
    "csistoragecapacities.storage.k8s.io": "r",
    "clusterrolebindings.rbac.authorization.k8s.io": "u",
    "clusterroles.rbac.authorization.k8s.io": "u",
    "cronjobs.batch": "g",
    "customresourcedefinitions.apiextensions.k8s.io": "gr",
    "daemonsets.apps": "g",
    "deployments.apps": "g",
    "endpoints": "u",
    "endpointslices.discovery.k8s.io": "g",
    "events": "u",
    "events.events.k8s.io": "u",
    "ingressclasses.networking.k8s.io": "g",
    "ingresses.networking.k8s.io": "g",
    "jobs.batch": "g",
    "leases.coordination.k8s.io": "ru",
    "limitranges": "u",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": "gr",
    "namespaces": "d",
    "networkpolicies.networking.k8s.io": "g",
    "persistentvolumeclaims": "d",
    "persistentvolumes": "d",
    "poddisruptionbudgets.policy": "gr",
    "pods": "gd",
    "podtemplates": "gd",
    "priorityclasses.scheduling.k8s.io": "g",
    "replicasets.apps": "g",
    "replicationcontrollers": "g",
    "resourcequotas": "d",
    "rolebindings.rbac.authorization.k8s.io": "u",
    "roles.rbac.authorization.k8s.io": "u",
    "runtimeclasses.node.k8s.io": "ru",
    "serviceaccounts": "d",
    "services": "du",
    "statefulsets.apps": "g",
    "storageclasses.storage.k8s.io": "d",
    "validatingadmissionpolicies.admissionregistration.k8s.io": "gr",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": "gr",
    "validatingwebhookconfigurations.admissionregistration.k8s.io": "gr",
    "volumeattachments.storage.k8s.io": "dr",
    "volumeattributesclasses.storage.k8s.io": "d",
}
#: Resources that are another view of one that is stored.
_STORED_IN: Final = {"events.events.k8s.io": "events"}
#: The version of those that are served in several.
_STORED_VERSIONS: Final = {
    "events.events.k8s.io": "v1",
    "horizontalpodautoscalers.autoscaling": "autoscaling/v2",
}


@dataclass(frozen=True)
class ResourceType:
    """One resource in one version, and how the server treats it."""

    served: ServedResource
    flags: str = ""
    #: Of a custom resource: schema, storage version and the like.
    custom: CustomVersion | None = None

    @cached_property
    def group(self) -> str:
        """The API group; "" for the core."""
        return self.served.group

    @cached_property
    def version(self) -> str:
        """The version in the group."""
        return self.served.version

    @cached_property
    def plural(self) -> str:
        """The name in paths."""
        return self.served.plural

    @cached_property
    def kind(self) -> str:
        """The kind of its objects."""
        return self.served.kind

    @cached_property
    def namespaced(self) -> bool:
        """Whether its objects are in namespaces."""
        return self.served.namespaced

    @cached_property
    def verbs(self) -> frozenset[str]:
        """What can be done with it."""
        return frozenset(self.served.verbs)

    @cached_property
    def subresources(self) -> frozenset[str]:
        """Names under ``/<name>/``: status, scale, binding …"""
        return frozenset(one.name for one in self.served.subresources)

    @cached_property
    def qualified(self) -> str:
        """``deployments.apps``: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def api_version(self) -> str:
        """``apps/v1``."""
        return self.served.api_version

    @cached_property
    def stored_api_version(self) -> str:
        """The apiVersion its objects have while they are stored."""
        if self.custom is not None:
            return self.custom.stored_api_version
        return _STORED_VERSIONS.get(self.qualified, self.api_version)

    @cached_property
    def list_name(self) -> str:
        """The kind of a list of these."""
        return self.custom.list_kind if self.custom is not None else f"{self.kind}List"

    @cached_property
    def resource(self) -> Resource:
        """The same as clients name it."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    @cached_property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own."""
        return "status" in self.subresources

    @cached_property
    def qualifies_finalizers(self) -> bool:
        """Whether finalizers must have a domain; kinds that extend the API are not so strict."""
        return self.custom is None and self.group != "apiextensions.k8s.io"

    @cached_property
    def key(self) -> str:
        """The name of the collection its objects are kept in, the same for all versions."""
        return _STORED_IN.get(self.qualified, self.qualified)

    @cached_property
    def generation(self) -> bool:
        """Whether ``metadata.generation`` counts changes of everything outside metadata and status."""
        return "g" in self.flags

    @cached_property
    def create_on_update(self) -> bool:
        """Whether a PUT of an object that does not exist creates it."""
        return "u" in self.flags

    @cached_property
    def unconditional_update(self) -> bool:
        """Whether a PUT without resourceVersion overwrites whatever is there."""
        return "r" not in self.flags

    @cached_property
    def returns_deleted(self) -> bool:
        """Whether a deletion answers with the object instead of a Status."""
        return "d" in self.flags


@dataclass
class Registry:
    """All resources that are served now."""

    _by_path: dict[tuple[str, str, str], ResourceType] = field(default_factory=dict)
    #: What every request asks for, found once: the versions of a resource, the groups of custom resources.
    _versions: dict[tuple[str, str, str], tuple[ResourceType, ...]] = field(default_factory=dict)
    _keyed: dict[str, ResourceType] = field(default_factory=dict)
    _custom_groups: frozenset[str] | None = None

    @classmethod
    def built_in(cls) -> Registry:
        """A registry of the built-in kinds."""
        found = cls()
        found.add(
            ResourceType(one, _FLAGS.get(f"{one.plural}.{one.group}" if one.group else one.plural, ""))
            for one in builtin_resources()
        )
        return found

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._by_path.values())

    def add(self, rows: Iterable[ResourceType]) -> None:
        """Serve these from now on; a row with the same path is replaced."""
        for row in rows:
            self._by_path[(row.group, row.version, row.plural)] = row
        self._forget()

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of this resource any more."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            del self._by_path[key]
        self._forget()

    def _forget(self) -> None:
        self._versions.clear()
        self._keyed.clear()
        self._custom_groups = None

    def versions_of(self, resource: ResourceType) -> tuple[ResourceType, ...]:
        """The resource itself, then its other versions."""
        path = (resource.group, resource.version, resource.plural)
        found = self._versions.get(path)
        if found is None or found[0] is not resource:
            others = (row for row in self if row.key == resource.key and row.version != resource.version)
            found = self._versions[path] = (resource, *others)
        return found

    def named(self, key: str) -> ResourceType | None:
        """The first resource that is stored under this key."""
        found = self._keyed.get(key)
        if found is None and (found := next((row for row in self if row.key == key), None)) is not None:
            self._keyed[key] = found
        return found

    def is_custom(self, group: str) -> bool:
        """Whether a group is one of custom resources."""
        if self._custom_groups is None:
            self._custom_groups = frozenset(row.group for row in self if row.custom is not None)
        return group in self._custom_groups

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The resource at this path."""
        return self._by_path.get((group, version, plural))

    def served(self) -> list[ServedResource]:
        """What discovery tells of."""
        return [row.served for row in self._by_path.values()]
