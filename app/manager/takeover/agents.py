"""Steps that hand over the node agents, and give them back. Pure. [MGR-162]

The DaemonSet keeps its name and gets our template and the update strategy OnDelete, so that the old agents keep
running. The Pods are then replaced node by node. Nodes whose agent is pulling an image or restarting a container come
last. Agents do not own users' containers, so those keep running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.api import names
from app.daemon.flags import UsageError
from app.daemon.image_plan import PULLING
from app.kube.resources import DAEMONSETS
from app.kube.text import first_of
from app.manager import rbac
from app.manager.gates import FeatureGateError
from app.manager.takeover import arguments
from app.manager.takeover.model import (
    AGENT_COMMAND,
    BY_KIND,
    DAEMON,
    DAEMON_PULL_ROLE,
    DAEMON_ROLE,
    Agent,
    Installed,
    Json,
    Step,
    TakeoverError,
    agents_left,
    container_of,
    rights,
    runs_ours,
)

#: A node gets a new Pod only after its old one has been deleted.
_ON_DELETE: Final[Json] = {"type": "OnDelete", "$patch": "replace"}
#: As in the chart: the agent needs root for the runtime's socket, but no capability.
_SECURITY: Final[Json] = {
    "runAsUser": 0,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NODE_NAME: Final[Json] = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
_SHOWN: Final = 10
_REVISION: Final = "controller-revision-hash"


def agents_of(daemon: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], revision: str) -> tuple[Agent, ...]:
    """Return the node agents of a DaemonSet. ``revision`` is the hash of its newest template, empty while unknown."""
    found = []
    for pod in pods:
        metadata = pod["metadata"]
        owners = {one["uid"] for one in metadata.get("ownerReferences") or ()}
        node = pod["spec"].get("nodeName", "")
        if not node or daemon["metadata"]["uid"] not in owners:
            continue
        conditions = (pod.get("status") or {}).get("conditions") or ()
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        newest = revision != "" and (metadata.get("labels") or {}).get(_REVISION) == revision
        leaving = "deletionTimestamp" in metadata
        found.append(Agent(node, metadata["name"], metadata["uid"], newest and not leaving, ready, leaving))
    return tuple(found)


def newest_revision(daemon: Mapping[str, Any], revisions: Iterable[Mapping[str, Any]]) -> str:
    """Return the hash of the DaemonSet's newest template; empty until its controller has seen that template."""
    if (daemon.get("status") or {}).get("observedGeneration", 0) < daemon["metadata"].get("generation", 0):
        return ""
    uid = daemon["metadata"]["uid"]
    own = [
        one
        for one in revisions
        if uid in {owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()}
        and _REVISION in (one["metadata"].get("labels") or {})
    ]
    newest = max(own, key=lambda one: int(one["revision"]), default=None)
    return "" if newest is None else str(newest["metadata"]["labels"][_REVISION])


def work_of(node_image: Mapping[str, Any] | None, requests: Iterable[Mapping[str, Any]]) -> str:
    """Return the agent's work that must not be interrupted; empty if there is none."""
    statuses = ((node_image or {}).get("status") or {}).get("imageStatuses") or {}
    pulls = [
        f"{image}:{tag['tag']}"
        for image, status in sorted(statuses.items())
        for tag in status.get("tags") or ()
        if tag.get("phase") == PULLING
    ]
    restarts = [
        f"{one['metadata']['namespace']}/{one['spec'].get('podName', '')}"
        for one in requests
        if (one.get("status") or {}).get("phase") == "Recreating"
    ]
    parts = (("pulls", pulls), ("restarts containers of", restarts))
    return " and ".join(f"{verb} {first_of(found, _SHOWN)}" for verb, found in parts if found)


def kept_agents(seen: Installed, kept: Mapping[str, Any] | None) -> Json:
    """Return the agents' backup: the one from an earlier takeover, unless other agents have since been installed.
    Raises TakeoverError."""
    if seen.daemon is None or seen.agent_role is None:
        what = f"DaemonSet {seen.namespace}/{DAEMON}" if seen.daemon is None else f"ClusterRole {DAEMON_ROLE}"
        raise TakeoverError(f"--agents: {what}: not found, so there are no node agents to hand over")
    before: Json | None = (kept or {}).get("agents")
    spec = seen.daemon["spec"]
    if before is not None and (runs_ours(seen.daemon) or before["daemonSet"]["spec"]["template"] == spec["template"]):
        return before
    if runs_ours(seen.daemon):
        raise TakeoverError(f"--agents: DaemonSet {seen.namespace}/{DAEMON}: already runs pykruise's agent")
    return {"daemonSet": {"spec": spec}, "clusterRole": {"rules": seen.agent_role.get("rules") or []}}


def handover(seen: Installed, before: Mapping[str, Any], image: str) -> tuple[Step, ...]:
    """Return the steps that hand the agents over, including completed ones. Raises TakeoverError."""
    daemon = seen.daemon or {}
    account = daemon["spec"]["template"]["spec"].get("serviceAccountName") or DAEMON
    made = rbac.roles(rbac.AGENT_RULES, seen.namespace, account, DAEMON_ROLE, DAEMON_PULL_ROLE)
    own = next(one for one in made if one["kind"] == "ClusterRole")["rules"]
    elsewhere = names.DAEMON_CONFIG_NAMESPACE
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}}
    steps = [rights([*before["clusterRole"]["rules"], *own], "add the permissions of pykruise's agent", DAEMON_ROLE)]
    for one in (namespace, *(one for one in made if one["metadata"].get("namespace") == elsewhere)):
        kind, name = one["kind"], one["metadata"]["name"]
        if (kind, name) not in seen.granted:
            place = one["metadata"].get("namespace", "")
            steps.append(Step("let agents read copies of pull secrets", "create", BY_KIND[kind], name, place, one))
    template = _template(daemon, image)
    return (
        *steps,
        Step(f"let new agents run {image}", "patch", DAEMONSETS, DAEMON, seen.namespace, template),
        _replaced(seen, runs_ours(daemon) and container_of(daemon).get("image") == image),
        _strategy(before, seen.namespace),
        rights(own, "remove the permissions that only OpenKruise's agent needed", DAEMON_ROLE, exact=True),
    )


def handback(seen: Installed, before: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the steps that give the agents back."""
    daemon, role = seen.daemon or {}, seen.agent_role or {}
    spec: Json = before["daemonSet"]["spec"]
    body = {**daemon, "spec": {**spec, "updateStrategy": {"type": "OnDelete"}}}
    body.pop("status", None)
    image = container_of(before["daemonSet"]).get("image", "")
    rules = before["clusterRole"]["rules"]
    return (
        rights([*rules, *(role.get("rules") or [])], "add the permissions of OpenKruise's agent", DAEMON_ROLE),
        Step(f"let new agents run {image}", "replace", DAEMONSETS, DAEMON, seen.namespace, body),
        _replaced(seen, spec["template"] == daemon["spec"]["template"]),
        _strategy(before, seen.namespace),
        rights(rules, "restore the original permissions of OpenKruise's agent", DAEMON_ROLE),
    )


def _replaced(seen: Installed, begun: bool) -> Step:
    nodes = [one.node for one in (agents_left(seen.agents) if begun else sorted(seen.agents, key=lambda one: one.node))]
    many = f"the agents of {len(nodes)} nodes" if len(nodes) != 1 else "the agent of 1 node"
    names = first_of(nodes, _SHOWN)
    does = f"replace {many}, one node at a time: {names}" if names else "wait until all agents are ready"
    return Step(does, "hand over", DAEMONSETS, DAEMON, seen.namespace)


def _strategy(before: Mapping[str, Any], namespace: str) -> Step:
    strategy = {**(before["daemonSet"]["spec"].get("updateStrategy") or {"type": "RollingUpdate"}), "$patch": "replace"}
    body = {"spec": {"updateStrategy": strategy}}
    return Step(f"restore the update strategy ({strategy['type']})", "patch", DAEMONSETS, DAEMON, namespace, body)


def _template(daemon: Mapping[str, Any], image: str) -> Json:
    """Return the patch for the DaemonSet. Arguments, environment, mounts, resources and placement are kept."""
    container = container_of(daemon)
    try:
        given = arguments.of_agent(container)
        port = arguments.agent_port(container)
    except (UsageError, FeatureGateError) as error:
        raise TakeoverError(f"--agents: arguments of the DaemonSet: {error}") from None
    environment = [{"name": "MALLOC_ARENA_MAX", "value": "1"}]
    if not any(one["name"] == _NODE_NAME["name"] for one in container.get("env") or ()):
        environment.append(_NODE_NAME)
    changed = {
        "name": container["name"],
        "image": image,
        "command": [*AGENT_COMMAND],
        "args": (container.get("args") or []) if runs_ours(daemon) else [*given.arguments],
        "env": environment,
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 5},
        "securityContext": _SECURITY,
    }
    for field in ("readinessProbe", "securityContext"):
        if container.get(field):  # the API server drops the field if there is nothing to replace
            changed[field] = {**changed[field], "$patch": "replace"}
    return {
        "metadata": {"uid": daemon["metadata"]["uid"]},
        "spec": {"updateStrategy": _ON_DELETE, "template": {"spec": {"containers": [changed]}}},
    }
