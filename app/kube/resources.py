"""The API endpoint of a kind, and its URL paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from app.kube.errors import NotFound, RequestInfo, Status
from app.kube.fielderrors import shortened
from app.kube.images import remembered


@remembered(4096)
def _segment(name: str) -> str:
    """Return a name as a path segment; empty for an invalid name.

    An API server decodes an escaped slash: ``web/log`` would reach a subresource with our permissions instead of the
    user's. Clients normalize ``.`` and ``..``.
    """
    return "" if name in (".", "..") or "/" in name or "%" in name else quote(name, safe="")


class ObjectKey(NamedTuple):
    """Namespace and name of an object. ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind and its endpoint. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Group and version, such as ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def definition_name(self) -> str:
        """The name of the kind's CustomResourceDefinition, if it has one."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of one object (with ``name``), of a namespace's objects, or of all objects.

        Raises ``ValueError`` if a namespace is missing, or given for a cluster-scoped kind: the request would reach
        other objects than intended. Raises ``NotFound`` for an invalid name, which may come from a user's object.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} {name}: the kind is cluster-scoped, but namespace {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name}: the kind is namespaced, but no namespace was given")
        if subresource and not name:
            raise ValueError(f"{self.kind}: subresource {subresource!r} requires the name of an object")
        parts = ["/api" if not self.group else f"/apis/{self.group}", self.version]
        if namespace:
            parts += ["namespaces", self._segment("namespaces", namespace)]
        parts.append(self.plural)
        if name:
            parts.append(self._segment(self.plural, name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def path_of(self, namespace: str, name: str, subresource: str = "") -> str:
        """Return the URL path of one object. Raises the errors of :meth:`path`. Also raises ``NotFound`` for an empty
        name, which may come from a user's object and would address all objects of the namespace."""
        path = self.path(namespace, name, subresource)
        self._segment(self.plural, name)
        return path

    @staticmethod
    def _segment(plural: str, name: str) -> str:
        segment = _segment(name)
        if not segment:
            message = f'{plural} "{shortened(name)}" not found: no object can have this name'
            raise NotFound(RequestInfo("-", plural), Status(message=message, reason="NotFound", code=404))
        return segment


PODS = Resource("", "v1", "pods", "Pod")
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", "v1", "events", "Event")
PERSISTENTVOLUMECLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CONTROLLERREVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMONSETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
ENDPOINTSLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOMRESOURCEDEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
MUTATINGWEBHOOKCONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATINGWEBHOOKCONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
SUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELFSUBJECTRULESREVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False
)
