"""The installation found in a cluster, the steps of a takeover, and their progress. Pure."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api import names
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    Resource,
)
from app.manager import permissions

DAEMON: Final = "kruise-daemon"
#: ConfigMap that keeps the previous installation until it is restored.
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
BY_KIND: Final = {one.kind: one for one in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)}
CONFIGURATIONS: Final = (
    (MUTATINGWEBHOOKCONFIGURATIONS, MUTATING_NAME),
    (VALIDATINGWEBHOOKCONFIGURATIONS, VALIDATING_NAME),
)
_CONTAINER: Final = "manager"
ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

Json = dict[str, Any]


class TakeoverError(Exception):
    """The takeover is not possible. The message gives the reason and the fix."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The installation found in a cluster."""

    namespace: str
    deployment: Json | None = None
    daemon: Json | None = None
    #: Definitions in OpenKruise's groups, by name.
    definitions: Mapping[str, Json] = field(default_factory=dict)
    #: Definition → number of objects.
    objects: Mapping[str, int] = field(default_factory=dict)
    #: Webhook configurations by name.
    configurations: Mapping[str, Json] = field(default_factory=dict)
    cluster_role: Json | None = None
    #: Backup of an earlier takeover.
    backup: Json | None = None
    #: Our roles and bindings, by kind and name.
    granted: Mapping[tuple[str, str], Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One write, or waiting until a rollout is complete."""

    does: str
    action: Literal["create", "apply", "patch", "replace", "delete", "wait"]
    resource: Resource
    name: str
    namespace: str = ""
    body: Json = field(default_factory=dict)
    #: Whether the role must have exactly these rules.
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Findings, blockers and steps of a takeover."""

    facts: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


def container_of(deployment: Mapping[str, Any]) -> Json:
    """Return the manager's container of a Deployment."""
    containers: list[Json] = deployment["spec"]["template"]["spec"]["containers"]
    return next((one for one in containers if one["name"] == _CONTAINER), containers[0])


def unpacked(backup: Mapping[str, Any]) -> Json:
    """Return the contents of a backup. Raises TakeoverError."""
    try:
        kept: Json = orjson.loads(_inflated(base64.b64decode(backup["binaryData"][BACKUP_KEY])))
        parts = (kept["deployment"]["spec"], kept["clusterRole"]["rules"], kept["definitions"], kept["configurations"])
        container_of(kept["deployment"])
    except (KeyError, IndexError, TypeError, ValueError, EOFError, zlib.error) as error:
        raise TakeoverError(f"ConfigMap {BACKUP}: cannot be read ({type(error).__name__})") from None
    if list(map(type, parts)) != [dict, list, dict, dict]:
        raise TakeoverError(f"ConfigMap {BACKUP}: holds no backup of a takeover")
    return kept


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    text = inflater.decompress(packed, _MAX_UNPACKED_BYTES)
    if not inflater.eof:
        raise EOFError
    return text


def rights(rules: Sequence[Json], does: str, *, exact: bool = False) -> Step:
    """Return the step that gives a role these rules, without duplicates."""
    return Step(
        does,
        "patch",
        CLUSTER_ROLES,
        permissions.CLUSTER_ROLE,
        body={"rules": list(by_text(rules).values())},
        exact=exact,
    )


def by_text(rules: Iterable[Json]) -> dict[bytes, Json]:
    """Return the rules by their JSON."""
    return {orjson.dumps(rule, option=orjson.OPT_SORT_KEYS): rule for rule in rules}


def bundle_of(configurations: Iterable[Mapping[str, Any]]) -> str:
    """Return the CA bundle already trusted for webhooks; both managers use the certificates of one Secret."""
    for configuration in configurations:
        for entry in configuration.get("webhooks") or []:
            if bundle := (entry.get("clientConfig") or {}).get("caBundle"):
                return str(bundle)
    return ""


def in_scope(definition: Mapping[str, Any]) -> bool:
    """Return whether a CustomResourceDefinition belongs to OpenKruise's groups."""
    return definition["spec"]["group"] in _GROUPS


#: Command of our Deployment.
COMMAND: Final = ("pykruise", "manager")


def runs_ours(deployment: Mapping[str, Any]) -> bool:
    """Return whether the Deployment already runs our manager."""
    return tuple(container_of(deployment).get("command") or ()) == COMMAND


def remaining(steps: Sequence[Step], seen: Installed) -> tuple[Step, ...]:
    """Return the steps that are not done, in order."""
    deployment = seen.deployment or {}
    changed = all(_is_done(step, seen) for step in steps if step.resource is DEPLOYMENTS and step.action == "patch")
    only_ours = changed and is_rolled_out(deployment)
    ours = next((step for step in steps if step.exact), None)
    left = []
    for step in steps:
        if step.action == "wait":
            done = only_ours
        elif step.resource is CLUSTER_ROLES and only_ours and ours is not None and not step.exact:
            # Objects that only OpenKruise's manager needed may already be deleted.
            done = _missing(ours, seen) == 0
        else:
            done = _is_done(step, seen)
        if not done:
            left.append(step)
    return tuple(left)


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Return whether all replicas run the latest template and are available."""
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
        return seen.backup is not None
    if step.resource is CUSTOMRESOURCEDEFINITIONS:
        return _covers(seen.definitions.get(step.name), step.body)
    if step.resource is DEPLOYMENTS:
        wanted = container_of(step.body)
        running = container_of(seen.deployment or step.body)
        return all((running.get(name) or []) == wanted[name] for name in ("image", "command", "args"))
    if step.resource is CLUSTER_ROLES:
        return _missing(step, seen) == 0 and (not step.exact or _held(seen) == by_text(step.body["rules"]).keys())
    return _covers(seen.granted.get((step.resource.kind, step.name)), step.body)


def _held(seen: Installed) -> set[bytes]:
    return set(by_text((seen.cluster_role or {}).get("rules") or []))


def _missing(step: Step, seen: Installed) -> int:
    return len(by_text(step.body["rules"]).keys() - _held(seen))


def _covers(live: Any, wanted: Any) -> bool:
    """Return whether the live object has all desired fields; the API server adds defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_covers, live, wanted))
    return bool(live == wanted)
