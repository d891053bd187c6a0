"""Tables for all groups except the core group."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from app.sandbox.apiserver.tables.words import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Object,
    age,
    age_of,
    container_cells,
    ingress_points,
    is_true,
    labels_text,
    name_of,
    replica_cells,
    selector_text,
    some,
    spec_of,
    status_of,
)


def _pod_disruption_budget(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    limits = [str(spec.get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [name_of(one), *limits, status_of(one).get("disruptionsAllowed", 0), age_of(one, now)]


def _endpoint_slice(one: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in one.get("ports") or ()]
    addresses = [address for endpoint in one.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    shown = (some(ports, 3, UNSET), some(addresses, 3, UNSET))
    return [name_of(one), one.get("addressType", ""), *shown, age_of(one, now)]


def _lease(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), spec_of(one).get("holderIdentity", ""), age_of(one, now)]


def _ingress(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    rules = spec.get("rules") or ()
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == 3:
            break
        hosts += [rule["host"]] if rule.get("host") else []
    more = f" + {len(rules) - 3} more..." if len(hosts) == 3 and len(rules) > 3 else ""
    return [
        name_of(one),
        spec.get("ingressClassName", NONE),
        f"{','.join(hosts)}{more}" if hosts else "*",
        ",".join(ingress_points(one)),
        "80, 443" if spec.get("tls") else "80",
        age_of(one, now),
    ]


def _ingress_class(one: Object, now: datetime) -> list[Any]:
    parameters = spec_of(one).get("parameters")
    shown = NONE
    if parameters:
        group = parameters.get("apiGroup")
        shown = f"{parameters['kind']}{f'.{group}' if group is not None else ''}/{parameters['name']}"
    return [name_of(one), spec_of(one).get("controller", ""), shown, age_of(one, now)]


def _network_policy(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), selector_text(spec_of(one).get("podSelector")), age_of(one, now)]


def _webhooks(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), len(one.get("webhooks") or ()), age_of(one, now)]


def _admission_policy(one: Object, now: datetime) -> list[Any]:
    kind = spec_of(one).get("paramKind")
    shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
    return [name_of(one), len(spec_of(one).get("validations") or ()), shown, age_of(one, now)]


def _admission_policy_binding(one: Object, now: datetime) -> list[Any]:
    reference = spec_of(one).get("paramRef") or {}
    shown = f"{reference.get('namespace') or '*'}/{reference['name']}" if reference.get("name") else UNSET
    return [name_of(one), spec_of(one).get("policyName", ""), shown, age_of(one, now)]


def _role_binding(one: Object, now: datetime) -> list[Any]:
    subjects = one.get("subjects") or ()
    role = one.get("roleRef") or {}

    def named(kind: str) -> str:
        return ", ".join(one["name"] for one in subjects if one.get("kind") == kind)

    accounts = [
        f"{one['namespace']}/{one['name']}" if one.get("namespace") else one["name"]
        for one in subjects
        if one.get("kind") == "ServiceAccount"
    ]
    shown = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [name_of(one), shown, age_of(one, now), named("User"), named("Group"), ", ".join(accounts)]


def _storage_class_row(one: Object, now: datetime) -> list[Any]:
    annotations = one["metadata"].get("annotations") or {}
    default = any(
        annotations.get(f"storageclass.{version}kubernetes.io/is-default-class") == "true" for version in ("", "beta.")
    )
    return [
        f"{name_of(one)} (default)" if default else name_of(one),
        one.get("provisioner", ""),
        one.get("reclaimPolicy", "Delete"),
        one.get("volumeBindingMode", "Immediate"),
        one.get("allowVolumeExpansion", False),
        age_of(one, now),
    ]


def _csi_driver(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    tokens = spec.get("tokenRequests")
    return [
        name_of(one),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        UNSET if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age_of(one, now),
    ]


def _csi_node(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), len(spec_of(one).get("drivers") or ()), age_of(one, now)]


def _volume_attachment(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    volume = (spec.get("source") or {}).get("persistentVolumeName", "")
    attached = status_of(one).get("attached", False)
    return [name_of(one), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(one, now)]


def _volume_attributes_class(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), one.get("driverName", ""), age_of(one, now)]


def _priority_class(one: Object, now: datetime) -> list[Any]:
    policy = one.get("preemptionPolicy", "")
    return [name_of(one), one.get("value", 0), one.get("globalDefault", False), age_of(one, now), policy]


def _runtime_class(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), one.get("handler", ""), age_of(one, now)]


def _service_cidr(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), ",".join(spec_of(one).get("cidrs") or ()), age_of(one, now)]


def _ip_address(one: Object, now: datetime) -> list[Any]:
    parent = spec_of(one).get("parentRef")
    shown = NONE
    if parent:
        group = parent.get("group")
        resource = f"{parent.get('resource', '')}.{group}" if group else parent.get("resource", "")
        shown = "/".join(part for part in (resource.lower(), parent.get("namespace"), parent.get("name")) if part)
    return [name_of(one), shown, age_of(one, now)]


def _autoscaler(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    target = spec.get("scaleTargetRef") or {}
    return [
        name_of(one),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(one),
        str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0),
        status_of(one).get("currentReplicas", 0),
        age_of(one, now),
    ]


def _metrics(one: Object) -> str:
    """Return the current and target values of the first two metrics."""
    spec, current = spec_of(one), status_of(one).get("currentMetrics") or []
    metrics = list(spec.get("metrics") or ())
    if not metrics and "targetCPUUtilizationPercentage" in spec:
        target = {"averageUtilization": spec["targetCPUUtilizationPercentage"]}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        reached = {"averageUtilization": status_of(one).get("currentCPUUtilizationPercentage")}
        current = [{"resource": {"current": reached}}]
    shown = [_metric(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(metrics)]
    if not shown:
        return NONE
    return f"{', '.join(shown[:2])} + {len(shown) - 2} more..." if len(shown) > 2 else ", ".join(shown)


def _metric(metric: Object, current: Object) -> str:
    kind = metric["type"][:1].lower() + metric["type"][1:]
    source, reached = metric.get(kind) or {}, (current.get(kind) or {}).get("current") or {}
    target = source.get("target") or {}
    if kind in ("resource", "containerResource"):
        if "averageValue" in target:
            return f"{source['name']}: {reached.get('averageValue', UNKNOWN)}/{target['averageValue']}"
        percent = reached.get("averageUtilization")
        wanted = target.get("averageUtilization")
        shown = UNKNOWN if percent is None else f"{percent}%"
        return f"{source['name']}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if kind == "pods":
        return f"{reached.get('averageValue', UNKNOWN)}/{target.get('averageValue', '0')}"
    if "averageValue" in target:
        return f"{reached.get('averageValue', UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{reached.get('value', UNKNOWN)}/{target.get('value', '0')}"


#: Functions that compute the cells of the groups' resources, by plural.
CELLS: Final[Mapping[str, Cells]] = {
    "poddisruptionbudgets": _pod_disruption_budget,
    "endpointslices": _endpoint_slice,
    "leases": _lease,
    "ingresses": _ingress,
    "ingressclasses": _ingress_class,
    "networkpolicies": _network_policy,
    "servicecidrs": _service_cidr,
    "ipaddresses": _ip_address,
    "mutatingwebhookconfigurations": _webhooks,
    "validatingwebhookconfigurations": _webhooks,
    "validatingadmissionpolicies": _admission_policy,
    "validatingadmissionpolicybindings": _admission_policy_binding,
    "rolebindings": _role_binding,
    "clusterrolebindings": _role_binding,
    "storageclasses": _storage_class_row,
    "csidrivers": _csi_driver,
    "csinodes": _csi_node,
    "volumeattachments": _volume_attachment,
    "volumeattributesclasses": _volume_attributes_class,
    "priorityclasses": _priority_class,
    "runtimeclasses": _runtime_class,
    "horizontalpodautoscalers": _autoscaler,
}


def _workload(one: Object) -> list[Any]:
    """Return the wide columns for a kind with a template and a selector."""
    return [*container_cells(spec_of(one).get("template")), selector_text(spec_of(one).get("selector"))]


def _deployment(one: Object, now: datetime) -> list[Any]:
    status = status_of(one)
    return [
        name_of(one),
        f"{status.get('readyReplicas', 0)}/{spec_of(one).get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(one, now),
        *_workload(one),
    ]


def _replica_set(one: Object, now: datetime) -> list[Any]:
    return [*replica_cells(one, now), *_workload(one)]


def _stateful_set(one: Object, now: datetime) -> list[Any]:
    ready = f"{status_of(one).get('readyReplicas', 0)}/{spec_of(one).get('replicas', 0)}"
    return [name_of(one), ready, age_of(one, now), *container_cells(spec_of(one).get("template"))]


_DAEMON_COUNTS: Final = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set(one: Object, now: datetime) -> list[Any]:
    counts = [status_of(one).get(name, 0) for name in _DAEMON_COUNTS]
    nodes = labels_text(spec_of(spec_of(one).get("template") or {}).get("nodeSelector"))
    return [name_of(one), *counts, nodes, age_of(one, now), *_workload(one)]


def _controller_revision(one: Object, now: datetime) -> list[Any]:
    owner = next((ref for ref in one["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        controller = f"{kind.lower()}/{owner['name']}"
    return [name_of(one), controller, one.get("revision", 0), age_of(one, now)]


def _job(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    done, parallel = status.get("succeeded", 0), spec.get("parallelism", 0)
    if "completions" in spec:
        completions = f"{done}/{spec['completions']}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    lasted = ""
    if began := status.get("startTime"):
        ended = status.get("completionTime")
        lasted = age(began, datetime.fromisoformat(ended) if ended else now)
    return [name_of(one), _job_status(one), completions, lasted, age_of(one, now), *_workload(one)]


def _job_status(one: Object) -> str:
    if is_true(one, "Complete"):
        return "Complete"
    if is_true(one, "Failed"):
        return "Failed"
    if one["metadata"].get("deletionTimestamp"):
        return "Terminating"
    words = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((word for word in words if is_true(one, word)), "Running")


def _cron_job(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    suspend = spec.get("suspend")
    last = status.get("lastScheduleTime")
    return [
        name_of(one),
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        UNSET if suspend is None else str(suspend),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(one, now),
        *_workload(spec.get("jobTemplate") or {}),
    ]


#: Functions that compute the cells of workloads, by plural.
WORKLOAD_CELLS: Final[Mapping[str, Cells]] = {
    "deployments": _deployment,
    "replicasets": _replica_set,
    "statefulsets": _stateful_set,
    "daemonsets": _daemon_set,
    "controllerrevisions": _controller_revision,
    "jobs": _job,
    "cronjobs": _cron_job,
}
