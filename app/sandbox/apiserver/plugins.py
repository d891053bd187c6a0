"""Admission that is part of the server: what real servers' built-in plugins do that scenarios see."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import status
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.writing import Attributes

Json: TypeAlias = dict[str, Any]

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_EVICTION_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS: Final = 300
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Plugins:
    """The mutating and validating plugins, in the order of a real server."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def mutate(self, attributes: Attributes) -> None:
        """Run them on a write; changes ``attributes.obj`` in place."""
        resource = attributes.resource
        self._namespace_lifecycle(attributes)
        if resource.qualified == "pods" and attributes.operation == "CREATE" and not attributes.subresource:
            pod = attributes.obj or {}
            self._priority(attributes, pod)
            _tolerate_evictions(pod)

    def _namespace_lifecycle(self, attributes: Attributes) -> None:
        """Nothing is made in a namespace that is not there, or that is on its way out."""
        resource = attributes.resource
        if resource.qualified == "namespaces":
            if attributes.operation == "DELETE" and attributes.name in _IMMORTAL:
                raise status.forbidden(resource, attributes.name, "this namespace may not be deleted")
            return
        if attributes.operation != "CREATE" or not attributes.namespace:
            return
        namespaces = self._core.named("namespaces")
        entry = namespaces.objects.get(attributes.namespace)
        if entry is None:
            message = f'namespaces "{attributes.namespace}" not found'
            raise status.Refusal(404, "NotFound", message, {"name": attributes.namespace, "kind": "namespaces"})
        if entry.obj["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {attributes.namespace} because it is being terminated"
            refusal = status.forbidden(resource, attributes.name, message)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {attributes.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            refusal.details["causes"] = [cause]
            raise refusal

    def _priority(self, attributes: Attributes, pod: Json) -> None:
        spec = pod.setdefault("spec", {})
        name = spec.get("priorityClassName") or ""
        value, policy = 0, "PreemptLowerPriority"
        if name in _SYSTEM_PRIORITIES:
            value = _SYSTEM_PRIORITIES[name]
        elif name:
            entry = self._core.named("priorityclasses.scheduling.k8s.io").objects.get(name)
            if entry is None:
                message = f"no PriorityClass with name {name} was found"
                raise status.forbidden(attributes.resource, attributes.name, message)
            value, policy = entry.obj.get("value", 0), entry.obj.get("preemptionPolicy") or policy
        else:
            for entry in self._core.named("priorityclasses.scheduling.k8s.io").objects.values():
                if entry.obj.get("globalDefault"):
                    spec["priorityClassName"] = entry.key
                    value, policy = entry.obj.get("value", 0), entry.obj.get("preemptionPolicy") or policy
        given = spec.get("priority")
        if given is not None and given != value:
            message = (
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name"
            )
            raise status.forbidden(attributes.resource, attributes.name, message)
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", policy)


def _tolerate_evictions(pod: Json) -> None:
    """Pods survive a node's trouble for five minutes unless they say otherwise."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in _EVICTION_TAINTS:
        known = any(
            (not one.get("key") or one.get("key") == taint) and one.get("effect", "") in ("", "NoExecute")
            for one in tolerations
        )
        if not known:
            tolerations = [
                *tolerations,
                {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_SECONDS},
            ]
    pod["spec"]["tolerations"] = tolerations
