"""Which resources the server has: each is a row of data, none has code of its own here.

Built-in kinds stand in :data:`BUILT_IN`; a CustomResourceDefinition adds a row while it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from app.kube.resources import Resource

ALL_VERBS: Final = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})


@dataclass(frozen=True)
class ResourceType:
    """A kind in one version, and how the server treats it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    #: Names under ``/<name>/``: status, scale, binding …
    subresources: frozenset[str] = frozenset()
    verbs: frozenset[str] = ALL_VERBS
    #: ``metadata.generation`` counts changes of everything outside metadata and status.
    generation: bool = False
    #: A PUT of an object that does not exist creates it.
    create_on_update: bool = False
    #: A PUT without resourceVersion overwrites whatever is there.
    unconditional_update: bool = True
    #: A deletion answers with the object instead of a Status.
    returns_deleted: bool = False
    singular: str = ""
    list_kind: str = ""
    #: Rows of a CustomResourceDefinition carry the version's part of it; built-in kinds none.
    custom: Any = None
    #: Versions of one resource share their objects, kept under this name.
    storage_name: str = ""

    @cached_property
    def qualified(self) -> str:
        """``deployments.apps``: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def api_version(self) -> str:
        """``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def list_name(self) -> str:
        """The kind of a list of these."""
        return self.list_kind or f"{self.kind}List"

    @cached_property
    def resource(self) -> Resource:
        """The same as clients name it."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    @cached_property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own."""
        return "status" in self.subresources

    @cached_property
    def key(self) -> str:
        """The name of the collection its objects are kept in, the same for all versions."""
        return self.storage_name or self.qualified


#: Actions that are posted, and objects of which nothing is kept.
_CREATE_ONLY: Final = frozenset({"create"})


def _row(
    group_version: str,
    plural: str,
    kind: str,
    flags: str = "",
    *,
    short: str = "",
    sub: str = "",
    categories: str = "",
    storage_name: str = "",
    singular: str = "",
) -> ResourceType:
    """One row. Flags: ``c`` cluster-scoped, ``s`` status, ``g`` generation, ``u`` create on update, ``r`` refuses
    unconditional updates, ``d`` answers deletions with the object, ``p`` may only be posted."""
    group, _, version = group_version.rpartition("/")
    return ResourceType(
        group,
        version,
        plural,
        kind,
        namespaced="c" not in flags,
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=frozenset(sub.split()) | (frozenset({"status"}) if "s" in flags else frozenset()),
        verbs=_CREATE_ONLY if "p" in flags else ALL_VERBS,
        generation="g" in flags,
        create_on_update="u" in flags,
        unconditional_update="r" not in flags,
        returns_deleted="d" in flags,
        singular=singular or kind.lower(),
        storage_name=storage_name,
    )


_POD_PARTS: Final = "attach binding ephemeralcontainers eviction exec log portforward proxy resize"
_ADMISSION: Final = "admissionregistration.k8s.io"
_STORAGE: Final = "storage.k8s.io/v1"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_APPS: Final = "apps/v1"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"

BUILT_IN: Final[tuple[ResourceType, ...]] = (
    _row("v1", "bindings", "Binding", "p"),
    _row("v1", "componentstatuses", "ComponentStatus", "c", short="cs"),
    _row("v1", "configmaps", "ConfigMap", short="cm"),
    _row("v1", "endpoints", "Endpoints", "u", short="ep", singular="endpoints"),
    _row("v1", "events", "Event", "u", short="ev", storage_name="events"),
    _row("v1", "limitranges", "LimitRange", "u", short="limits"),
    _row("v1", "namespaces", "Namespace", "csd", short="ns", sub="finalize"),
    _row("v1", "nodes", "Node", "cs", short="no", sub="proxy"),
    _row("v1", "persistentvolumeclaims", "PersistentVolumeClaim", "sd", short="pvc"),
    _row("v1", "persistentvolumes", "PersistentVolume", "csd", short="pv"),
    _row("v1", "pods", "Pod", "sgd", short="po", categories="all", sub=_POD_PARTS),
    _row("v1", "podtemplates", "PodTemplate", "gd"),
    _row("v1", "replicationcontrollers", "ReplicationController", "sg", short="rc", categories="all", sub="scale"),
    _row("v1", "resourcequotas", "ResourceQuota", "sd", short="quota"),
    _row("v1", "secrets", "Secret"),
    _row("v1", "serviceaccounts", "ServiceAccount", "d", short="sa", sub="token"),
    _row("v1", "services", "Service", "sud", short="svc", categories="all", sub="proxy"),
    _row(_APPS, "controllerrevisions", "ControllerRevision"),
    _row(_APPS, "daemonsets", "DaemonSet", "sg", short="ds", categories="all"),
    _row(_APPS, "deployments", "Deployment", "sg", short="deploy", categories="all", sub="scale"),
    _row(_APPS, "replicasets", "ReplicaSet", "sg", short="rs", categories="all", sub="scale"),
    _row(_APPS, "statefulsets", "StatefulSet", "sg", short="sts", categories="all", sub="scale"),
    _row("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "s", short="hpa", categories="all"),
    _row("batch/v1", "cronjobs", "CronJob", "sg", short="cj", categories="all"),
    _row("batch/v1", "jobs", "Job", "sg", categories="all"),
    _row("certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", "cs", short="csr",
         sub="approval"),
    _row("coordination.k8s.io/v1", "leases", "Lease", "ur"),
    _row("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", "g"),
    _row("events.k8s.io/v1", "events", "Event", "u", short="ev", storage_name="events"),
    _row("networking.k8s.io/v1", "ingressclasses", "IngressClass", "cg"),
    _row("networking.k8s.io/v1", "ingresses", "Ingress", "sg", short="ing"),
    _row("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", "g", short="netpol", singular="networkpolicy"),
    _row("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", "cru"),
    _row("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "sgr", short="pdb"),
    _row(_RBAC, "clusterrolebindings", "ClusterRoleBinding", "cu"),
    _row(_RBAC, "clusterroles", "ClusterRole", "cu"),
    _row(_RBAC, "rolebindings", "RoleBinding", "u"),
    _row(_RBAC, "roles", "Role", "u"),
    _row("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "cg", short="pc"),
    _row(_STORAGE, "csidrivers", "CSIDriver", "crgd"),
    _row(_STORAGE, "csinodes", "CSINode", "crd"),
    _row(_STORAGE, "csistoragecapacities", "CSIStorageCapacity", "r", singular="csistoragecapacity"),
    _row(_STORAGE, "storageclasses", "StorageClass", "cd", short="sc"),
    _row(_STORAGE, "volumeattachments", "VolumeAttachment", "csrd"),
    _row(f"{_ADMISSION}/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "cgr",
         categories="api-extensions"),
    _row(f"{_ADMISSION}/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "csgr",
         categories="api-extensions", singular="validatingadmissionpolicy"),
    _row(f"{_ADMISSION}/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "cgr",
         categories="api-extensions"),
    _row(f"{_ADMISSION}/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "cgr",
         categories="api-extensions"),
    _row("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", "csgr", short="crd crds",
         categories="api-extensions"),
    _row("apiregistration.k8s.io/v1", "apiservices", "APIService", "csr", categories="api-extensions"),
    _row("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", "cp"),
    _row("authentication.k8s.io/v1", "tokenreviews", "TokenReview", "cp"),
    _row(_AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", "p"),
    _row(_AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview", "cp"),
    _row(_AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview", "cp"),
    _row(_AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", "cp"),
)  # fmt: skip


@dataclass
class Registry:
    """All resources that are served now."""

    _by_path: dict[tuple[str, str, str], ResourceType] = field(default_factory=dict)

    @classmethod
    def built_in(cls) -> Registry:
        """A registry of the built-in kinds."""
        found = cls()
        found.add(BUILT_IN)
        return found

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._by_path.values())

    def add(self, rows: Iterable[ResourceType]) -> None:
        """Serve these from now on; a row with the same path is replaced."""
        for row in rows:
            self._by_path[(row.group, row.version, row.plural)] = row

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of this resource any more."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            del self._by_path[key]

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The resource at this path."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """The resource whose objects have this apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        for row in self._by_path.values():
            if row.kind == kind and row.group == group and row.version == version and row.verbs is not _CREATE_ONLY:
                return row
        return None

    def serves_group(self, group: str, version: str) -> bool:
        """Whether there is anything of this group and version."""
        return any(key[0] == group and key[1] == version for key in self._by_path)
