"""Plans probes: the Pods a PodProbeMarker selects, the probes for their nodes, and the effect of results on a Pod.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from app.features.podprobe.defaults import HTTP
from app.features.podprobe.objects import ContainerProbe, NodePodProbe, ProbeState
from app.features.podprobe.types import FAILED, SEPARATOR, SUCCEEDED, PodContainerProbe, PodProbeMarker
from app.features.podprobe.validation import RESERVED
from app.kube.jsonvalues import stored_size
from app.kube.objects import Container, ContainerPort, Pod
from app.kube.selectors import Selector
from app.kube.text import truncated
from app.pods.predicates import is_active, is_condition_true

# Pods selected by a PodProbeMarker, and the probes for their nodes. [PPM-11 … PPM-14, PPM-40, PPM-41]

#: Maximum size in bytes of all probes in a NodePodProbe. All namespaces share one object per node, which the API server
#: limits to 1.5 MB; the results may take up twice as much space as the probes, and their messages another 256 KiB. Each
#: namespace may use half of what the others leave free, so the object never fills up, no matter how many namespaces
#: there are. 100 Pods with one probe each use a tenth of this limit.
MAX_BYTES: Final = 384 * 1024
#: Maximum size in bytes of the probes of one namespace, if it is the only one.
MAX_NAMESPACE_BYTES: Final = MAX_BYTES // 2
#: Maximum number of distinct container lists in which the containers and ports of probes are looked up.
MAX_SHAPES: Final = 64
#: Maximum length of the list of a Pod's containers or ports in a message.
_LONGEST_LIST: Final = 512
Json = dict[str, Any]


def is_probed(pod: Pod) -> bool:
    """Return whether the Pod has progressed far enough to be probed. [PPM-11]"""
    return is_active(pod) and bool(pod.spec.node_name) and is_condition_true(pod, "Initialized")


def matching(selector: Selector, pods: Iterable[Pod]) -> list[Pod]:
    """Return the Pods a marker selects. An empty selector selects none. [PPM-10]"""
    if selector.empty:
        return []
    return [pod for pod in pods if is_probed(pod) and selector.matches(pod.metadata.labels)]


@dataclass(frozen=True, slots=True)
class RenderedProbe:
    """A probe as in a NodePodProbe, rendered once for all Pods."""

    name: str
    container_name: str
    probe: Json
    #: Handler and port name, if the port is named and its number depends on the Pod.
    named_port: tuple[str, str] | None


def rendered(probe: PodContainerProbe) -> RenderedProbe:
    """Render a probe with an explicit scheme. A quoted port number becomes a number. [PPM-14, PPM-43]"""
    found, named_port = probe.probe.to_dict(), None
    for handler in ("httpGet", "tcpSocket"):
        action = found.get(handler)
        if action is None:
            continue
        port = action.get("port")
        if isinstance(port, str):
            if port.isascii() and port.isdigit() and len(port) <= 5:
                action["port"] = int(port)
            else:
                named_port = handler, port
        if handler == "httpGet" and not action.get("scheme"):
            action["scheme"] = HTTP
    return RenderedProbe(probe.name, probe.container_name, found, named_port)


def named_ports(pod: Pod) -> Mapping[tuple[str, str], int]:
    """Return the numbers of a Pod's named ports by container and name. If a name repeats, the first port counts."""
    containers = reversed(pod.spec.containers)
    return {(one.name, port.name): port.container_port for one in containers for port in reversed(one.ports)}


def rendered_probe(probe: RenderedProbe, ports: Mapping[tuple[str, str], int]) -> Json | None:
    """Return the probe with its port as a number, or None if the container has no port of that name. [PPM-14]"""
    if probe.named_port is None:
        return probe.probe
    handler, name = probe.named_port
    number = ports.get((probe.container_name, name))
    return None if number is None else {**probe.probe, handler: {**probe.probe[handler], "port": number}}


def pod_probe(marker: str, probes: Sequence[RenderedProbe], pod: Pod) -> Json:
    """Return the NodePodProbe entry of one Pod for the named marker. [PPM-13]"""
    found, ports = [], named_ports(pod)
    for probe in probes:
        on_pod = rendered_probe(probe, ports)
        if on_pod is None:
            continue  # Reported by impossible(). [PPM-47]
        name = f"{marker}{SEPARATOR}{probe.name}"
        found.append({"name": name, "containerName": probe.container_name, "probe": on_pod})
    return entry_of(pod, found)


def pod_probes(marker: str, probes: Sequence[RenderedProbe], pods: Sequence[Pod]) -> tuple[dict[str, Json], int]:
    """Return the NodePodProbe entries of Pods by UID, and the number of Pods left out because a NodePodProbe has no
    room for them. [PPM-46]"""
    found: dict[str, Json] = {}
    size = 0
    for number, pod in enumerate(pods):
        if size > MAX_NAMESPACE_BYTES:
            return found, len(pods) - number
        entry = found[pod.metadata.uid] = pod_probe(marker, probes, pod)
        size += stored_size(entry)
    return found, 0


def entry_of(pod: Pod, probes: list[Json]) -> Json:
    """Return the NodePodProbe entry of a Pod with these probes."""
    metadata = pod.metadata
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "IP": pod.status.pod_ip,
        "probes": probes,
    }


@dataclass(slots=True)
class _Lack:
    """Pods that lack a container or port: the name of the first Pod, what it has instead, and the number of Pods."""

    pod: str
    has: str
    count: int = 0

    def __str__(self) -> str:
        which = f"Pod {self.pod}" if self.count == 1 else f"{self.count} Pods, such as {self.pod}"
        return f"in {which}; it has: {self.has or 'none'}"


def impossible(probes: Sequence[RenderedProbe], pods: Iterable[Pod]) -> dict[str, str]:
    """Return a message for each probe whose container or port some Pods lack, with the number of those Pods.
    [PPM-47]

    One Pod is examined for each distinct list of containers, up to MAX_SHAPES lists.
    """
    alike: dict[object, list[Pod]] = {}
    for pod in pods:
        spec = pod.spec
        kinds = (tuple((one.name, one.ports) for one in each) for each in (spec.containers, spec.init_containers))
        alike.setdefault(tuple(kinds), []).append(pod)
    found: dict[str, _Lack] = {}
    for shape in islice(alike.values(), MAX_SHAPES):
        pod = shape[0]
        there = {one.name: one for one in (*pod.spec.containers, *pod.spec.init_containers)}
        ports = named_ports(pod)
        for probe in probes:
            container = there.get(probe.container_name)
            if container is None:
                lacks, has = f"no container {probe.container_name}", map(_name, pod.spec.containers)
            elif probe.named_port is not None and (probe.container_name, probe.named_port[1]) not in ports:
                lacks, has = f"no such port in container {container.name}", map(_name, container.ports)
            else:
                continue
            what = f"probe {probe.name}: {lacks}"
            if what not in found:
                found[what] = _Lack(pod.metadata.name, truncated(", ".join(has), _LONGEST_LIST))
            found[what].count += len(shape)
    return {what: f"{what} {lack}" for what, lack in found.items()}


def _name(one: Container | ContainerPort) -> str:
    return one.name


def stored_probes(node_pod_probe: NodePodProbe, namespace: str | None) -> Json:
    """Return the entries of a namespace, or all entries if it is None, as the spec of a NodePodProbe (JSON)."""
    entries = [
        {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "IP": pod.ip,
            "probes": [_stored(one) for one in pod.probes],
        }
        for pod in node_pod_probe.spec.pod_probes
        if namespace is None or pod.namespace == namespace
    ]
    return {"podProbes": entries}


def present_probes(node_pod_probe: NodePodProbe, marker: str) -> dict[str, tuple[str, list[Json]]]:
    """Return, by Pod UID, the address and probes that the NodePodProbe holds for a marker, in all namespaces."""
    found: dict[str, tuple[str, list[Json]]] = {}
    for pod in node_pod_probe.spec.pod_probes:
        mine = [_stored(one) for one in pod.probes if one.name.partition(SEPARATOR)[0] == marker]
        if mine:
            found[pod.uid] = (pod.ip, mine)
    return found


def _stored(probe: ContainerProbe) -> Json:
    return {"name": probe.name, "containerName": probe.container_name, "probe": probe.probe}


def replace_probes(spec: Json, namespace: str | None, marker: str, wanted: Mapping[str, Json]) -> list[str]:
    """Change the spec (JSON) of a NodePodProbe in place so that the marker probes exactly these Pods (by UID). Probes
    of other markers are kept. ``namespace`` is the marker's; None covers Pods in all namespaces. [PPM-40, PPM-41]

    Return the names of the Pods left out because their namespace's probes would exceed the size limit. [PPM-46]
    """
    asked: dict[str, dict[str, Json]] = {}
    for uid, entry in wanted.items():
        asked.setdefault(entry["namespace"], {})[uid] = entry
    sizes: Counter[object] = Counter()
    for entry in spec.get("podProbes") or ():
        sizes[entry.get("namespace")] += stored_size(entry)
    wanted = {}
    without: list[str] = []
    for place, entries in asked.items():
        fitting, pods, sizes[place] = _within(spec, place, marker, entries, sizes.total() - sizes[place])
        wanted |= fitting
        without += pods
    left, seen = [], set()
    for entry in spec.get("podProbes") or ():
        uid = entry.get("uid")
        others = [one for one in entry.get("probes") or () if not _is_of(one, marker)]
        if namespace is not None and entry.get("namespace") != namespace:
            left.append(entry)
            continue
        mine = wanted.get(uid)
        if mine is not None and uid not in seen:
            seen.add(uid)
            # A Pod's address may change. [KD-91]
            left.append(
                {**entry, "IP": mine["IP"], "probes": _merged(entry.get("probes") or (), mine["probes"], marker)}
            )
        elif others:
            left.append({**entry, "probes": others})
    left += [entry for uid, entry in wanted.items() if uid not in seen and entry["probes"]]
    spec["podProbes"] = [entry for entry in left if entry.get("probes")]
    if not spec["podProbes"]:
        del spec["podProbes"]
    return without


def _within(
    spec: Json, namespace: str, marker: str, wanted: Mapping[str, Json], elsewhere: int
) -> tuple[Mapping[str, Json], list[str], int]:
    """Return the Pods whose probes fit in addition to the probes of the namespace's other markers, the names of the
    Pods whose probes do not fit, and the size of all probes of the namespace. ``elsewhere`` is the size of the probes
    in other namespaces."""
    others: list[Json] = []
    present = 0
    for entry in spec.get("podProbes") or ():
        if entry.get("namespace") == namespace:
            mine = [one for one in entry.get("probes") or () if _is_of(one, marker)]
            others += (one for one in entry.get("probes") or () if not _is_of(one, marker))
            present += stored_size({**entry, "probes": mine}) if mine else 0
    size = stored_size(others)
    # Other namespaces must not displace probes that already fit.
    limit = max(size + present, (MAX_BYTES - elsewhere) // 2)
    found: dict[str, Json] = {}
    for uid, entry in wanted.items():
        if size + (more := stored_size(entry)) > limit:
            break
        size += more
        found[uid] = entry
    return found, sorted(entry["name"] for uid, entry in wanted.items() if uid not in found), size


def _merged(present: Iterable[Json], mine: list[Json], marker: str) -> list[Json]:
    """Replace the probes that one marker has for a Pod. Unchanged entries keep their position."""
    by_name = {one["name"]: one for one in mine}
    found = [by_name.pop(one["name"], None) if _is_of(one, marker) else one for one in present]
    return [one for one in found if one is not None] + list(by_name.values())


def _is_of(probe: Mapping[str, Any], marker: str) -> bool:
    name = probe.get("name")
    return isinstance(name, str) and name.partition(SEPARATOR)[0] == marker


# Effect of probe results on a Pod: labels, annotations and conditions. [PPM-23 … PPM-25, PPM-31]

_STATES: Final[Mapping[str, str]] = {"True": SUCCEEDED, "False": FAILED}


@dataclass(slots=True)
class Marks:
    """Labels, annotations and conditions to set on a Pod. None removes a key. Later results override earlier ones."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    #: By type; the first result of a type wins. [PPM-24]
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def metadata_patch(self, pod: Pod | None) -> dict[str, Any]:
        """Return the ``metadata`` members that differ from the Pod's, or all of them if the Pod's state is unknown."""
        found: dict[str, Any] = {}
        for member, wanted in (("labels", self.labels), ("annotations", self.annotations)):
            present: Mapping[str, str] = getattr(pod.metadata, member) if pod is not None else {}
            changed = {key: value for key, value in wanted.items() if pod is None or present.get(key) != value}
            if changed:
                found[member] = changed
        return found

    def condition_patch(self, pod: Pod | None) -> list[dict[str, Any]]:
        """Return the conditions whose status or message differs from the Pod's, or all of them if the Pod's state is
        unknown. [PPM-24]"""
        found = []
        conditions = {one.type: one for one in reversed(pod.status.conditions)} if pod is not None else {}
        for type_, wanted in self.conditions.items():
            present = conditions.get(type_)
            if present is None or (present.status, present.message) != (wanted["status"], wanted["message"]):
                found.append(wanted)
        return found


def marks_of(
    states: Iterable[ProbeState], probed: frozenset[str], marker_of: Callable[[str], PodProbeMarker | None]
) -> Marks:
    """Return the labels, annotations and conditions that these results set on a Pod. [PPM-23]

    ``probed`` holds the names of the probes requested from its node; ``marker_of`` looks up a PodProbeMarker by name
    in the Pod's namespace.
    """
    marks = Marks()
    known: dict[str, Mapping[str, PodContainerProbe]] = {}
    for state in states:
        if not state.state or state.name not in probed:
            continue
        marker_name, _, probe_name = state.name.partition(SEPARATOR)
        if marker_name not in known:
            marker = marker_of(marker_name)
            probes = marker.spec.probes if marker is not None and not marker.deleting else ()
            known[marker_name] = {probe.name: probe for probe in probes}
        probe = known[marker_name].get(probe_name)
        if probe is not None:
            _add_condition(marks, probe, state)
            _add_marks(marks, probe, state.state)
    return marks


def marks_of_conditions(marker: PodProbeMarker, pod: Pod) -> Marks:
    """Return the marks for conditions that a provider of serverless Pods has set. No keys are removed. [PPM-31]"""
    marks = Marks()
    for probe in marker.spec.probes:
        condition = pod.condition(probe.pod_condition_type) if probe.pod_condition_type else None
        state = _STATES.get(condition.status) if condition is not None else None
        for policy in probe.marker_policy or ():
            if policy.state == state:
                marks.labels |= policy.labels or {}
                marks.annotations |= policy.annotations or {}
    return marks


def _add_condition(marks: Marks, probe: PodContainerProbe, state: ProbeState) -> None:
    type_ = probe.pod_condition_type
    if not type_ or type_ in marks.conditions or type_ in RESERVED:
        return  # Validation rejects reserved types, but may have been off when the marker was stored. [PPM-44]
    condition: dict[str, Any] = {
        "type": type_,
        "status": "True" if state.state == SUCCEEDED else "False",
        "message": state.message,
    }
    if state.last_probe_time:
        condition["lastProbeTime"] = state.last_probe_time
    if state.last_transition_time:
        condition["lastTransitionTime"] = state.last_transition_time
    marks.conditions[type_] = condition


def _add_marks(marks: Marks, probe: PodContainerProbe, state: str) -> None:
    """Remove the marks for other results, then add the marks for this result. [PPM-25]"""
    policies = probe.marker_policy or ()
    for policy in policies:
        if policy.state != state:
            marks.labels |= dict.fromkeys(policy.labels or {})
            marks.annotations |= dict.fromkeys(policy.annotations or {})
    for policy in policies:
        if policy.state == state:
            marks.labels |= policy.labels or {}
            marks.annotations |= policy.annotations or {}
