"""The installation found in a cluster, the steps of a takeover, and their progress. Pure."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from app.api import names
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    Resource,
)
from app.manager import rbac

DAEMON: Final = "kruise-daemon"
DAEMON_ROLE: Final = "kruise-daemon-role"
DAEMON_PULL_ROLE: Final = "kruise-daemon-secret-role"
#: ConfigMap that stores the previous installation until it is restored.
BACKUP: Final = "kruise-takeover"
BACKUP_KEY: Final = "before.json.gz"
#: Maximum size of an unpacked backup.
_MAX_UNPACKED_BYTES: Final = 64 << 20
_GROUPS: Final = (names.APPS_GROUP, names.POLICY_GROUP)
_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
BY_KIND: Final = {one.kind: one for one in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES)}
_CONTAINERS: Final = ("manager", "daemon")
ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

Json = dict[str, Any]


class TakeoverError(Exception):
    """The takeover is not possible. The message gives the reason and the fix."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The Pod of a node agent."""

    node: str
    pod: str
    uid: str
    #: Whether the Pod has the newest template of its DaemonSet and is not being deleted.
    newest: bool
    ready: bool
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """The installation found in a cluster."""

    namespace: str
    deployment: Json | None = None
    daemon: Json | None = None
    #: CRDs in OpenKruise's groups, by name.
    definitions: Mapping[str, Json] = field(default_factory=dict)
    #: CRD → number of objects.
    objects: Mapping[str, int] = field(default_factory=dict)
    #: Webhook configurations by name.
    configurations: Mapping[str, Json] = field(default_factory=dict)
    cluster_role: Json | None = None
    agent_role: Json | None = None
    #: Node agents, one per node.
    agents: Sequence[Agent] = ()
    #: Backup of an earlier takeover.
    backup: Json | None = None
    #: Our roles and bindings, and the namespace of pull secrets, by kind and name.
    granted: Mapping[tuple[str, str], Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One write, a wait for a rollout, or the replacement of the node agents one by one."""

    does: str
    action: Literal["create", "apply", "patch", "replace", "delete", "wait", "hand over"]
    resource: Resource
    name: str
    namespace: str = ""
    body: Json = field(default_factory=dict)
    #: Whether the role must have exactly the rules in ``body``.
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Findings, blockers and steps of a takeover."""

    facts: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


def container_of(workload: Mapping[str, Any]) -> Json:
    """Return the container of the manager's Deployment or of the agents' DaemonSet."""
    containers: list[Json] = workload["spec"]["template"]["spec"]["containers"]
    return next((one for one in containers if one["name"] in _CONTAINERS), containers[0])


def unpacked(backup: Mapping[str, Any]) -> Json:
    """Return the contents of a backup. Raises TakeoverError."""
    try:
        kept: Json = orjson.loads(_inflated(base64.b64decode(backup["binaryData"][BACKUP_KEY])))
        parts = (kept["deployment"]["spec"], kept["clusterRole"]["rules"], kept["definitions"], kept["configurations"])
        container_of(kept["deployment"])
        if "agents" in kept:
            container_of(kept["agents"]["daemonSet"])
            by_text(kept["agents"]["clusterRole"]["rules"])
    except (KeyError, IndexError, TypeError, ValueError, EOFError, zlib.error) as error:
        raise TakeoverError(f"ConfigMap {BACKUP}: cannot be read ({type(error).__name__})") from None
    if list(map(type, parts)) != [dict, list, dict, dict]:
        raise TakeoverError(f"ConfigMap {BACKUP}: contains no backup of a takeover")
    return kept


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    text = inflater.decompress(packed, _MAX_UNPACKED_BYTES)
    if not inflater.eof:
        raise EOFError
    return text


def rights(rules: Sequence[Json], does: str, role: str = rbac.CLUSTER_ROLE, *, exact: bool = False) -> Step:
    """Return the step that sets a role's rules, without duplicates."""
    return Step(does, "patch", CLUSTER_ROLES, role, body={"rules": list(by_text(rules).values())}, exact=exact)


def by_text(rules: Iterable[Json]) -> dict[bytes, Json]:
    """Return the rules, keyed by their JSON."""
    return {orjson.dumps(rule, option=orjson.OPT_SORT_KEYS): rule for rule in rules}


def bundle_of(configurations: Iterable[Mapping[str, Any]]) -> str:
    """Return the CA bundle in the webhook configurations; both managers use the certificates in the same Secret."""
    for configuration in configurations:
        for entry in configuration.get("webhooks") or []:
            if bundle := (entry.get("clientConfig") or {}).get("caBundle"):
                return str(bundle)
    return ""


def in_scope(definition: Mapping[str, Any]) -> bool:
    """Return whether a CustomResourceDefinition belongs to OpenKruise's groups."""
    return definition["spec"]["group"] in _GROUPS


#: Commands of our Deployment and our DaemonSet.
COMMAND: Final = ("pykruise", "manager")
AGENT_COMMAND: Final = ("pykruise", "daemon")


def runs_ours(workload: Mapping[str, Any] | None) -> bool:
    """Return whether the Deployment or DaemonSet already runs pykruise."""
    return workload is not None and tuple(container_of(workload).get("command") or ()) in (COMMAND, AGENT_COMMAND)


def remaining(steps: Sequence[Step], seen: Installed) -> tuple[Step, ...]:
    """Return the steps that are not done, in order."""
    changed = {
        step.resource: _is_done(step, seen)
        for step in steps
        if step.resource in (DEPLOYMENTS, DAEMONSETS) and "template" in step.body.get("spec", {})
    }
    #: ClusterRole → whether every replica or agent that uses it is ours.
    only_ours = {
        rbac.CLUSTER_ROLE: changed.get(DEPLOYMENTS, True) and is_rolled_out(seen.deployment),
        DAEMON_ROLE: changed.get(DAEMONSETS, True) and not agents_left(seen.agents),
    }
    exact = {step.name: step for step in steps if step.exact}
    left = []
    for step in steps:
        if step.action == "wait":
            done = only_ours[rbac.CLUSTER_ROLE]
        elif step.action == "hand over":
            done = only_ours[DAEMON_ROLE]
        elif step.resource is CLUSTER_ROLES and step.name in exact and not step.exact and only_ours[step.name]:
            # Permissions that only OpenKruise's program needed may already have been removed.
            done = _missing(exact[step.name], seen) == 0
        else:
            done = _is_done(step, seen)
        if not done:
            left.append(step)
    return tuple(left)


def agents_left(agents: Iterable[Agent]) -> list[Agent]:
    """Return the agents that have not been replaced, or whose replacement is not ready, sorted by node."""
    return sorted((one for one in agents if not (one.newest and one.ready)), key=lambda one: one.node)


def is_rolled_out(deployment: Mapping[str, Any] | None) -> bool:
    """Return whether all replicas run the latest template and are available."""
    if deployment is None:
        return False
    status = deployment.get("status") or {}
    updated, wanted, *rest = replica_counts(deployment)
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return bool(seen) and [updated, *rest] == [wanted] * 3


def replica_counts(deployment: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return the numbers of updated, desired, current and available replicas."""
    status = deployment.get("status") or {}
    updated, there, available = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return updated, deployment["spec"].get("replicas", 1), there, available


def _is_done(step: Step, seen: Installed) -> bool:
    if step.resource is CONFIGMAPS:
        return seen.backup is not None and (step.action == "create" or _covers(seen.backup, step.body))
    if step.resource is CUSTOMRESOURCEDEFINITIONS:
        return _covers(seen.definitions.get(step.name), step.body)
    if step.resource in (DEPLOYMENTS, DAEMONSETS):
        live = (seen.deployment if step.resource is DEPLOYMENTS else seen.daemon) or step.body
        spec = step.body["spec"]
        if "template" not in spec:
            strategy = {key: value for key, value in spec["updateStrategy"].items() if key != "$patch"}
            return _covers(live["spec"].get("updateStrategy"), strategy)
        wanted, running = container_of(step.body), container_of(live)
        return all((running.get(name) or []) == wanted[name] for name in ("image", "command", "args"))
    if step.resource is CLUSTER_ROLES and step.action == "patch":
        held = _held(step.name, seen)
        return _missing(step, seen) == 0 and (not step.exact or held == by_text(step.body["rules"]).keys())
    return _covers(seen.granted.get((step.resource.kind, step.name)), step.body)


def _held(role: str, seen: Installed) -> set[bytes]:
    found = seen.agent_role if role == DAEMON_ROLE else seen.cluster_role
    return set(by_text((found or {}).get("rules") or []))


def _missing(step: Step, seen: Installed) -> int:
    return len(by_text(step.body["rules"]).keys() - _held(step.name, seen))


def _covers(live: Any, wanted: Any) -> bool:
    """Return whether the live object has all desired fields; others are ignored, since the API server sets defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_covers, live, wanted))
    return bool(live == wanted)
