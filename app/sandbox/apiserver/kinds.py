"""Resources of the server and their properties, as data. :mod:`.discovery` lists the served resources; this module adds
the properties that discovery does not show. A CustomResourceDefinition adds resources while it exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from app.kube.resources import Resource
from app.sandbox.apiserver.discovery import ServedResource, builtin_resources

if TYPE_CHECKING:
    from app.sandbox.apiserver.customresources import CustomVersion

#: ``g``: metadata.generation counts spec changes; ``u``: PUT creates missing objects; ``r``: PUT requires a
#: resourceVersion; ``d``: a deletion returns the object instead of a Status.
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
#: Resources that are a view of another, stored resource.
_STORED_IN: Final = {"events.events.k8s.io": "events"}
#: Storage versions of resources served in several versions.
_STORED_VERSIONS: Final = {
    "events.events.k8s.io": "v1",
    "horizontalpodautoscalers.autoscaling": "autoscaling/v2",
}


@dataclass(frozen=True)
class ResourceType:
    """One resource in one version, and its properties."""

    served: ServedResource
    flags: str = ""
    #: Schema, storage version and other properties; only for custom resources.
    custom: CustomVersion | None = None

    @cached_property
    def group(self) -> str:
        """Return the API group; "" for the core group."""
        return self.served.group

    @cached_property
    def version(self) -> str:
        """Return the version."""
        return self.served.version

    @cached_property
    def plural(self) -> str:
        """Return the plural name used in paths."""
        return self.served.plural

    @cached_property
    def kind(self) -> str:
        """Return the kind of its objects."""
        return self.served.kind

    @cached_property
    def namespaced(self) -> bool:
        """Return whether its objects are namespaced."""
        return self.served.namespaced

    @cached_property
    def verbs(self) -> frozenset[str]:
        """Return the supported verbs."""
        return frozenset(self.served.verbs)

    @cached_property
    def subresources(self) -> frozenset[str]:
        """Return the subresources under ``/<name>/``: status, scale, binding …"""
        return frozenset(one.name for one in self.served.subresources)

    @cached_property
    def qualified(self) -> str:
        """Return the name in messages: ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def api_version(self) -> str:
        """Return the API version: ``apps/v1``."""
        return self.served.api_version

    @cached_property
    def stored_api_version(self) -> str:
        """Return the apiVersion in which its objects are stored."""
        if self.custom is not None:
            return self.custom.stored_api_version
        return _STORED_VERSIONS.get(self.qualified, self.api_version)

    @cached_property
    def list_name(self) -> str:
        """Return the kind of lists of its objects."""
        return self.custom.list_kind if self.custom is not None else f"{self.kind}List"

    @cached_property
    def resource(self) -> Resource:
        """Return the resource as clients identify it."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    @cached_property
    def has_status(self) -> bool:
        """Return whether the status is written through a subresource."""
        return "status" in self.subresources

    @cached_property
    def qualifies_finalizers(self) -> bool:
        """Return whether finalizers must have a domain; not required for kinds that extend the API."""
        return self.custom is None and self.group != "apiextensions.k8s.io"

    @cached_property
    def key(self) -> str:
        """Return the key of the collection that stores its objects, the same for all versions."""
        return _STORED_IN.get(self.qualified, self.qualified)

    @cached_property
    def generation(self) -> bool:
        """Return whether ``metadata.generation`` counts changes outside metadata and status."""
        return "g" in self.flags

    @cached_property
    def create_on_update(self) -> bool:
        """Return whether a PUT creates a missing object."""
        return "u" in self.flags

    @cached_property
    def unconditional_update(self) -> bool:
        """Return whether a PUT without resourceVersion overwrites any version."""
        return "r" not in self.flags

    @cached_property
    def returns_deleted(self) -> bool:
        """Return whether a deletion returns the object instead of a Status."""
        return "d" in self.flags


@dataclass
class Registry:
    """All resources that are currently served."""

    _by_path: dict[tuple[str, str, str], ResourceType] = field(default_factory=dict)
    #: Caches, since every request needs them: the versions of each resource, and the groups of custom resources.
    _versions: dict[tuple[str, str, str], tuple[ResourceType, ...]] = field(default_factory=dict)
    _keyed: dict[str, ResourceType] = field(default_factory=dict)
    _custom_groups: frozenset[str] | None = None

    @classmethod
    def built_in(cls) -> Registry:
        """Return a registry of the built-in kinds."""
        found = cls()
        found.add(
            ResourceType(one, _FLAGS.get(f"{one.plural}.{one.group}" if one.group else one.plural, ""))
            for one in builtin_resources()
        )
        return found

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._by_path.values())

    def add(self, rows: Iterable[ResourceType]) -> None:
        """Start serving these resources. Replaces a resource with the same path."""
        for row in rows:
            self._by_path[(row.group, row.version, row.plural)] = row
        self._forget()

    def remove(self, group: str, plural: str) -> None:
        """Stop serving all versions of this resource."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            del self._by_path[key]
        self._forget()

    def _forget(self) -> None:
        self._versions.clear()
        self._keyed.clear()
        self._custom_groups = None

    def versions_of(self, resource: ResourceType) -> tuple[ResourceType, ...]:
        """Return the resource, then its other versions."""
        path = (resource.group, resource.version, resource.plural)
        found = self._versions.get(path)
        if found is None or found[0] is not resource:
            others = (row for row in self if row.key == resource.key and row.version != resource.version)
            found = self._versions[path] = (resource, *others)
        return found

    def named(self, key: str) -> ResourceType | None:
        """Return the first resource whose objects are stored under this key."""
        found = self._keyed.get(key)
        if found is None and (found := next((row for row in self if row.key == key), None)) is not None:
            self._keyed[key] = found
        return found

    def is_custom(self, group: str) -> bool:
        """Return whether a group is one of custom resources."""
        if self._custom_groups is None:
            self._custom_groups = frozenset(row.group for row in self if row.custom is not None)
        return group in self._custom_groups

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the resource at this path."""
        return self._by_path.get((group, version, plural))

    def served(self) -> list[ServedResource]:
        """Return the resources for discovery."""
        return [row.served for row in self._by_path.values()]
