"""Tables for the core group, with Pod statuses as ``kubectl`` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

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
    quantity_text,
    replica_cells,
    some,
    spec_of,
    status_of,
)

PodObject: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class PodSummary:
    """Status and container counts of a Pod. ``last_restart`` is in RFC 3339 format, or "" if no container has
    restarted."""

    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""
    initializing: bool = False

    def count(self, status: PodObject) -> None:
        """Add a container's restarts."""
        self.restarts += status.get("restartCount", 0)
        ended = (status.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, ended.get("finishedAt") or "")


def summarise(pod: PodObject) -> PodSummary:
    """Return the values for the columns READY, STATUS and RESTARTS of a Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or []
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    summary = PodSummary(
        reason=status.get("reason") or status.get("phase", ""),
        total=len(spec.get("containers") or ()) + len(sidecars),
    )
    if any(one["type"] == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions):
        summary.reason = "SchedulingGated"
    of_sidecars = PodSummary("", 0)
    _add_init_containers(summary, of_sidecars, spec, status, sidecars)
    if not summary.initializing or _is_true(conditions, "Initialized"):
        summary.restarts, summary.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        _add_containers(summary, status, conditions)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _add_init_containers(
    summary: PodSummary, of_sidecars: PodSummary, spec: PodObject, status: PodObject, sidecars: set[str]
) -> None:
    """Add the init containers, up to the first that has not completed."""
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        summary.count(one)
        sidecar = one.get("name") in sidecars
        if sidecar:
            of_sidecars.count(one)
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if sidecar and one.get("started"):
            summary.ready += bool(one.get("ready"))
            continue
        if ended is not None:
            summary.reason = f"Init:{_ended(ended)}"
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            summary.reason = f"Init:{waiting['reason']}"
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        summary.initializing = True
        return


def _add_containers(summary: PodSummary, status: PodObject, conditions: Iterable[PodObject]) -> None:
    running = False
    for one in reversed(status.get("containerStatuses") or ()):
        summary.count(one)
        state = one.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            summary.reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            summary.reason = _ended(state["terminated"])
        elif one.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    # A Pod is not completed while any of its containers is running.
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if _is_true(conditions, "Ready") else "NotReady"


def _ended(terminated: PodObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(conditions: Iterable[PodObject], kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def _pod(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    summary = summarise(one)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({age(summary.last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    gates = NONE
    if wanted := [gate["conditionType"] for gate in spec.get("readinessGates") or ()]:
        gates = f"{sum(is_true(one, gate) for gate in wanted)}/{len(wanted)}"
    return [
        name_of(one),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        restarts,
        age_of(one, now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        gates,
    ]


def _pod_template(one: Object, _now: datetime) -> list[Any]:
    template = one.get("template") or {}
    return [name_of(one), *container_cells(template), labels_text((template.get("metadata") or {}).get("labels"))]


def _service(one: Object, now: datetime) -> list[Any]:
    spec = spec_of(one)
    ports = [
        f"{port['port']}:{port['nodePort']}/{port['protocol']}"
        if port.get("nodePort")
        else f"{port['port']}/{port['protocol']}"
        for port in spec.get("ports") or ()
    ]
    addresses = spec.get("clusterIPs") or [NONE]
    kind = spec.get("type", "")
    return [
        name_of(one),
        kind,
        addresses[0],
        _external_address(one, kind),
        ",".join(ports) or NONE,
        age_of(one, now),
        labels_text(spec.get("selector")),
    ]


def _external_address(one: Object, kind: str) -> str:
    external = list(spec_of(one).get("externalIPs") or ())
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if kind == "LoadBalancer":
        return ",".join([*ingress_points(one), *external]) or "<pending>"
    return str(spec_of(one).get("externalName", "")) if kind == "ExternalName" else UNKNOWN


def _endpoints(one: Object, now: datetime) -> list[Any]:
    found: list[str] = []
    for subset in one.get("subsets") or ():
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        found += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    empty = "" if one.get("subsets") else NONE
    return [name_of(one), some(found, 3, empty), age_of(one, now)]


def _node(one: Object, now: datetime) -> list[Any]:
    status, info = status_of(one), status_of(one).get("nodeInfo") or {}
    ready = [found for found in status.get("conditions") or () if found["type"] == "Ready"]
    words = ["Ready" if ready[-1]["status"] == "True" else "NotReady"] if ready else ["Unknown"]
    if spec_of(one).get("unschedulable"):
        words.append("SchedulingDisabled")
    addresses = {address["type"]: address["address"] for address in reversed(status.get("addresses") or ())}
    return [
        name_of(one),
        ",".join(words),
        ",".join(_roles(one["metadata"].get("labels") or {})) or NONE,
        age_of(one, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(labels: Mapping[str, str]) -> list[str]:
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    return sorted((roles | {labels.get("kubernetes.io/role", "")}) - {""})


def _namespace(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), status_of(one).get("phase", ""), age_of(one, now)]


def _config_map(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), len(one.get("data") or ()) + len(one.get("binaryData") or ()), age_of(one, now)]


def _secret(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), one.get("type", ""), len(one.get("data") or ()), age_of(one, now)]


def _service_account(one: Object, now: datetime) -> list[Any]:
    return [name_of(one), len(one.get("secrets") or ()), age_of(one, now)]


_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _storage(quantities: Mapping[str, Any] | None) -> str:
    return quantity_text((quantities or {}).get("storage", "0"))


def _storage_class(one: Object) -> str:
    annotations = one["metadata"].get("annotations") or {}
    old = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(old if old is not None else spec_of(one).get("storageClassName") or "")


def _volume_phase(one: Object) -> str:
    return "Terminating" if one["metadata"].get("deletionTimestamp") else status_of(one).get("phase", "")


def _persistent_volume(one: Object, now: datetime) -> list[Any]:
    spec, claim = spec_of(one), spec_of(one).get("claimRef")
    return [
        name_of(one),
        _storage(spec.get("capacity")),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _volume_phase(one),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class(one),
        spec.get("volumeAttributesClassName", UNSET),
        status_of(one).get("reason", ""),
        age_of(one, now),
        spec.get("volumeMode", UNSET),
    ]


def _persistent_volume_claim(one: Object, now: datetime) -> list[Any]:
    spec, status = spec_of(one), status_of(one)
    bound = bool(spec.get("volumeName"))
    return [
        name_of(one),
        _volume_phase(one),
        spec.get("volumeName", ""),
        _storage(status.get("capacity")) if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        _storage_class(one),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(one, now),
        spec.get("volumeMode", UNSET),
    ]


def _event(one: Object, now: datetime) -> list[Any]:
    """Return the cells of an event. The two groups name its fields differently."""
    first = one.get("firstTimestamp") or one.get("deprecatedFirstTimestamp") or one.get("eventTime")
    last = one.get("lastTimestamp") or one.get("deprecatedLastTimestamp") or first
    count = one.get("count") or one.get("deprecatedCount") or 1
    if series := one.get("series"):
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    target = one.get("involvedObject") or one.get("regarding") or {}
    kind = target.get("kind", "").lower()
    source = one.get("source") or one.get("deprecatedSource") or {}
    component = source.get("component") or one.get("reportingComponent") or one.get("reportingController") or ""
    instance = source.get("host") or one.get("reportingInstance") or ""
    return [
        age(last, now),
        one.get("type", ""),
        one.get("reason", ""),
        f"{kind}/{target['name']}" if target.get("name") else kind,
        target.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (one.get("message") or one.get("note") or "").strip(),
        age(first, now),
        count,
        name_of(one),
    ]


def _replication_controller(one: Object, now: datetime) -> list[Any]:
    template = spec_of(one).get("template")
    return [*replica_cells(one, now), *container_cells(template), labels_text(spec_of(one).get("selector"))]


def _resource_quota(one: Object, now: datetime) -> list[Any]:
    hard, used = status_of(one).get("hard") or {}, status_of(one).get("used") or {}
    texts: dict[bool, list[str]] = {False: [], True: []}
    for name in sorted(hard):
        texts[name.startswith("limits.")].append(
            f"{name}: {quantity_text(used.get(name, '0'))}/{quantity_text(hard[name])}"
        )
    return [name_of(one), ", ".join(texts[False]), ", ".join(texts[True]), age_of(one, now)]


#: Functions that compute the cells of the group's resources, by plural.
CELLS: Final[Mapping[str, Cells]] = {
    "pods": _pod,
    "podtemplates": _pod_template,
    "services": _service,
    "endpoints": _endpoints,
    "nodes": _node,
    "namespaces": _namespace,
    "configmaps": _config_map,
    "secrets": _secret,
    "serviceaccounts": _service_account,
    "persistentvolumes": _persistent_volume,
    "persistentvolumeclaims": _persistent_volume_claim,
    "events": _event,
    "replicationcontrollers": _replication_controller,
    "resourcequotas": _resource_quota,
}
