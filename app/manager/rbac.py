"""Permissions of the manager (derived from features) and of the node agent, and the RBAC objects that grant them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import msgspec

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api import names
from app.framework.options import Enabled
from app.framework.watched import Scope
from app.kube.admission import PolicyRule, Webhook
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.resources import LEASES, SELFSUBJECTRULESREVIEWS
from app.manager.features import features, kinds
from app.manager.gates import GATES
from app.manager.limits import ENDPOINTSLICE_PERMISSION
from app.manager.metrics import ManagerMetrics
from app.manager.settings import SECRET_NAME, Settings
from app.manager.webhook_handlers import WEBHOOKS

#: Permissions of the node agent. [KD-80]
_AGENT_KINDS: Final = ("nodeimages", "containerrecreaterequests", "nodepodprobes")
AGENT_RULES: Final = (
    PolicyRule(("get", "list", "watch"), (names.APPS_GROUP,), _AGENT_KINDS),
    PolicyRule(("patch",), (names.APPS_GROUP,), tuple(f"{plural}/status" for plural in _AGENT_KINDS)),
    PolicyRule(("get", "list", "watch"), ("",), ("pods",)),
    PolicyRule(("patch",), ("",), ("pods/status",)),
    PolicyRule(("create", "patch"), ("",), ("events",)),
    PolicyRule(("get",), ("",), ("secrets",), namespace=names.DAEMON_CONFIG_NAMESPACE),
)

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION_GROUP: Final = ("admissionregistration.k8s.io",)
_EXTENSIONS_GROUP: Final = ("apiextensions.k8s.io",)
_DEFINITIONS: Final = ("customresourcedefinitions",)

#: The Secret of the serving certificate. RBAC cannot limit "create" to a name.
_CERTIFICATE: Final = (
    PolicyRule(("create",), ("",), ("secrets",), own_namespace=True),
    PolicyRule(("get", "list", "watch", "update"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
)
#: Permissions to record events and to find missing permissions.
_EVERY_REPLICA: Final = (
    PolicyRule(("create", "patch"), ("",), ("events",)),
    PolicyRule(("create",), (SELFSUBJECTRULESREVIEWS.group,), (SELFSUBJECTRULESREVIEWS.plural,)),
)
#: Leader election. A flag sets the name of the Lease, so these rules allow any name. The watch lets candidates
#: take a released Lease at once.
_LEADERSHIP: Final = (
    PolicyRule(("get", "list", "watch", "create", "patch"), (LEASES.group,), (LEASES.plural,), own_namespace=True),
)


def _registration() -> tuple[PolicyRule, ...]:
    return (
        PolicyRule(("create",), _ADMISSION_GROUP, _CONFIGURATIONS),
        PolicyRule(
            ("get", "list", "watch", "update"),
            _ADMISSION_GROUP,
            _CONFIGURATIONS,
            names=(MUTATING_NAME, VALIDATING_NAME),
        ),
        # To find missing CRDs: their kinds are disabled.
        PolicyRule(
            ("get", "list", "watch"),
            _EXTENSIONS_GROUP,
            _DEFINITIONS,
            names=tuple(kind.crd_name for kind in kinds()),
        ),
        # caBundle of the conversion webhooks
        PolicyRule(
            ("patch",),
            _EXTENSIONS_GROUP,
            _DEFINITIONS,
            names=tuple(kind.crd_name for kind in kinds() if len(kind.versions) > 1),
        ),
    )


def _serving() -> tuple[PolicyRule, ...]:
    """Return the permissions that a replica without controllers needs on the certificate and the CRDs. [MGR-146]"""
    return (
        PolicyRule(("get", "list", "watch"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
        PolicyRule(("get",), _EXTENSIONS_GROUP, _DEFINITIONS, names=tuple(kind.crd_name for kind in kinds())),
    )


def _of_manager() -> tuple[PolicyRule, ...]:
    return (*_CERTIFICATE, *_LEADERSHIP, *_registration(), *_EVERY_REPLICA, *_of_webhooks(WEBHOOKS))


def all_rules() -> tuple[PolicyRule, ...]:
    """Return all permissions that a manager of this build needs with every gate on, including optional permissions."""
    return (*_of_manager(), *_of_features(lambda _gate: True))


def default_rules() -> tuple[PolicyRule, ...]:
    """Return the permissions a manager of this build needs with all gates at their defaults."""
    return _needed((*_of_manager(), *_of_features(_by_default)))


def optional_rules() -> Mapping[str, tuple[PolicyRule, ...]]:
    """Return the optional roles and their rules. Users bind these roles in the namespaces of their choice."""
    found: dict[str, tuple[PolicyRule, ...]] = {}
    for rule in dict.fromkeys(all_rules()):
        if rule.optional:
            found[rule.optional] = (*found.get(rule.optional, ()), rule)
    return found


def rules_of_gates() -> Mapping[str, tuple[PolicyRule, ...]]:
    """Return, for each gate that is off by default, the permissions it needs in addition to ``default_rules``."""
    found: dict[str, tuple[PolicyRule, ...]] = {}
    given = set(default_rules())
    for name, gate in GATES.items():
        if gate.default:
            continue
        of_gate = _needed(_of_features(lambda asked, name=name: asked == name or _by_default(asked)))  # type: ignore[misc]
        if more := tuple(dict.fromkeys(rule for rule in of_gate if rule not in given)):
            found[name] = more
    return found


def _by_default(gate: str) -> bool:
    return GATES[gate].default


def webhook_rules() -> tuple[PolicyRule, ...]:
    """Return the permissions of a replica of this build that only serves reviews. [MGR-146]"""
    return (*_serving(), *_EVERY_REPLICA, *_of_webhooks(WEBHOOKS), *_of_admission(lambda _gate: True))


def _of_admission(enabled: Enabled) -> tuple[PolicyRule, ...]:
    return tuple(watched.permission for one in features() for watched in one.watched_for_admission(enabled))


def _of_features(enabled: Enabled) -> tuple[PolicyRule, ...]:
    return tuple(rule for one in features() for rule in one.permissions(enabled))


def rules_of(settings: Settings, webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    """Return the permissions of a replica that serves these webhooks."""
    flags = settings.flags
    reconciles = flags.boolean("controllers")
    of_features = _of_features(settings.gates.enabled)
    if not reconciles:
        reviewing = (rule for rule in of_features if rule.for_reviews)
        of_features = (*_of_admission(settings.gates.enabled), *reviewing)
    found = [*_EVERY_REPLICA, *_of_webhooks(webhooks), *of_features]
    found += _registration() if reconciles else _serving()[1:]
    if settings.certificate_folder is None:
        writes = reconciles and not settings.external_certificates
        verbs = ("get", "list", "watch", "update") if writes else ("get", "list", "watch")
        if writes:
            found.append(_CERTIFICATE[0])
        found.append(PolicyRule(verbs, ("",), ("secrets",), names=(settings.secret_name,), own_namespace=True))
    elsewhere = flags.text("leader-election-namespace") != settings.own_namespace
    if reconciles and settings.election is not None and not ("leader-election-namespace" in flags.given and elsewhere):
        found += _LEADERSHIP
    if flags.text("namespace"):
        # These resources are watched and written in one namespace only, where a Role suffices.
        found = [rule for rule in found if rule.own_namespace or _kinds_of(rule).isdisjoint(_of_one_namespace())]
    return _needed(found)


def _needed(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    return tuple(rule for rule in rules if not rule.optional)


def _of_one_namespace() -> frozenset[str]:
    """Return the resources that ``--namespace`` limits to one namespace: watched ones, and those created for Pods."""
    everywhere = lambda _gate: True  # noqa: E731
    watched = (one for declared in features() for one in declared.watched_for_controllers(everywhere))
    return frozenset({"configmaps", *(one.resource.plural for one in watched if one.scope is Scope.WATCHED)})


def _kinds_of(rule: PolicyRule) -> set[str]:
    return {resource.partition("/")[0] for resource in rule.resources}


def _of_webhooks(webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    return (ENDPOINTSLICE_PERMISSION, *(rule for webhook in webhooks for rule in webhook.permissions))


# At startup and periodically, the manager checks whether the API server grants all declared permissions. It logs
# missing ones and continues. Without this check, they would show up only in errors about single objects.

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
#: Namespace used to check cluster-wide permissions, because the manager has no Role there.
_ANY_NAMESPACE: Final = "default"
_NOWHERE: Final[Mapping[str, Sequence[Granted]]] = MappingProxyType({})


class Granted(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a SelfSubjectRulesReview's status."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []

    def covers(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Return whether the rule allows the request; an empty ``name`` means all objects."""
        plural, _, subresource = resource.partition("/")
        resources = {"*", resource} | ({f"*/{subresource}", f"{plural}/*"} if subresource else set())
        return (
            not {"*", verb}.isdisjoint(self.verbs)
            and not {"*", group}.isdisjoint(self.api_groups)
            and not resources.isdisjoint(self.resources)
            and (not self.resource_names or name in self.resource_names)
        )


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    resource_rules: list[Granted] | None = None
    incomplete: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def missing_rights(
    declared: Iterable[PolicyRule],
    everywhere: Sequence[Granted],
    here: Sequence[Granted],
    elsewhere: Mapping[str, Sequence[Granted]] = _NOWHERE,
) -> list[str]:
    """Return the declared permissions that are not granted, one line per resource. Pure.

    ``everywhere`` is granted in all namespaces, ``here`` in the manager's own, ``elsewhere`` in each named one.
    """
    verbs: dict[str, dict[str, None]] = {}
    for rule in declared:
        granted = here if rule.own_namespace else elsewhere[rule.namespace] if rule.namespace else everywhere
        for verb, group, resource, name in product(rule.verbs, rule.groups, rule.resources, rule.names or ("",)):
            if not any(one.covers(verb, group, resource, name) for one in granted):
                what = f"{resource}.{group}" if group else resource
                own, other = rule.own_namespace, rule.namespace
                where = " in the manager's namespace" if own else f" in namespace {other}" if other else ""
                verbs.setdefault(f"{what}{f' {name}' if name else ''}{where}", {})[verb] = None
    return [f"{', '.join(found)} {what}" for what, found in sorted(verbs.items())]


class Rights:
    """Checks the permissions periodically and logs changes."""

    def __init__(
        self, client: Client, own_namespace: str, declared: Sequence[PolicyRule], metrics: ManagerMetrics
    ) -> None:
        self._client = client
        self._own_namespace = own_namespace
        self._declared = declared
        self._metrics = metrics
        self._reported: list[str] = []

    async def run(self) -> None:
        while True:
            await self.check()
            await self._client.clock.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Check once. If the API server returns an incomplete list, all permissions count as granted."""
        try:
            everywhere = await self._granted(_ANY_NAMESPACE)
            here = await self._granted(self._own_namespace)
            others = sorted({rule.namespace for rule in self._declared if rule.namespace})
            elsewhere = {name: await self._granted(name) for name in others}
        except KubeError as error:
            logger.info("cannot check permissions: %s", error)
            return
        known = {name: granted for name, granted in elsewhere.items() if granted is not None}
        if everywhere is None or here is None or len(known) < len(elsewhere):
            missing = []
        else:
            missing = missing_rights(self._declared, everywhere, here, known)
        self._metrics.missing_rights.set(len(missing))
        for line in missing:
            if line not in self._reported:
                logger.error(
                    "missing permission; everything else keeps working (see deploy/rbac.yaml, deploy/rbac-gates): %s",
                    line,
                )
        if self._reported and not missing:
            logger.info("all permissions are granted now")
        self._reported = missing

    async def _granted(self, namespace: str) -> list[Granted] | None:
        review = {
            "apiVersion": SELFSUBJECTRULESREVIEWS.api_version,
            "kind": SELFSUBJECTRULESREVIEWS.kind,
            "spec": {"namespace": namespace},
        }
        answer = await self._client.create(SELFSUBJECTRULESREVIEWS, review, decode=_decode)
        return None if answer.status.incomplete else answer.status.resource_rules or []


_decode: Final = msgspec.json.Decoder(_Review).decode


CLUSTER_ROLE: Final = "kruise-manager-role"
NAMESPACED_ROLE: Final = "kruise-manager-namespaced-role"
SERVICE_ACCOUNT: Final = "kruise-manager"
#: Name of the role that aggregates the operator's ClusterRoles.
EXTENSION_ROLE: Final = "kruise-manager-workloads-role"
_EXTENSION_BINDING: Final = "-workloads-rolebinding"
EXTENSION_BINDING: Final = f"{SERVICE_ACCOUNT}{_EXTENSION_BINDING}"

_VERB_ORDER: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def merged(rules: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """Return the smallest sorted list of RBAC rules that grants exactly these permissions."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        for group in rule.groups:
            for resource in rule.resources:
                verbs.setdefault((group, resource, tuple(sorted(rule.names))), set()).update(rule.verbs)
    # "create" cannot be limited to names. Rules without names make those with names redundant.
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
    """Return the manager's namespaces, ServiceAccount, roles and bindings. One of the namespaces holds the pull
    secrets of node agents."""
    return [
        _namespace(namespace),
        _namespace(names.DAEMON_CONFIG_NAMESPACE),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace}},
        *roles(rules, namespace, SERVICE_ACCOUNT, CLUSTER_ROLE, NAMESPACED_ROLE),
        extension_role(),
        extension_binding(SERVICE_ACCOUNT, namespace),
    ]


def extension_role() -> dict[str, Any]:
    """Return the role that operators can extend: Kubernetes adds the rules of all ClusterRoles with the aggregation
    label."""
    selector = {"matchLabels": {names.AGGREGATE_TO_MANAGER: "true"}}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": EXTENSION_ROLE},
        "aggregationRule": {"clusterRoleSelectors": [selector]},
    }


def extension_binding(service_account: str, namespace: str) -> dict[str, Any]:
    """Return the binding of the extension role to a ServiceAccount."""
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    binding = _binding("ClusterRole", EXTENSION_ROLE, "", subject)
    return {**binding, "metadata": {"name": f"{service_account}{_EXTENSION_BINDING}"}}


def roles(
    rules: Iterable[PolicyRule], namespace: str, service_account: str, cluster_role: str, namespaced_role: str
) -> list[dict[str, Any]]:
    """Return roles of these names that grant the rules to a ServiceAccount in ``namespace``, and their bindings. Roles
    without rules are omitted."""
    given = tuple(rules)
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    elsewhere = sorted({rule.namespace for rule in given if rule.namespace})
    wanted = (
        ("ClusterRole", cluster_role, "", [rule for rule in given if not (rule.own_namespace or rule.namespace)]),
        ("Role", namespaced_role, namespace, [rule for rule in given if rule.own_namespace]),
        *(("Role", namespaced_role, one, [rule for rule in given if rule.namespace == one]) for one in elsewhere),
    )
    made = []
    for kind, name, where, granted in wanted:
        if granted:
            made += [_role(kind, name, where, granted), _binding(kind, name, where, subject)]
    return made


def additional_roles(name: str, rules: Iterable[PolicyRule], namespace: str) -> list[dict[str, Any]]:
    """Return the additional roles that the manager needs when a gate is on, or for an optional permission."""
    called = f"kruise-manager-{name.lower()}"
    return roles(rules, namespace, SERVICE_ACCOUNT, f"{called}-role", f"{called}-namespaced-role")


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _role(kind: str, name: str, namespace: str, rules: Iterable[PolicyRule]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": merged(rules),
    }


def _binding(kind: str, role: str, namespace: str, subject: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": role + "binding", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [dict(subject)],
    }


def _verb_key(verb: str) -> int:
    return _VERB_ORDER.index(verb) if verb in _VERB_ORDER else len(_VERB_ORDER)
