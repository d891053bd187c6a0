"""Plans for a takeover and its reversal. Pure."""

from __future__ import annotations

import base64
import copy
import functools
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from app.admission.configurations import CONFIGURATIONS
from app.admission.policies import ALWAYS_EXCLUDED
from app.api import crd, names
from app.api.kind import KindDefinition
from app.kube.admission import PolicyRule
from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, DEPLOYMENTS, Resource
from app.manager import rbac
from app.manager.flags import FlagError, Flags, parse_flags
from app.manager.gates import FeatureGateError, parse_gates
from app.manager.takeover import agents as node_agents
from app.manager.takeover import arguments
from app.manager.takeover.model import (
    BACKUP,
    BACKUP_KEY,
    BY_KIND,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    COMMAND,
    DAEMON,
    ROLE_BINDINGS,
    ROLES,
    ROLLING,
    Installed,
    Json,
    Plan,
    Step,
    TakeoverError,
    bundle_of,
    container_of,
    remaining,
    rights,
    runs_ours,
    unpacked,
)
from app.manager.uninstall import DEPLOYMENT

#: Maximum size of a packed backup. A ConfigMap may be at most 1 MiB in size, including base64 encoding and metadata.
MAX_BACKUP_BYTES: Final = 700_000
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
_OF_WEBHOOKS: Final = "docs/installing.md, Webhooks"
_POD_WEBHOOKS: Final = ("mpod.kb.io", "vpod.kb.io", "vpodeviction.kb.io")
#: Value of the label control-plane on OpenKruise's own namespace.
_OWN_LABEL: Final = ["openkruise"]
_READING: Final = ("get", "list", "watch")
#: As in the chart. The memory is for caches, and there is no CPU limit.
_RESOURCES: Final = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def takeover_plan(
    seen: Installed,
    image: str,
    kinds: Sequence[KindDefinition],
    rules: Iterable[PolicyRule],
    *,
    agents: bool = False,
    leave_unserved: bool = False,
) -> Plan:
    """Return the plan to replace OpenKruise's manager with ours from ``image``, without steps already done.

    ``kinds`` are those served here, ``rules`` the permissions of our manager. With ``agents``, or if the backup
    contains them, the node agents are replaced too. With ``leave_unserved``, objects of other kinds do not block the
    takeover. Raises TakeoverError.
    """
    if seen.deployment is None:
        where = f"Deployment {seen.namespace}/{DEPLOYMENT}"
        return Plan(blockers=(f"{where}: not found, so there is nothing to take over; see docs/installing.md",))
    kept = None if seen.backup is None else unpacked(seen.backup)
    agents = agents or "agents" in (kept or {})
    facts: list[str] = []
    blockers: list[str] = []
    warnings: list[str] = []
    container = container_of(seen.deployment)
    facts.append(f"Deployment {seen.namespace}/{DEPLOYMENT} runs {container.get('image', 'no image')}")
    _judge_arguments(seen, container, facts, blockers, warnings)
    _judge_kinds(seen, kinds, facts, blockers, warnings, leave_unserved=leave_unserved)
    _judge_webhooks(seen, warnings)
    _judge_rest(seen, facts, warnings, agents=agents)
    if kept is not None and runs_ours(seen.deployment):
        image = image or container["image"]
    elif kept is not None:
        _judge_image(seen.namespace, container.get("image", ""), kept, blockers)
    if not image:
        blockers.append("--image: an image of pykruise is required")
    if seen.cluster_role is None:
        blockers.append(
            f"ClusterRole {rbac.CLUSTER_ROLE}: not found; this is not an installation of OpenKruise's chart"
        )
    of_agents: Json | None = None
    try:
        if agents:
            of_agents = node_agents.kept_agents(seen, kept)
            node_agents.handover(seen, of_agents, image)  # raises if the arguments are not accepted
    except TakeoverError as error:
        blockers.append(str(error))
    if blockers or seen.cluster_role is None:
        return Plan(tuple(facts), tuple(blockers), tuple(warnings))
    before = kept or _before(seen, seen.deployment, seen.cluster_role, kinds)
    if of_agents is not None:
        before = {**before, "agents": of_agents}
    planned = functools.partial(_steps, seen, seen.deployment, before, kinds=kinds, rules=tuple(rules), kept=kept)
    steps = planned(image=image)
    if kept is None:
        return Plan(tuple(facts), (), tuple(warnings), steps)
    undone = remaining(planned(image=container["image"]), seen)
    if runs_ours(seen.deployment) and all(step.action == "wait" for step in undone):
        return _taken_over_already(seen.namespace, container["image"], image)
    left = remaining(steps, seen)
    facts.append(f"a takeover is in progress: {len(steps) - len(left)} of its {len(steps)} steps are done")
    return Plan(tuple(facts), (), tuple(warnings), left)


def _taken_over_already(namespace: str, runs: str, image: str) -> Plan:
    already = f"this cluster is already taken over and runs {runs}"
    if image == runs:
        return Plan(facts=(already,))
    way_out = f"kubectl set image -n {namespace} deployment/{DEPLOYMENT} '*={image}'"
    return Plan(blockers=(f"--image: {already}; {way_out} changes the image",))


# ---- findings


def _judge_arguments(
    seen: Installed, container: Json, facts: list[str], blockers: list[str], warnings: list[str]
) -> None:
    flags: Flags | None = None
    try:
        kept = arguments.of_manager(container, seen.configurations.values())
        flags = parse_flags(kept.arguments)
        gates = parse_gates(flags.text("feature-gates"))
    except (FlagError, FeatureGateError) as error:
        blockers.append(f"arguments of the Deployment: {error}")
        return
    meant = sorted(flags.given - set(flags.without_meaning))
    facts.append("flags that keep their meaning: " + (", ".join(f"--{name}" for name in meant) or "none are given"))
    if not runs_ours(seen.deployment):
        facts.append("feature gates that stay on: " + ", ".join(name for name, on in kept.gates.items() if on))
        if kept.added:
            added = ", ".join(f"{name}={str(on).lower()}" for name, on in kept.added.items())
            facts.append(f"feature gates whose default differs here, written into --feature-gates: {added}")
    if kept.text:
        escaped = kept.text.replace(",", "\\,")
        facts.append(f"to keep these gates with pykruise's chart later: --set 'featureGates={escaped}'")
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
            text = f"{kind}: {count} objects, not served here: neither reconciled nor validated"
            if (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook":
                text += ", and readable only in the storage version"
            if leave_unserved:
                warnings.append(text)
            else:
                blockers.append(f"{text}; delete them, or keep them with --leave-unserved")
        else:
            facts.append(f"{kind}: not served here, and not used")


def _judge_image(namespace: str, image: str, kept: Json, blockers: list[str]) -> None:
    """Add a blocker if the image in the backup is not the running one."""
    was = container_of(kept["deployment"]).get("image", "")
    if image != was:
        blockers.append(
            f"ConfigMap {namespace}/{BACKUP}: holds a Deployment with {was}, from a takeover that began before "
            "the image was changed; --back restores it; to start over, delete the ConfigMap"
        )


def _judge_webhooks(seen: Installed, warnings: list[str]) -> None:
    """Add warnings about webhooks that ignore failures or exempt namespaces, if ours will not do the same. [PW-3]"""
    if runs_ours(seen.deployment):
        return
    entries = [one for webhooks in seen.configurations.values() for one in webhooks.get("webhooks") or ()]
    ignoring = [entry["name"] for entry in entries if entry.get("failurePolicy") == "Ignore"]
    if ignoring:
        warnings.append(f"failurePolicy Ignore becomes Fail: {', '.join(ignoring)}. To keep it: {_OF_WEBHOOKS}")
    ours = {*ALWAYS_EXCLUDED, seen.namespace}
    found: dict[str, None] = {}
    for entry in entries:
        selector = entry.get("namespaceSelector") or {}
        for one in selector.get("matchExpressions") or () if entry["name"] in _POD_WEBHOOKS else ():
            key, operator, values = one["key"], one["operator"], one.get("values") or []
            covered = (key == names.NAMESPACE_NAME and ours.issuperset(values)) or values == _OWN_LABEL
            if not (operator == "NotIn" and covered):
                found[f"{key} {operator} {', '.join(values)}".rstrip()] = None
    if found:
        warnings.append(
            f"OpenKruise reviews Pods only in namespaces with {'; '.join(found)}; pykruise in all but "
            f"{', '.join(sorted(ours))}. To exempt more: {_OF_WEBHOOKS}"
        )


def _judge_rest(seen: Installed, facts: list[str], warnings: list[str], *, agents: bool) -> None:
    if seen.daemon is not None and not agents:
        facts.append(f"DaemonSet {seen.namespace}/{DAEMON}: unchanged; add --agents to replace the node agents too")
    elif seen.daemon is not None:
        image = container_of(seen.daemon).get("image", "no image")
        facts.append(f"DaemonSet {seen.namespace}/{DAEMON} runs {image} on {len(seen.agents)} nodes")
    deployment = seen.deployment or {}
    release = (deployment["metadata"].get("annotations") or {}).get(_HELM_RELEASE)
    if release:
        warnings.append(
            f"Helm release {release} is not updated: do not upgrade or uninstall it (uninstalling deletes the CRDs "
            "and all their objects); docs/moving-over.md explains how pykruise's chart replaces it"
        )


# ---- the steps


def _steps(
    seen: Installed,
    deployment: Json,
    before: Json,
    image: str,
    kinds: Sequence[KindDefinition],
    rules: tuple[PolicyRule, ...],
    kept: Mapping[str, Any] | None,
) -> tuple[Step, ...]:
    """Return all steps, including completed ones. ``before`` is the backup of the installation, ``kept`` that of an
    earlier takeover."""
    had = before["definitions"]
    # OpenKruise has these permissions cluster-wide, and the namespaces may not exist yet. Our chart later narrows the
    # permissions.
    everywhere = (replace(rule, namespace="") for rule in rules)
    roles = rbac.roles(everywhere, seen.namespace, rbac.SERVICE_ACCOUNT, rbac.CLUSTER_ROLE, rbac.NAMESPACED_ROLE)
    cluster_role = next(one for one in roles if one["kind"] == "ClusterRole")
    steps = [
        Step("save the installation", "create", CONFIGMAPS, BACKUP, seen.namespace, _packed(before, seen.namespace)),
        rights([*before["clusterRole"]["rules"], *cluster_role["rules"]], "add pykruise's permissions to OpenKruise's"),
    ]
    steps += [
        _applied(one, seen.namespace, "add pykruise's permissions") for one in roles if one["kind"] != "ClusterRole"
    ]
    steps += [
        _applied(one, seen.namespace, "let operators grant access to other workloads")
        for one in (
            rbac.extension_role(),
            rbac.extension_binding(rbac.SERVICE_ACCOUNT, seen.namespace),
        )
    ]
    steps += [
        _applied(crd.manifest(kind), seen.namespace, "install a missing CRD")
        for kind in kinds
        if kind.crd_name not in had
    ]
    steps += [
        _deployment(seen, deployment, image),
        Step(f"wait until only {image} runs", "wait", DEPLOYMENTS, DEPLOYMENT, seen.namespace),
    ]
    steps += [_definition(kind, seen) for kind in kinds if kind.crd_name in had]
    left = [*cluster_role["rules"], *rights_to_other_kinds(before["clusterRole"]["rules"])]
    steps.append(rights(left, "remove the permissions that only OpenKruise needed", exact=True))
    if "agents" not in before:
        return tuple(steps)
    if kept is not None and kept.get("agents") != before["agents"]:
        body = _packed(before, seen.namespace)
        steps.append(Step("add the node agents to the backup", "patch", CONFIGMAPS, BACKUP, seen.namespace, body))
    return (*steps, *node_agents.handover(seen, before["agents"], image))


def rights_to_other_kinds(rules: Iterable[Json]) -> Iterator[Json]:
    """Yield the permissions to read scale subresources and the kinds of other projects, so that budgets and spreads for
    workloads of such kinds stay in effect. [MGR-161]"""
    for rule in rules:
        verbs = [verb for verb in rule.get("verbs") or () if verb in _READING]
        resources = rule.get("resources") or []
        scales = [one for one in resources if one.endswith("/scale")]
        others = [one for one in rule.get("apiGroups") or () if _is_of_others(one)]
        if verbs and scales:
            yield {**rule, "resources": scales, "verbs": verbs}
        elif verbs and others:
            yield {**rule, "apiGroups": others, "verbs": verbs}


def _is_of_others(group: str) -> bool:
    return "." in group and not group.endswith((".k8s.io", ".kruise.io"))


def _before(seen: Installed, deployment: Json, role: Json, kinds: Iterable[KindDefinition]) -> Json:
    served = {kind.crd_name for kind in kinds}
    return {
        "deployment": {"spec": deployment["spec"]},
        "clusterRole": {"rules": role.get("rules") or []},
        "definitions": {name: one["spec"] for name, one in seen.definitions.items() if name in served},
        "configurations": {name: {"webhooks": one.get("webhooks") or []} for name, one in seen.configurations.items()},
    }


def _packed(before: Json, namespace: str) -> Json:
    packed = gzip.compress(orjson.dumps(before), mtime=0)
    if len(packed) > MAX_BACKUP_BYTES:
        raise TakeoverError(f"the backup takes {len(packed)} bytes; a ConfigMap can hold {MAX_BACKUP_BYTES}")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": BACKUP, "namespace": namespace},
        "binaryData": {BACKUP_KEY: base64.b64encode(packed).decode()},
    }


def _applied(manifest: Json, namespace: str, does: str) -> Step:
    body = copy.deepcopy(manifest)
    resource = BY_KIND.get(body["kind"], CUSTOMRESOURCEDEFINITIONS)
    if resource is CUSTOMRESOURCEDEFINITIONS:
        _lead_to(body, namespace, "")
    return Step(does, "apply", resource, body["metadata"]["name"], body["metadata"].get("namespace", ""), body)


def _deployment(seen: Installed, deployment: Json, image: str) -> Step:
    """Return the step that updates the Deployment. Arguments, effective gates, environment, probes and placement are
    kept."""
    container = container_of(deployment)
    given = arguments.of_manager(container, seen.configurations.values())
    changed = {
        "name": container["name"],
        "image": image,
        "command": [*COMMAND],
        "args": (container.get("args") or []) if runs_ours(deployment) else [*given.arguments],
        "resources": {**_RESOURCES, "$patch": "replace"},
    }
    body = {
        "metadata": {"uid": deployment["metadata"]["uid"]},
        "spec": {
            "strategy": {**ROLLING, "$patch": "replace"},
            "template": {"spec": {"containers": [changed]}},
        },
    }
    return Step(f"run {image}", "patch", DEPLOYMENTS, DEPLOYMENT, seen.namespace, body)


def _definition(kind: KindDefinition, seen: Installed) -> Step:
    body = crd.manifest(kind)
    _lead_to(body, seen.namespace, bundle_of(seen.configurations.values()))
    return Step("install pykruise's version of the CRD", "apply", CUSTOMRESOURCEDEFINITIONS, kind.crd_name, "", body)


def _lead_to(definition: Json, namespace: str, bundle: str) -> None:
    conversion = definition["spec"].get("conversion")
    if conversion is not None:
        config = conversion["webhook"]["clientConfig"]
        config["service"]["namespace"] = namespace
        if bundle:
            config["caBundle"] = bundle


def back_plan(seen: Installed) -> Plan:
    """Return the plan to restore the previous installation."""
    if seen.backup is None:
        return Plan(blockers=(f"ConfigMap {seen.namespace}/{BACKUP}: not found, so there is nothing to restore",))
    if seen.deployment is None or seen.cluster_role is None:
        what = f"Deployment {seen.namespace}/{DEPLOYMENT}" if seen.deployment is None else "ClusterRole"
        return Plan(blockers=(f"{what}: not found; reinstall OpenKruise, then delete ConfigMap {BACKUP}",))
    before = unpacked(seen.backup)
    image = container_of(before["deployment"]).get("image", "")
    facts = [f"the backup contains Deployment {seen.namespace}/{DEPLOYMENT} with {image}"]
    warnings: list[str] = []
    steps: list[Step] = []
    of_agents = before.get("agents")
    if of_agents is not None and seen.daemon is not None and seen.agent_role is not None:
        agent_image = container_of(of_agents["daemonSet"]).get("image", "")
        facts.append(f"the backup contains DaemonSet {seen.namespace}/{DAEMON} with {agent_image}")
        steps += node_agents.handback(seen, of_agents)
    elif of_agents is not None:
        warnings.append(
            f"DaemonSet {seen.namespace}/{DAEMON} or its role has since been deleted and will not be restored"
        )
    steps += [
        rights(
            [*before["clusterRole"]["rules"], *seen.cluster_role["rules"]], "add OpenKruise's permissions to pykruise's"
        )
    ]
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
        rights(before["clusterRole"]["rules"], "restore OpenKruise's original permissions"),
        Step(
            "delete pykruise's permissions in the namespace",
            "delete",
            ROLE_BINDINGS,
            f"{rbac.NAMESPACED_ROLE}binding",
            seen.namespace,
        ),
        Step(
            "delete pykruise's permissions in the namespace",
            "delete",
            ROLES,
            rbac.NAMESPACED_ROLE,
            seen.namespace,
        ),
        Step("delete pykruise's aggregated role", "delete", CLUSTER_ROLE_BINDINGS, rbac.EXTENSION_BINDING),
        Step("delete pykruise's aggregated role", "delete", CLUSTER_ROLES, rbac.EXTENSION_ROLE),
        Step("delete the backup", "delete", CONFIGMAPS, BACKUP, seen.namespace),
    ]
    return Plan(tuple(facts), warnings=tuple(warnings), steps=tuple(steps))


def _deployment_back(live: Json, before: Json, namespace: str, image: str) -> Step:
    """Return the step that restores the Deployment, always with a surge: without a manager, Pods would be rejected."""
    body = {**live, "spec": {**before["spec"], "strategy": ROLLING}}
    body.pop("status", None)
    return Step(f"run {image} again", "replace", DEPLOYMENTS, DEPLOYMENT, namespace, body)


def _definition_back(live: Json, spec: Json) -> Step:
    """Return the step that restores the schemas but keeps the conversion webhook's CA, which may have changed."""
    wanted = copy.deepcopy(spec)
    now = ((live["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    config = ((wanted.get("conversion") or {}).get("webhook") or {}).get("clientConfig")
    if config is not None and now.get("caBundle"):
        config["caBundle"] = now["caBundle"]
    body = {**live, "spec": wanted}
    body.pop("status", None)
    name = live["metadata"]["name"]
    return Step("restore OpenKruise's version of the CRD", "replace", CUSTOMRESOURCEDEFINITIONS, name, "", body)


def _configuration_back(resource: Resource, live: Json, before: Json) -> Step:
    bundle = bundle_of([live])
    entries = [
        {**entry, "clientConfig": {**(entry.get("clientConfig") or {}), **({"caBundle": bundle} if bundle else {})}}
        for entry in before["webhooks"]
    ]
    # No resourceVersion: OpenKruise's manager may already be writing to this object, and a conflict must not fail the
    # step.
    return Step("restore OpenKruise's webhooks", "patch", resource, live["metadata"]["name"], "", {"webhooks": entries})
