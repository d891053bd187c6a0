"""Rules for ConfigMaps, Secrets, Services and other kinds without a module of their own."""

from __future__ import annotations

import base64
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from app.kube.validation import is_config_map_key, is_dns1035_label

Json: TypeAlias = dict[str, Any]

_IMMUTABLE: Final = "field is immutable"
_JOB_NUMBERS: Final = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


def default_secret(obj: Json) -> None:
    """Merge ``stringData`` into ``data``."""
    given = obj.pop("stringData", None)
    if given:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in given.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def config_map_errors(obj: Json) -> list[FieldError]:
    """Validate the total size and the keys, which must not occur in both maps."""
    found: list[FieldError] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for name, values in (("data", data), ("binaryData", binary)):
        at = Path(name)
        for key, value in sorted(values.items()):
            found += [invalid(at.key(key), key, message) for message in is_config_map_key(key)]
            if name == "data" and key in binary:
                found.append(invalid(at.key(key), key, "duplicate of key present in binaryData"))
            size += len(value.encode()) if name == "data" else len(value) * 3 // 4
    if size > 2**20:
        found.append(too_long("[]", 2**20))
    return found


def frozen_data_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to immutable data."""
    if not old.get("immutable"):
        return []
    message = "field is immutable when `immutable` is set"
    found = [] if obj.get("immutable") else [forbidden(Path("immutable"), message)]
    for name in ("data", "binaryData", "stringData"):
        if (obj.get(name) or {}) != (old.get(name) or {}):
            found.append(forbidden(Path(name), message))
    return found


def secret_stays(obj: Json, old: Json) -> list[FieldError]:
    """Reject changes to a Secret's type."""
    found = [invalid(Path("type"), obj.get("type"), _IMMUTABLE)] if obj.get("type") != old.get("type") else []
    return found + frozen_data_stays(obj, old)


def secret_key_errors(obj: Json) -> list[FieldError]:
    """Validate the keys of a Secret."""
    return [
        invalid(Path("data").key(key), key, message)
        for key in sorted(obj.get("data") or {})
        for message in is_config_map_key(key)
    ]


def secret_warnings(secret: Json) -> list[str]:
    """Warn about a certificate that is not PEM."""
    data = secret.get("data") or {}
    if secret.get("type") != "kubernetes.io/tls" or "tls.crt" not in data:
        return []
    try:
        text = base64.b64decode(data["tls.crt"])
    except ValueError:
        return []
    return [] if b"-----BEGIN" in text else ["tls: failed to find any PEM data in certificate input"]


SPEC: Final = Path("spec")
#: Required keys, by Secret type.
_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_CRON_FIELDS: Final = 5


def secret_errors(obj: Json) -> list[FieldError]:
    """Validate the keys, and require those of the Secret's type."""
    data = obj.get("data") or {}
    wanted = _SECRET_KEYS.get(obj.get("type", ""), ())
    return secret_key_errors(obj) + [required(Path("data").key(key)) for key in wanted if key not in data]


def claim_errors(obj: Json) -> list[FieldError]:
    """Require a claim to have access modes and a size."""
    spec = obj.get("spec") or {}
    found: list[FieldError] = []
    if not spec.get("accessModes"):
        found.append(required(SPEC.child("accessModes"), "at least 1 access mode is required"))
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        found.append(required(SPEC.child("resources").key("storage")))
    return found


def budget_errors(obj: Json) -> list[FieldError]:
    """Reject budgets with both minAvailable and maxUnavailable."""
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is None or spec.get("maxUnavailable") is None:
        return []
    shown = {
        "MinAvailable": spec["minAvailable"],
        "Selector": spec.get("selector"),
        "MaxUnavailable": spec["maxUnavailable"],
        "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
    }
    return [invalid(SPEC, shown, "minAvailable and maxUnavailable cannot be both set")]


def role_errors(obj: Json) -> list[FieldError]:
    """Require the rules of a role to have verbs and, except for rules about URLs, API groups and resources."""
    found: list[FieldError] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        at = Path("rules").index(index)
        if not rule.get("verbs"):
            found.append(required(at.child("verbs"), "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            found.append(required(at.child("apiGroups"), "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(at.child("resources"), "resource rules must supply at least one resource"))
    return found


def lease_errors(obj: Json) -> list[FieldError]:
    """Require positive durations and a non-negative number of transitions."""
    spec = obj.get("spec") or {}
    found: list[FieldError] = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid(SPEC.child("leaseDurationSeconds"), seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid(SPEC.child("leaseTransitions"), transitions, "must be greater than or equal to 0"))
    return found


def priority_errors(obj: Json) -> list[FieldError]:
    """Reject priorities reserved for the system."""
    if obj.get("value", 0) > _HIGHEST_USER_PRIORITY and not obj["metadata"].get("name", "").startswith("system-"):
        message = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        return [forbidden("value", message)]
    return []


def job_errors(obj: Json) -> list[FieldError]:
    """Require non-negative counts and times, and the restart policy OnFailure or Never."""
    return _job_spec_errors(obj.get("spec") or {}, SPEC)


def cron_job_errors(obj: Json) -> list[FieldError]:
    """Validate the schedule and the job template of a CronJob."""
    spec = obj.get("spec") or {}
    schedule = spec.get("schedule") or ""
    at = SPEC.child("schedule")
    found: list[FieldError] = []
    fields = schedule.split()
    if not schedule:
        found.append(required(at))
    elif not schedule.startswith(("@", "TZ=", "CRON_TZ=")) and len(fields) != _CRON_FIELDS:
        message = f"expected exactly {_CRON_FIELDS} fields, found {len(fields)}: [{' '.join(fields)}]"
        found.append(invalid(at, schedule, message))
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    return found + _job_spec_errors(template, SPEC.child("jobTemplate").child("spec"))


def _job_spec_errors(spec: Json, path: Path) -> list[FieldError]:
    found = [
        invalid(path.child(name), spec[name], "must be greater than or equal to 0")
        for name in _JOB_NUMBERS
        if (spec.get(name) or 0) < 0
    ]
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        at = path.child("template").child("spec").child("restartPolicy")
        found.append(required(at, 'valid values: "OnFailure", "Never"'))
    return found


def endpoints_errors(obj: Json) -> list[FieldError]:
    """Require ports to have names if there are several."""
    return [
        required(Path("subsets").index(number).child("ports").index(index).child("name"))
        for number, subset in enumerate(obj.get("subsets") or ())
        for index, port in enumerate(subset.get("ports") or ())
        if len(subset["ports"]) > 1 and not port.get("name")
    ]


def autoscaler_errors(obj: Json) -> list[FieldError]:
    """Validate the replica range and the target of an autoscaler."""
    spec = obj.get("spec") or {}
    found: list[FieldError] = []
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        found.append(invalid(SPEC.child("minReplicas"), least, "must be greater than or equal to 1"))
    if most < 1:
        found.append(invalid(SPEC.child("maxReplicas"), most, "must be greater than 0"))
    if least is not None and most < least:
        found.append(invalid(SPEC.child("maxReplicas"), most, "must be greater than or equal to `minReplicas`"))
    target, at = spec.get("scaleTargetRef") or {}, SPEC.child("scaleTargetRef")
    found += [required(at.child(name)) for name in ("kind", "name") if not target.get(name)]
    if not target.get("apiVersion"):
        found.append(invalid(at.child("apiVersion"), "", "apiVersion must specify API group"))
    return found


def ingress_errors(obj: Json) -> list[FieldError]:
    """Require a backend or rules in an Ingress."""
    spec = obj.get("spec") or {}
    if spec.get("rules") or spec.get("defaultBackend"):
        return []
    shown = spec or GoLiteral("null")
    return [invalid(SPEC, shown, "either `defaultBackend` or `rules` must be specified")]


# ---- statuses


def deployment_status_errors(obj: Json, _old: Json) -> list[FieldError]:
    """Validate the replica counts of a Deployment's status."""
    status, at = obj.get("status") or {}, Path("status")
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
    counts = {name: status.get(name) or 0 for name in (*names, "observedGeneration", "collisionCount")}
    found = [
        invalid(at.child(name), counts[name], "must be greater than or equal to 0")
        for name in ("observedGeneration", *names, "collisionCount")
        if counts[name] < 0
    ]
    found += [
        invalid(at.child(name), counts[name], "cannot be greater than status.replicas")
        for name in names[1:4]
        if counts[name] > counts["replicas"]
    ]
    if counts["availableReplicas"] > counts["readyReplicas"]:
        message = "cannot be greater than readyReplicas"
        found.append(invalid(at.child("availableReplicas"), counts["availableReplicas"], message))
    return found


def namespace_status_errors(obj: Json, _old: Json) -> list[FieldError]:
    """Require the phase to agree with the deletion timestamp."""
    phase, deleted = (obj.get("status") or {}).get("phase"), obj["metadata"].get("deletionTimestamp")
    if deleted and phase != "Terminating":
        return [invalid("status.Phase", phase or "", "may only be 'Terminating' if `deletionTimestamp` is not empty")]
    if not deleted and phase != "Active":
        return [invalid("status.Phase", phase or "", "may only be 'Active' if `deletionTimestamp` is empty")]
    return []


def default_service(obj: Json) -> None:
    """Set the target ports and traffic policies."""
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
    """Set the IP families."""
    spec = obj["spec"]
    if spec["type"] != "ExternalName":
        # A headless Service without a selector has no allocated address, so it may have both families.
        both = spec.get("clusterIP") == "None" and not spec.get("selector")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")


def keep_families(obj: Json, old: Json) -> None:
    """Keep allocated IP families that an update omits."""
    spec, before = obj["spec"], old.get("spec") or {}
    if spec["type"] != "ExternalName":
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if name in before:
                spec.setdefault(name, before[name])
        prepare_service(obj)


def service_errors(obj: Json) -> list[FieldError]:
    """Validate the ports of a Service."""
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
    """Reject changes to a Service's cluster IP."""
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
    """Warn about session affinity on headless Services."""
    spec = service.get("spec") or {}
    if spec.get("clusterIP") == "None" and spec.get("sessionAffinity"):
        return ["spec.SessionAffinity is ignored for headless services"]
    return []
