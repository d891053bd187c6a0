"""Defaults of the API server and the SidecarSet webhook, as far as the generator and the recorded answers need them."""

from __future__ import annotations

import copy
from typing import Any

from tests.property.case import Json
from tests.property.oracle_hash import set_hashes
from tests.property.oracle_quantity import parse

TOKEN_VOLUME = "kube-api-access"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def fill(target: Json, **values: Any) -> None:
    for name, value in values.items():
        if target.get(name) is None:
            target[name] = value


def pull_policy(image: str) -> str:
    """Return Always for the tag latest or no tag, unless there is a digest."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def default_container(container: Json) -> None:
    """Default a core container, in a set or a Pod. [SS-6]"""
    fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull_policy(container["image"]),
    )
    for port in container.get("ports") or []:
        fill(port, protocol="TCP")
    for env in container.get("env") or []:
        source = env.get("valueFrom") or {}
        if "fieldRef" in source:
            fill(source["fieldRef"], apiVersion="v1")
        if "resourceFieldRef" in source:
            fill(source["resourceFieldRef"], divisor="0")
    for kind in ("livenessProbe", "readinessProbe"):
        if probe := container.get(kind):
            fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            default_action(probe)
    for action in (container.get("lifecycle") or {}).values():
        default_action(action)
    for kind in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(kind) or {}
        for name, amount in amounts.items():
            amounts[name] = parse(amount).text()


def default_action(action: Json) -> None:
    """Default a probe or lifecycle handler."""
    if get := action.get("httpGet"):
        fill(get, path="/", scheme="HTTP")


def default_volume(volume: Json) -> None:
    """Default a volume. [SS-7]"""
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if kind in volume:
            fill(volume[kind], defaultMode=420)
    if "hostPath" in volume:
        fill(volume["hostPath"], type="")


def defaulted_set(raw: Json) -> Json:
    """Return a SidecarSet (v1beta1) as its webhook stores it. [SS-5 … SS-8]"""
    one = copy.deepcopy(raw)
    spec = one["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    fill(strategy, type="RollingUpdate", partition=0, maxUnavailable=1)
    fill(spec, revisionHistoryLimit=10)
    for entry in spec.get("patchPodMetadata") or []:
        fill(entry, patchPolicy="Retain")
    if revision := (spec.get("injectionStrategy") or {}).get("revision"):
        fill(revision, policy="Always")
    for kind, position in (("initContainers", "AfterAppContainer"), ("containers", "BeforeAppContainer")):
        for container in spec.get(kind) or []:
            default_sidecar(container, position)
    for volume in spec.get("volumes") or []:
        default_volume(volume)
    plain, without_image = set_hashes(spec.get("containers"), spec.get("initContainers"))
    one["metadata"]["annotations"] = {
        **(one["metadata"].get("annotations") or {}),
        "kruise.io/sidecarset-hash": plain,
        "kruise.io/sidecarset-hash-without-image": without_image,
    }
    return one


def default_sidecar(container: Json, position: str) -> None:
    """Default the fields that only a sidecar has, then the container. [SS-5]"""
    fill(container, podInjectPolicy=position, upgradeStrategy={}, shareVolumePolicy={})
    fill(container["upgradeStrategy"], upgradeType="ColdUpgrade")
    fill(container["shareVolumePolicy"], type="disabled")
    for entry in container.get("transferEnv") or []:
        if reference := (entry.get("sourceContainerNameFrom") or {}).get("fieldRef"):
            fill(reference, apiVersion="v1")
    if policy := container.get("resourcesPolicy"):
        fill(policy, targetContainersNameRegex=".*")
    default_container(container)


def default_pod(raw: Json, *, token: bool) -> Json:
    """Return a Pod with the API server's defaults and, with ``token``, the additions of its built-in admission, which
    runs before and after the webhooks."""
    pod = copy.deepcopy(raw)
    spec = pod["spec"]
    fill(
        spec,
        dnsPolicy="ClusterFirst",
        restartPolicy="Always",
        schedulerName="default-scheduler",
        securityContext={},
        terminationGracePeriodSeconds=30,
        enableServiceLinks=True,
    )
    if token:
        fill(spec, serviceAccount="default", serviceAccountName="default", priority=0)
        fill(
            spec,
            preemptionPolicy="PreemptLowerPriority",
            tolerations=[not_ready(k) for k in ("not-ready", "unreachable")],
        )
    for container in (spec.get("initContainers") or []) + spec["containers"]:
        default_container(container)
        resources = container.setdefault("resources", {})
        for name, limit in (resources.get("limits") or {}).items():
            requests = resources.setdefault("requests", {})
            requests.setdefault(name, limit)
        if token and not any(m["mountPath"] == TOKEN_PATH for m in container.get("volumeMounts") or []):
            mount = {"name": TOKEN_VOLUME, "readOnly": True, "mountPath": TOKEN_PATH}
            container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    for volume in spec.get("volumes") or []:
        default_volume(volume)
    if token and not any(v["name"] == TOKEN_VOLUME for v in spec.get("volumes") or []):
        spec["volumes"] = [*(spec.get("volumes") or []), token_volume()]
    return pod


def not_ready(condition: str) -> Json:
    """Return the toleration that every Pod gets."""
    key = f"node.kubernetes.io/{condition}"
    return {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}


def token_volume() -> Json:
    """Return the projected volume of the service account's token."""
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": [{"fieldRef": reference, "path": "namespace"}]}},
    ]
    return {"name": TOKEN_VOLUME, "projected": {"defaultMode": 420, "sources": sources}}
