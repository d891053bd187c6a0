"""Services: defaults, addresses, what is refused and what stays. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.kube.fielderrors import (
    FieldError,
    Path,
    duplicate,
    invalid,
    not_supported,
    required,
)
from app.kube.validation import is_dns1035_label

Json: TypeAlias = dict[str, Any]

SPEC: Final = Path("spec")


def default_service(obj: Json) -> None:
    """Target ports, addresses' families and traffic policies."""
    spec = obj["spec"]
    for port in spec.get("ports") or ():
        if port.get("targetPort") in (None, "", 0):
            port["targetPort"] = port.get("port") or 0
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def prepare_service(obj: Json) -> None:
    """The families of addresses."""
    spec = obj["spec"]
    if spec["type"] != "ExternalName":
        # Nothing is allotted to a Service that others give its endpoints: it may have both families.
        both = spec.get("clusterIP") == "None" and not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")


def keep_families(obj: Json, old: Json) -> None:
    """What was allotted stays where an update says nothing of it."""
    spec, before = obj["spec"], old.get("spec") or {}
    if spec["type"] != "ExternalName":
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if name in before:
                spec.setdefault(name, before[name])
        prepare_service(obj)


def service_errors(obj: Json) -> list[FieldError]:
    """Ports of a Service."""
    spec = obj.get("spec") or {}
    ports = spec.get("ports") or []
    at = SPEC.child("ports")
    found: list[FieldError] = []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        found.append(required(at))
    names: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name") or ""
        if len(ports) > 1 and not name:
            found.append(required(at.index(index).child("name")))
        elif name in names:
            found.append(duplicate(at.index(index).child("name"), name))
        names.add(name)
        if not 0 < (port.get("port") or 0) < 65536:
            message = "must be between 1 and 65535, inclusive"
            found.append(invalid(at.index(index).child("port"), port.get("port") or 0, message))
        target = port.get("targetPort")
        if isinstance(target, int) and not 0 < target < 65536:
            message = "must be between 1 and 65535, inclusive"
            found.append(invalid(at.index(index).child("targetPort"), target, message))
    types = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if spec.get("type") not in types:
        found.append(not_supported(SPEC.child("type"), spec.get("type") or "", types))
    return found


def service_stays(obj: Json, old: Json) -> list[FieldError]:
    """A Service keeps its address."""
    new, before = obj["spec"], old.get("spec") or {}
    if new.get("type") == "ExternalName" or before.get("type") == "ExternalName":
        return []
    found = []
    if new.get("clusterIP") != before.get("clusterIP"):
        at = SPEC.child("clusterIPs").index(0)
        message = "may not change once set"
        found.append(invalid(at, [new.get("clusterIP") or ""], message))
    return found


service_name_errors = is_dns1035_label


def service_warnings(service: Json) -> list[str]:
    """Advice about a Service."""
    spec = service.get("spec") or {}
    if spec.get("clusterIP") == "None" and spec.get("sessionAffinity"):
        return ["spec.SessionAffinity is ignored for headless services"]
    return []
