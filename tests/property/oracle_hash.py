"""Hashes of a set's containers (SS-10 to SS-13), computed from tables that list fields in the order Go writes them.

The tables contain only the fields that the generator writes. Any other field is an error.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.property.oracle_quantity import parse

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

#: Struct → its fields in order; "!" marks fields written even when empty, "struct" or "[struct]" the type inside.
ORDER: dict[str, list[tuple[str, str]]] = {
    "Container": [
        ("name!", ""),
        ("image", ""),
        ("command", ""),
        ("args", ""),
        ("workingDir", ""),
        ("ports", "[Port]"),
        ("envFrom", "[EnvFrom]"),
        ("env", "[Env]"),
        ("resources!", "Resources"),
        ("restartPolicy", ""),
        ("volumeMounts", "[Mount]"),
        ("volumeDevices", "[Device]"),
        ("livenessProbe", "Probe"),
        ("readinessProbe", "Probe"),
        ("lifecycle", "Lifecycle"),
        ("terminationMessagePath", ""),
        ("terminationMessagePolicy", ""),
        ("imagePullPolicy", ""),
        ("securityContext", "SecurityContext"),
        ("tty", ""),
        ("podInjectPolicy", ""),
        ("upgradeStrategy!", "UpgradeStrategy"),
        ("shareVolumePolicy!", "Share"),
        ("shareVolumeDevicePolicy", "Share"),
        ("transferEnv", "[Transfer]"),
        ("resourcesPolicy", "Policy"),
    ],
    "Port": [("name", ""), ("containerPort!", ""), ("protocol", "")],
    "EnvFrom": [("prefix", ""), ("configMapRef", "Ref"), ("secretRef", "Ref")],
    "Ref": [("name", ""), ("optional", "")],
    "Env": [("name!", ""), ("value", ""), ("valueFrom", "EnvSource")],
    "EnvSource": [("fieldRef", "FieldRef"), ("resourceFieldRef", "ResourceRef"), ("secretKeyRef", "KeyRef")],
    "FieldRef": [("apiVersion", ""), ("fieldPath!", "")],
    "ResourceRef": [("containerName", ""), ("resource!", ""), ("divisor!", "Quantity")],
    "KeyRef": [("name", ""), ("key!", ""), ("optional", "")],
    "Resources": [("limits", "Quantities"), ("requests", "Quantities")],
    "Mount": [("name!", ""), ("readOnly", ""), ("mountPath!", ""), ("subPath", ""), ("subPathExpr", "")],
    "Device": [("name!", ""), ("devicePath!", "")],
    "Probe": [
        ("exec", "Exec"),
        ("httpGet", "HttpGet"),
        ("initialDelaySeconds", ""),
        ("timeoutSeconds", ""),
        ("periodSeconds", ""),
        ("successThreshold", ""),
        ("failureThreshold", ""),
    ],
    "Exec": [("command", "")],
    "HttpGet": [("path", ""), ("port!", ""), ("scheme", "")],
    "Lifecycle": [("postStart", "Probe"), ("preStop", "Probe")],
    "SecurityContext": [("runAsUser", ""), ("runAsNonRoot", ""), ("allowPrivilegeEscalation", "")],
    "UpgradeStrategy": [("upgradeType", ""), ("hotUpgradeEmptyImage", "")],
    "Share": [("type", "")],
    "Transfer": [
        ("sourceContainerName", ""),
        ("sourceContainerNameFrom", "SourceFrom"),
        ("envName", ""),
        ("envNames", ""),
    ],
    "SourceFrom": [("fieldRef", "FieldRef")],
    "Policy": [("targetContainersMode", ""), ("targetContainersNameRegex", ""), ("resourcesExpr!", "Expressions")],
    "Expressions": [("limits", "Pair"), ("requests", "Pair")],
    "Pair": [("cpu", ""), ("memory", "")],
}

#: Pointers are written whenever set, even if the value is empty or false.
POINTERS = {
    *("livenessProbe", "readinessProbe", "lifecycle", "postStart", "preStop", "exec", "httpGet"),
    *("securityContext", "runAsUser", "runAsNonRoot", "allowPrivilegeEscalation"),
    *("fieldRef", "resourceFieldRef", "secretKeyRef", "configMapRef", "secretRef", "optional", "valueFrom"),
    *("shareVolumeDevicePolicy", "sourceContainerNameFrom", "resourcesPolicy", "limits of expr", "requests of expr"),
}


def set_hashes(containers: list[Any] | None, init_containers: list[Any] | None) -> tuple[str, str]:
    """Return the hash and the hash without images of a defaulted set."""
    return _hash(containers, init_containers), _hash(_without_image(containers), _without_image(init_containers))


def _without_image(containers: list[Any] | None) -> list[Any] | None:
    return None if containers is None else [{k: v for k, v in c.items() if k != "image"} for c in containers]


def _hash(containers: list[Any] | None, init_containers: list[Any] | None) -> str:
    content: dict[str, Any] = {"containers": _ordered("[Container]", containers)}
    if any(c.get("restartPolicy") == "Always" for c in init_containers or []):
        content["initContainers"] = _ordered("[Container]", init_containers)
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return "".join(ALPHABET[ord(c) % 27] for c in hashlib.sha256(text.encode()).hexdigest())


def _ordered(kind: str, value: Any) -> Any:
    if kind == "" or value is None:
        return value
    if kind.startswith("["):
        return [_ordered(kind[1:-1], item) for item in value]
    if kind == "Quantity":
        return parse(value).text()
    if kind == "Quantities":
        return {name: parse(value[name]).text() for name in sorted(value)}
    if kind == "Policy" and not value.get("targetContainersNameRegex"):
        # SS-12 as corrected: the default is hashed even if the stored set lacks it.
        value = {**value, "targetContainersNameRegex": ".*"}
    result: dict[str, Any] = {}
    for field, inner in ORDER[kind]:
        name = field.rstrip("!")
        given = value.get(name)
        pointer = name in POINTERS or (f"{name} of expr" in POINTERS and kind == "Expressions")
        if given or (pointer and given is not None):
            result[name] = _ordered(inner, given)
        elif field.endswith("!"):
            result[name] = EMPTY.get(name, given)
    unknown = set(value) - {field.rstrip("!") for field, _ in ORDER[kind]}
    if unknown:
        raise AssertionError(f"{kind} has fields without an order: {sorted(unknown)}")
    return result


EMPTY: dict[str, Any] = {
    "name": "",
    "resources": {},
    "upgradeStrategy": {},
    "shareVolumePolicy": {},
    "resourcesExpr": {},
    "divisor": "0",
    "mountPath": "",
}
