"""Plans liveness probes: the probes of a node, the results that require a restart, and whether the workload can afford
the restart. Pure. [PPM-50 … PPM-55]"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.gocore import PROBE
from app.api.gojson import dumps_go, normalized
from app.features.containerrecreate.kind import request_for
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.podprobe.objects import ProbeState
from app.features.podprobe.plan.probes import entry_of, named_ports, rendered, rendered_probe
from app.features.podprobe.types import FAILED, SEPARATOR, PodContainerProbe
from app.features.podprobe.validation import probe_errors
from app.kube.clock import parsed_rfc3339
from app.kube.fielderrors import Path
from app.kube.images import remembered
from app.kube.jsonvalues import objects
from app.kube.objects import ContainerStatus, Pod
from app.pods.predicates import is_ready

# Liveness probes in a Pod annotation, in OpenKruise's format. [PW-18]

_PROBE: Final = Path("livenessProbe")


def readable(container: str, probe: Mapping[str, Any]) -> PodContainerProbe | None:
    """Return a container's probe, or None if the node agent cannot run it because it uses gRPC or names a host.
    [PPM-56]"""
    try:
        read = PodContainerProbe.model_validate({"name": container, "containerName": container, "probe": probe})
    except ValidationError:
        return None
    return None if any(probe_errors(read.probe.to_dict(), _PROBE)) else read


def annotation(probes: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the annotation value: the probe of each container, with fields in the order in which Go marshals them."""
    return dumps_go([{"name": name, "livenessProbe": normalized(PROBE, probe)} for name, probe in probes])


def saved_probes(pod: Pod, containers: Collection[str]) -> tuple[PodContainerProbe, ...]:
    """Return the Pod's saved probes of these containers, at most one per container. Probes that cannot be parsed or run
    are skipped. Probes of other containers are not parsed: a user may have written thousands of them."""
    text = pod.metadata.annotations.get(names.CONTAINER_PROBE_CONTEXT, "")
    return _read(text, *containers) if text and containers else ()


@remembered(1024, longest=8192)
def _read(text: str, *containers: str) -> tuple[PodContainerProbe, ...]:
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    wanted = set(containers)
    found = []
    for entry in objects(entries):
        name, probe = entry.get("name"), entry.get("livenessProbe")
        if not isinstance(name, str) or name not in wanted:
            continue
        wanted.remove(name)
        if isinstance(probe, dict) and (read := readable(name, probe)) is not None:
            found.append(read)
    return tuple(found)


#: Used in place of a PodProbeMarker's name. No marker can have this name.
OWNER: Final = "kruise/liveness"
#: Seconds for which a finished request is kept. If the container still fails afterwards, a new request is created.
TTL_SECONDS: Final = 300
#: Seconds a request may take on top of the container's grace period. A container that never becomes ready must not
#: block the next request forever.
DEADLINE_SECONDS: Final = 60
_DEFAULT_GRACE: Final = 30
_MAX_INT64: Final = 2**63 - 1
Json = dict[str, Any]


def probe_name(status: ContainerStatus) -> str:
    """Return the name of a container's probe in a NodePodProbe. Each run of the container has its own probe, so that
    results of the previous run do not count while the container starts. [PPM-50]"""
    return f"{OWNER}{SEPARATOR}{status.name}-{status.restart_count}"


def pod_entry(pod: Pod, present: Collection[str]) -> Json:
    """Return the NodePodProbe entry of one Pod. ``present`` holds the names of the probes that the node runs now.
    [PPM-50]

    A running container counts as started once its startup probe, if any, has succeeded.
    """
    probed = {
        one.name: probe_name(one)
        for one in pod.status.container_statuses
        if (one.started if one.state.running is not None else probe_name(one) in present)
    }
    found, ports = [], named_ports(pod)
    for saved in saved_probes(pod, probed):
        probe = rendered_probe(rendered(saved), ports)
        if probe is not None:
            found.append({"name": probed[saved.container_name], "containerName": saved.container_name, "probe": probe})
    return entry_of(pod, found)


@dataclass(frozen=True, slots=True)
class Failure:
    """A container whose liveness probe failed during its current run."""

    container: str
    container_id: str
    restart_count: int
    message: str
    #: The probe's terminationGracePeriodSeconds, if set.
    grace_seconds: int | None = None


def failures(pod: Pod, states: Iterable[ProbeState]) -> list[Failure]:
    """Return the containers whose probe has failed since they started. ``states`` holds the Pod's results. [PPM-51]"""
    by_name = {one.name: one for one in states if one.state == FAILED}
    failed = {
        one.name: (one, state)
        for one in pod.status.container_statuses
        if (state := by_name.get(probe_name(one))) is not None and _is_about(state, one)
    }
    found = []
    for saved in saved_probes(pod, failed):
        (status, state), grace = failed[saved.container_name], saved.probe.termination_grace_period_seconds
        found.append(Failure(saved.container_name, status.container_id, status.restart_count, state.message, grace))
    return found


def _is_about(state: ProbeState, status: ContainerStatus) -> bool:
    """Return whether the result belongs to the container's current run. Times have a resolution of one second, and no
    probe runs within a container's first second, so a result from that second belongs to the previous run."""
    probed, running = parsed_rfc3339(state.last_probe_time), status.state.running
    if probed is None or running is None or running.started_at is None or not status.started:
        return False
    return probed > running.started_at


def request_name(pod: Pod, failure: Failure) -> str:
    """Return the request's name, which is unique per run of a container. [PPM-52]"""
    return f"liveness-{pod.metadata.uid}-{failure.container}-{failure.restart_count}"


def recreate_request(pod: Pod, failure: Failure) -> Json:
    """Return the ContainerRecreateRequest that restarts the container. [PPM-52]"""
    strategy: Json = {"failurePolicy": "Fail"}
    grace = failure.grace_seconds
    if grace is not None:
        strategy["terminationGracePeriodSeconds"] = grace
    else:
        given = pod.spec.termination_grace_period_seconds
        grace = given if given is not None else _DEFAULT_GRACE
    return request_for(
        pod.metadata,
        request_name(pod, failure),
        (failure.container,),
        strategy=strategy,
        activeDeadlineSeconds=min(grace + DEADLINE_SECONDS, _MAX_INT64),
        ttlSecondsAfterFinished=TTL_SECONDS,
    )


def is_open(request: ContainerRecreateRequest) -> bool:
    """Return whether the request is still in progress."""
    return not request.deleting and not (request.status is not None and request.status.completion_time)


def is_available(pod: Pod, disrupted: Collection[str]) -> bool:
    """Return whether the Pod is ready and neither being deleted nor in ``disrupted``, which holds the UIDs of Pods
    whose containers are being restarted. [PPM-53]"""
    metadata = pod.metadata
    return is_ready(pod) and metadata.deletion_timestamp is None and metadata.uid not in disrupted
