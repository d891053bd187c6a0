"""The cluster given back to what ran before. Pure."""

from __future__ import annotations

import copy

from app.admission import rbac
from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, DEPLOYMENTS, Resource
from app.manager.takeover.model import (
    BACKUP,
    CONFIGURATIONS,
    ROLE_BINDINGS,
    ROLES,
    ROLLING,
    Installed,
    Json,
    Plan,
    Step,
    bundle_of,
    container_of,
    rights,
    unpacked,
)
from app.manager.uninstall import DEPLOYMENT


def back_plan(seen: Installed) -> Plan:
    """Give the cluster back to what ran before."""
    if seen.backup is None:
        return Plan(blockers=(f"ConfigMap {seen.namespace}/{BACKUP}: not there, so there is nothing to give back",))
    if seen.deployment is None or seen.cluster_role is None:
        what = f"Deployment {seen.namespace}/{DEPLOYMENT}" if seen.deployment is None else "ClusterRole"
        return Plan(blockers=(f"{what}: not there; install OpenKruise anew, then delete ConfigMap {BACKUP}",))
    before = unpacked(seen.backup)
    image = container_of(before["deployment"]).get("image", "")
    steps = [rights([*before["clusterRole"]["rules"], *seen.cluster_role["rules"]], "add its rights to ours")]
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
        rights(before["clusterRole"]["rules"], "leave it the rights it had"),
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


def _deployment_back(live: Json, before: Json, namespace: str, image: str) -> Step:
    """With a surge whatever it had, since a gap would refuse Pods."""
    body = {**live, "spec": {**before["spec"], "strategy": ROLLING}}
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
    bundle = bundle_of([live])
    entries = [
        {**entry, "clientConfig": {**(entry.get("clientConfig") or {}), **({"caBundle": bundle} if bundle else {})}}
        for entry in before["webhooks"]
    ]
    # Without a resourceVersion: its own manager writes the same meanwhile.
    return Step("its webhooks", "patch", resource, live["metadata"]["name"], "", {"webhooks": entries})
