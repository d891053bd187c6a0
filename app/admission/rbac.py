"""RBAC derived from what handlers, controllers and the manager say they read and write. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from app.api import names
from app.kube.admission import PolicyRule

CLUSTER_ROLE: Final = "kruise-manager-role"
NAMESPACED_ROLE: Final = "kruise-manager-namespaced-role"
SERVICE_ACCOUNT: Final = "kruise-manager"
#: Aggregated from ClusterRoles of the operator's.
EXTENSION_ROLE: Final = "kruise-manager-workloads-role"

_VERB_ORDER: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def merged(rules: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """The fewest, sorted RBAC rules that grant exactly what these grant."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        for group in rule.groups:
            for resource in rule.resources:
                verbs.setdefault((group, resource, tuple(sorted(rule.names))), set()).update(rule.verbs)
    # "create" cannot be limited to names; what is granted without names need not be granted with them.
    for (group, resource, only), held in list(verbs.items()):
        if only:
            held -= verbs.get((group, resource, ()), set())
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], set[str]] = {}
    for (group, resource, only), held in verbs.items():
        if held:
            resources.setdefault((group, tuple(sorted(held, key=_verb_key)), only), set()).add(resource)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(plurals),
            **({"resourceNames": list(only)} if only else {}),
            "verbs": list(held),
        }
        for (group, held, only), plurals in sorted(
            resources.items(), key=lambda item: (item[0][0], sorted(item[1]), item[0][2])
        )
    ]


def manifests(rules: Iterable[PolicyRule], namespace: str) -> list[dict[str, Any]]:
    """Namespaces, ServiceAccount, roles and bindings for the manager. Node agents read pull secrets in one of them."""
    return [
        _namespace(namespace),
        _namespace(names.DAEMON_CONFIG_NAMESPACE),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace}},
        *roles(rules, namespace, SERVICE_ACCOUNT, CLUSTER_ROLE, NAMESPACED_ROLE),
        extension_role(),
        extension_binding(SERVICE_ACCOUNT, namespace),
    ]


def extension_role() -> dict[str, Any]:
    """The role that operators extend: Kubernetes fills in the rules of all ClusterRoles with the label."""
    selector = {"matchLabels": {names.AGGREGATE_TO_MANAGER: "true"}}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": EXTENSION_ROLE},
        "aggregationRule": {"clusterRoleSelectors": [selector]},
    }


def extension_binding(service_account: str, namespace: str) -> dict[str, Any]:
    """The binding of that role to a ServiceAccount."""
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    binding = _binding("ClusterRoleBinding", "ClusterRole", EXTENSION_ROLE, "", subject)
    return {**binding, "metadata": {"name": f"{service_account}-workloads-rolebinding"}}


def roles(
    rules: Iterable[PolicyRule], namespace: str, service_account: str, cluster_role: str, namespaced_role: str
) -> list[dict[str, Any]]:
    """The roles of these names that grant the rules to a ServiceAccount in ``namespace``, and their bindings."""
    given = tuple(rules)
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    everywhere = [rule for rule in given if not (rule.own_namespace or rule.namespace)]
    made = [
        _role("ClusterRole", cluster_role, "", everywhere),
        _binding("ClusterRoleBinding", "ClusterRole", cluster_role, "", subject),
        _role("Role", namespaced_role, namespace, (rule for rule in given if rule.own_namespace)),
        _binding("RoleBinding", "Role", namespaced_role, namespace, subject),
    ]
    for other in sorted({rule.namespace for rule in given if rule.namespace}):
        made += [
            _role("Role", namespaced_role, other, (rule for rule in given if rule.namespace == other)),
            _binding("RoleBinding", "Role", namespaced_role, other, subject),
        ]
    return made


def gate_roles(gate: str, rules: Collection[PolicyRule], namespace: str) -> list[dict[str, Any]]:
    """The roles that grant the manager what it needs beside its other roles where a gate is on."""
    name = f"kruise-manager-{gate.lower()}"
    found = roles(rules, namespace, SERVICE_ACCOUNT, f"{name}-role", f"{name}-namespaced-role")
    return [found[index] for index in range(len(found)) if found[index - index % 2]["rules"]]


def optional_role(name: str, rules: Iterable[PolicyRule], namespace: str) -> list[dict[str, Any]]:
    """A role that whoever installs binds where he wants: everywhere, as here, or in some namespaces."""
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    role = f"kruise-manager-{name}-role"
    return [
        _role("ClusterRole", role, "", rules),
        _binding("ClusterRoleBinding", "ClusterRole", role, "", subject),
    ]


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _role(kind: str, name: str, namespace: str, rules: Iterable[PolicyRule]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": merged(rules),
    }


def _binding(kind: str, role_kind: str, role: str, namespace: str, subject: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": role + "binding", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [dict(subject)],
    }


def _verb_key(verb: str) -> int:
    return _VERB_ORDER.index(verb) if verb in _VERB_ORDER else len(_VERB_ORDER)
