"""Admission that is part of the server: what real servers' built-in plugins do that scenarios see."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.api.jsonvalue import json_copy
from app.sandbox.apiserver import status
from app.sandbox.apiserver.attributes import Attributes
from app.sandbox.apiserver.core import Core

Json: TypeAlias = dict[str, Any]

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_EVICTION_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS: Final = 300
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105  # a name, no secret
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
_TOKEN_SOURCES: Final = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
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
            self._service_account(attributes, pod)
            self._priority(attributes, pod)
            _tolerate_evictions(pod)

        elif resource.qualified == "services" and not attributes.subresource:
            self._address(attributes)

    def _address(self, attributes: Attributes) -> None:
        """A Service has an address of its own, unless it wants none."""
        spec = (attributes.obj or {}).get("spec") or {}
        before = (attributes.old or {}).get("spec") or {}
        if spec.get("type") == "ExternalName":
            return
        if attributes.old is not None:
            for name in ("clusterIP", "clusterIPs"):
                if not spec.get(name) and name in before:
                    spec[name] = before[name]
        if not spec.get("clusterIP"):
            taken = {
                (entry.obj.get("spec") or {}).get("clusterIP") for entry in self._core.named("services").select("")
            }
            free = (f"10.96.{number // 256}.{number % 256}" for number in range(1, 2**16))
            spec["clusterIP"] = next(address for address in free if address not in taken)
        spec["clusterIPs"] = [spec["clusterIP"]]

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

    def _service_account(self, attributes: Attributes, pod: Json) -> None:
        """A Pod runs under an account that is there, and has its token where it wants to.

        Where no controller makes them, the account ``default`` counts as there.
        """
        spec = pod.setdefault("spec", {})
        if "kubernetes.io/config.mirror" in (pod.get("metadata", {}).get("annotations") or {}):
            return
        name = spec.get("serviceAccountName") or "default"
        account = self._core.named("serviceaccounts").objects.get(f"{attributes.namespace}/{name}")
        if account is None and name != "default":
            message = (
                f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
            )
            raise status.forbidden(attributes.resource, attributes.name, message)
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        automount = spec.get("automountServiceAccountToken")
        if automount is None and account is not None:
            automount = account.obj.get("automountServiceAccountToken")
        if automount is not False and account is not None:
            self._mount_token(spec)

    def _mount_token(self, spec: Json) -> None:
        volumes = spec.setdefault("volumes", [])
        name = next((one["name"] for one in volumes if one["name"].startswith(_TOKEN_VOLUME)), "")
        if not name:
            name = self._core.generated_name(_TOKEN_VOLUME)
            volumes.append({"name": name, "projected": {"sources": json_copy(_TOKEN_SOURCES), "defaultMode": 0o644}})
        for part in ("initContainers", "containers"):
            for container in spec.get(part) or ():
                mounts = container.setdefault("volumeMounts", [])
                if not any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
                    mounts.append({"name": name, "readOnly": True, "mountPath": _TOKEN_PATH})

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
