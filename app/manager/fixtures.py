"""A review for each webhook that one can send: the write that its first rule is about, of an example object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.conversion import convert
from app.api.examples import example
from app.api.registry import find_plural
from app.kube.admission import Operation, Rule, Webhook

UID: Final = "9f4b5a7e-4c3a-4d57-9c58-2f0d1a6f8b11"
NAMESPACE: Final = "shop"
_PROTECTED: Final = {"policy.kruise.io/delete-protection": "Always"}
_POD_SPEC: Final[Mapping[str, Any]] = {"containers": [{"name": "main", "image": "nginx:1.25"}]}
#: Of kinds that are not ours: kind, and spec.
_BUILT_IN: Final[Mapping[str, tuple[str, Mapping[str, Any] | None]]] = {
    "pods": ("Pod", _POD_SPEC),
    "namespaces": ("Namespace", None),
    "services": ("Service", {"ports": [{"port": 80}]}),
    "ingresses": ("Ingress", {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}),
    "customresourcedefinitions": ("CustomResourceDefinition", {"group": "shop.example.com"}),
}
_CLUSTER_WIDE: Final = frozenset({"namespaces", "customresourcedefinitions"})


def review(webhook: Webhook) -> dict[str, Any]:
    """An AdmissionReview as the API server would send it to this webhook."""
    rule = webhook.rules[0]
    operation = Operation.CREATE if Operation.CREATE in rule.operations else rule.operations[0]
    group, version = rule.groups[0], rule.versions[0]
    plural, _, subresource = rule.resources[0].partition("/")
    obj = _object(rule, group, version, plural)
    request: dict[str, Any] = {
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "name": obj["metadata"]["name"],
        "operation": operation.value,
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "dryRun": False,
    }
    if subresource:
        request["subResource"] = subresource
    if "namespace" in obj["metadata"]:
        request["namespace"] = obj["metadata"]["namespace"]
    if operation is not Operation.DELETE:
        request["object"] = obj
    if operation is not Operation.CREATE:
        request["oldObject"] = obj
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _object(rule: Rule, group: str, version: str, plural: str) -> dict[str, Any]:
    api_version = f"{group}/{version}" if group else version
    kind = find_plural(group, plural)
    if kind is not None:
        found = example(kind)
        found = found if found["apiVersion"] == api_version else convert(found, api_version)
        namespaced = kind.namespaced
        metadata = {**found["metadata"]}
    else:
        name, spec = _BUILT_IN.get(plural, (_kind(plural), None))
        found = {"apiVersion": api_version, "kind": name, **({"spec": spec} if spec is not None else {})}
        namespaced = plural not in _CLUSTER_WIDE and rule.scope != "Cluster"
        metadata = {"name": "web", "labels": {"app": "web"}}
    if Operation.CREATE not in rule.operations:
        metadata["labels"] = {**metadata.get("labels", {}), **_PROTECTED}
    if namespaced:
        metadata["namespace"] = NAMESPACE
    return {**found, "metadata": metadata}


def _kind(plural: str) -> str:
    known = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}
    return known.get(plural, plural.removesuffix("s").capitalize())
