"""Taking over a cluster that OpenKruise runs in, and giving it back: what is there, what changes, in which order. Pure.

The order leaves no moment without an answer. Rights are added before anything uses them and taken away last. The
Deployment is rolled out with a surge, so replicas of both serve behind one Service, with one certificate, and one Lease
says which of them reconciles. Definitions change while only ours answer ``/convert``.
"""

from __future__ import annotations

import base64
import copy
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from app.admission import rbac
from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api import crd, names
from app.api.kind import KindDefinition
from app.kube.admission import PolicyRule
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    Resource,
)
from app.manager.flags import FlagError, Flags, parse_flags
from app.manager.gates import FeatureGateError, parse_gates
from app.manager.uninstall import DEPLOYMENT

DAEMON: Final = "kruise-daemon"
#: Where what was there before is kept until it is given back.
BACKUP: Final = "kruise-takeover"
_BACKUP_KEY: Final = "before.json.gz"
#: An object may hold 1 MiB; base64 and metadata take their part.
MAX_BACKUP_BYTES: Final = 700_000
_GROUPS: Final = (names.APPS_GROUP, names.POLICY_GROUP)
_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
_BY_KIND: Final = {one.kind: one for one in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)}
CONFIGURATIONS: Final = (
    (MUTATINGWEBHOOKCONFIGURATIONS, MUTATING_NAME),
    (VALIDATINGWEBHOOKCONFIGURATIONS, VALIDATING_NAME),
)
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
_CONTAINER: Final = "manager"
#: As in the chart: no limit of CPU, and room for caches.
_RESOURCES: Final = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

Json = dict[str, Any]


class TakeoverError(Exception):
    """It cannot be done; the message says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What was seen in a cluster."""

    namespace: str
    deployment: Json | None = None
    daemon: Json | None = None
    #: Definitions of OpenKruise's groups, by name.
    definitions: Mapping[str, Json] = field(default_factory=dict)
    #: Definition → how many objects there are.
    objects: Mapping[str, int] = field(default_factory=dict)
    #: Webhook configurations by name.
    configurations: Mapping[str, Json] = field(default_factory=dict)
    cluster_role: Json | None = None
    #: What an earlier takeover left to be given back.
    backup: Json | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One write, or waiting until a roll-out is complete."""

    does: str
    action: Literal["create", "apply", "patch", "replace", "delete", "wait"]
    resource: Resource
    name: str
    namespace: str = ""
    body: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is there, what keeps it from being done, and the steps."""

    facts: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


def takeover_plan(
    seen: Installed,
    image: str,
    kinds: Sequence[KindDefinition],
    rules: Iterable[PolicyRule],
    *,
    leave_unserved: bool = False,
) -> Plan:
    """Replace OpenKruise's manager by ours, run from ``image``.

    ``kinds`` are those served here, ``rules`` what our manager may do. ``leave_unserved``: objects of other kinds are
    no reason to refuse.
    """
    if seen.deployment is None:
        where = f"Deployment {seen.namespace}/{DEPLOYMENT}"
        return Plan(blockers=(f"{where}: not there, so there is nothing to take over; docs/installing.md",))
    if seen.backup is not None:
        blocker = f"ConfigMap {seen.namespace}/{BACKUP}: this cluster is taken over already; --back gives it back"
        return Plan(blockers=(blocker,))
    facts: list[str] = []
    blockers: list[str] = []
    warnings: list[str] = []
    container = _container(seen.deployment)
    facts.append(f"Deployment {seen.namespace}/{DEPLOYMENT} runs {container.get('image', 'no image')}")
    _judge_arguments(container.get("args") or [], facts, blockers, warnings)
    _judge_kinds(seen, kinds, facts, blockers, warnings, leave_unserved=leave_unserved)
    _judge_rest(seen, facts, warnings)
    if not image:
        blockers.append("--image: which image of ours the Deployment shall run")
    if seen.cluster_role is None:
        blockers.append(f"ClusterRole {rbac.CLUSTER_ROLE}: not there; this is no installation of OpenKruise's chart")
    if blockers or seen.cluster_role is None:
        return Plan(tuple(facts), tuple(blockers), tuple(warnings))
    steps = _forward(seen, seen.deployment, seen.cluster_role, image, kinds, tuple(rules))
    return Plan(tuple(facts), (), tuple(warnings), steps)


def back_plan(seen: Installed) -> Plan:
    """Give the cluster back to what ran before."""
    if seen.backup is None:
        return Plan(blockers=(f"ConfigMap {seen.namespace}/{BACKUP}: not there, so there is nothing to give back",))
    if seen.deployment is None or seen.cluster_role is None:
        what = f"Deployment {seen.namespace}/{DEPLOYMENT}" if seen.deployment is None else "ClusterRole"
        return Plan(blockers=(f"{what}: not there; install OpenKruise anew, then delete ConfigMap {BACKUP}",))
    before = unpacked(seen.backup)
    image = _container(before["deployment"]).get("image", "")
    steps = [_rights([*before["clusterRole"]["rules"], *seen.cluster_role["rules"]], "add its rights to ours")]
    steps += [
        _definition_back(seen.definitions[name], spec)
        for name, spec in before["definitions"].items()
        if name in seen.definitions
    ]
    steps += [
        _deployment_back(seen.deployment, before["deployment"], seen.namespace, image),
        Step(f"wait until only {image} runs", "wait", DEPLOYMENTS, DEPLOYMENT, seen.namespace),
    ]
    steps += [
        _configuration_back(resource, seen.configurations[name], before["configurations"][name])
        for resource, name in CONFIGURATIONS
        if name in seen.configurations and name in before["configurations"]
    ]
    steps += [
        _rights(before["clusterRole"]["rules"], "leave it the rights it had"),
        Step(
            "delete our rights in its namespace",
            "delete",
            ROLE_BINDINGS,
            f"{rbac.NAMESPACED_ROLE}binding",
            seen.namespace,
        ),
        Step("delete our rights in its namespace", "delete", ROLES, rbac.NAMESPACED_ROLE, seen.namespace),
        Step("forget what was kept", "delete", CONFIGMAPS, BACKUP, seen.namespace),
    ]
    return Plan(facts=(f"kept is Deployment {seen.namespace}/{DEPLOYMENT} with {image}",), steps=tuple(steps))


# ---- what is there


def _container(deployment: Mapping[str, Any]) -> Json:
    containers: list[Json] = deployment["spec"]["template"]["spec"]["containers"]
    return next((one for one in containers if one["name"] == _CONTAINER), containers[0])


def _judge_arguments(arguments: Sequence[str], facts: list[str], blockers: list[str], warnings: list[str]) -> None:
    flags: Flags | None = None
    try:
        flags = parse_flags([argument for argument in arguments if argument != "manager"])
        gates = parse_gates(flags.text("feature-gates"))
    except (FlagError, FeatureGateError) as error:
        blockers.append(f"arguments of the Deployment: {error}")
        return
    meant = sorted(flags.given - set(flags.without_meaning))
    facts.append("flags that keep their meaning: " + (", ".join(f"--{name}" for name in meant) or "none are given"))
    if flags.without_meaning:
        warnings.append("flags without effect here: " + ", ".join(f"--{name}" for name in flags.without_meaning))
    if gates.without_effect:
        warnings.append("feature gates without effect here: " + ", ".join(gates.without_effect))


def _judge_kinds(
    seen: Installed,
    kinds: Sequence[KindDefinition],
    facts: list[str],
    blockers: list[str],
    warnings: list[str],
    *,
    leave_unserved: bool,
) -> None:
    served = {kind.crd_name for kind in kinds}
    for name, definition in sorted(seen.definitions.items()):
        kind, count = definition["spec"]["names"]["kind"], seen.objects.get(name, 0)
        if name in served:
            facts.append(f"{kind}: served here, {count} objects")
        elif count:
            text = f"{kind}: {count} objects, and the kind is not served here: nobody would reconcile or judge them"
            if (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook":
                text += ", and they could be read in the stored version only"
            if leave_unserved:
                warnings.append(text)
            else:
                blockers.append(f"{text}; delete them, or leave them so with --leave-unserved")
        else:
            facts.append(f"{kind}: not served here, and not used")


def _judge_rest(seen: Installed, facts: list[str], warnings: list[str]) -> None:
    if seen.daemon is not None:
        facts.append(f"DaemonSet {seen.namespace}/{DAEMON}: goes on as it is")
    deployment = seen.deployment or {}
    release = (deployment["metadata"].get("annotations") or {}).get(_HELM_RELEASE)
    if release:
        warnings.append(
            f"Helm's release {release} does not know of it: do not upgrade or uninstall it (an uninstall deletes the "
            "definitions with every object); docs/moving-over.md says how our chart takes its place"
        )


# ---- there


def _forward(
    seen: Installed,
    deployment: Json,
    role: Json,
    image: str,
    kinds: Sequence[KindDefinition],
    rules: tuple[PolicyRule, ...],
) -> tuple[Step, ...]:
    ours = [kind for kind in kinds if kind.crd_name in seen.definitions]
    roles = rbac.roles(rules, seen.namespace, rbac.SERVICE_ACCOUNT, rbac.CLUSTER_ROLE, rbac.NAMESPACED_ROLE)
    cluster_role = next(one for one in roles if one["kind"] == "ClusterRole")
    steps = [
        Step("keep what is there", "create", CONFIGMAPS, BACKUP, seen.namespace, _backup(seen, deployment, role, ours)),
        _rights([*(role.get("rules") or []), *cluster_role["rules"]], "add our rights to its own"),
    ]
    steps += [_applied(one, seen.namespace, "add our rights") for one in roles if one["kind"] != "ClusterRole"]
    steps += [
        _applied(crd.manifest(kind), seen.namespace, "install a definition that it did not have")
        for kind in kinds
        if kind.crd_name not in seen.definitions
    ]
    steps += [
        _deployment(deployment, seen.namespace, image),
        Step(f"wait until only {image} runs", "wait", DEPLOYMENTS, DEPLOYMENT, seen.namespace),
    ]
    steps += [_definition(kind, seen) for kind in ours]
    steps.append(_rights(cluster_role["rules"], "take away the rights that only it needed"))
    return tuple(steps)


def _backup(seen: Installed, deployment: Json, role: Json, kinds: Iterable[KindDefinition]) -> Json:
    before = {
        "deployment": {"spec": deployment["spec"]},
        "clusterRole": {"rules": role.get("rules") or []},
        "definitions": {kind.crd_name: seen.definitions[kind.crd_name]["spec"] for kind in kinds},
        "configurations": {name: {"webhooks": one.get("webhooks") or []} for name, one in seen.configurations.items()},
    }
    packed = gzip.compress(orjson.dumps(before), mtime=0)
    if len(packed) > MAX_BACKUP_BYTES:
        raise TakeoverError(f"what is there takes {len(packed)} bytes; a ConfigMap can keep {MAX_BACKUP_BYTES}")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": BACKUP, "namespace": seen.namespace},
        "binaryData": {_BACKUP_KEY: base64.b64encode(packed).decode()},
    }


def unpacked(backup: Mapping[str, Any]) -> Json:
    """What a backup holds. Raises TakeoverError."""
    try:
        kept: Json = orjson.loads(gzip.decompress(base64.b64decode(backup["binaryData"][_BACKUP_KEY])))
    except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise TakeoverError(f"ConfigMap {BACKUP}: cannot be read ({type(error).__name__})") from None
    return kept


def _rights(rules: Sequence[Json], does: str) -> Step:
    """A role's rules, each once."""
    unique = list({orjson.dumps(rule, option=orjson.OPT_SORT_KEYS): rule for rule in rules}.values())
    return Step(does, "patch", CLUSTER_ROLES, rbac.CLUSTER_ROLE, body={"rules": unique})


def _applied(manifest: Json, namespace: str, does: str) -> Step:
    body = copy.deepcopy(manifest)
    resource = _BY_KIND.get(body["kind"], CUSTOMRESOURCEDEFINITIONS)
    if resource is CUSTOMRESOURCEDEFINITIONS:
        _lead_to(body, namespace, "")
    return Step(does, "apply", resource, body["metadata"]["name"], body["metadata"].get("namespace", ""), body)


def _deployment(deployment: Json, namespace: str, image: str) -> Step:
    """Its arguments, environment, probes and placement stay."""
    container = _container(deployment)
    arguments = [argument for argument in container.get("args") or [] if argument != "manager"]
    changed = {
        "name": container["name"],
        "image": image,
        "command": ["pykruise", "manager"],
        "args": arguments,
        "resources": {**_RESOURCES, "$patch": "replace"},
    }
    body = {
        "metadata": {"uid": deployment["metadata"]["uid"]},
        "spec": {
            "strategy": {**_ROLLING, "$patch": "replace"},
            "template": {"spec": {"containers": [changed]}},
        },
    }
    return Step(f"run {image}", "patch", DEPLOYMENTS, DEPLOYMENT, namespace, body)


def _definition(kind: KindDefinition, seen: Installed) -> Step:
    body = crd.manifest(kind)
    _lead_to(body, seen.namespace, _bundle(seen.configurations.values()))
    return Step("our fields and descriptions", "apply", CUSTOMRESOURCEDEFINITIONS, kind.crd_name, "", body)


def _lead_to(definition: Json, namespace: str, bundle: str) -> None:
    conversion = definition["spec"].get("conversion")
    if conversion is not None:
        config = conversion["webhook"]["clientConfig"]
        config["service"]["namespace"] = namespace
        if bundle:
            config["caBundle"] = bundle


def _bundle(configurations: Iterable[Mapping[str, Any]]) -> str:
    """Whom the API server trusts for webhooks already; both managers use the certificates of one Secret."""
    for configuration in configurations:
        for entry in configuration.get("webhooks") or []:
            if bundle := (entry.get("clientConfig") or {}).get("caBundle"):
                return str(bundle)
    return ""


# ---- and back


def _deployment_back(live: Json, before: Json, namespace: str, image: str) -> Step:
    """With a surge whatever it had, since a gap would refuse Pods."""
    body = {**live, "spec": {**before["spec"], "strategy": _ROLLING}}
    body.pop("status", None)
    return Step(f"run {image} again", "replace", DEPLOYMENTS, DEPLOYMENT, namespace, body)


def _definition_back(live: Json, spec: Json) -> Step:
    """The schemas that were there. Who converts may have another authority by now."""
    wanted = copy.deepcopy(spec)
    now = ((live["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    config = ((wanted.get("conversion") or {}).get("webhook") or {}).get("clientConfig")
    if config is not None and now.get("caBundle"):
        config["caBundle"] = now["caBundle"]
    body = {**live, "spec": wanted}
    body.pop("status", None)
    name = live["metadata"]["name"]
    return Step("its fields and descriptions", "replace", CUSTOMRESOURCEDEFINITIONS, name, "", body)


def _configuration_back(resource: Resource, live: Json, before: Json) -> Step:
    bundle = _bundle([live])
    entries = [
        {**entry, "clientConfig": {**(entry.get("clientConfig") or {}), **({"caBundle": bundle} if bundle else {})}}
        for entry in before["webhooks"]
    ]
    # Without a resourceVersion: its own manager writes the same meanwhile.
    return Step("its webhooks", "patch", resource, live["metadata"]["name"], "", {"webhooks": entries})


def in_scope(definition: Mapping[str, Any]) -> bool:
    """Whether a CustomResourceDefinition is of OpenKruise's groups."""
    return definition["spec"]["group"] in _GROUPS
