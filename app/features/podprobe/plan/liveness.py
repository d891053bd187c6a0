"""What a node probes for liveness, which results mean a restart, and whether there is room for one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.gocore import PROBE
from app.api.gojson import dumps_go, normalized
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.podprobe.objects import ProbeState
from app.features.podprobe.plan.probes import rendered_probe
from app.features.podprobe.types import FAILED, SEPARATOR, PodContainerProbe
from app.features.podprobe.validation import probe_errors
from app.kube.clock import parsed_rfc3339
from app.kube.fielderrors import Path
from app.kube.images import remembered
from app.kube.objects import ContainerStatus, Pod

# Liveness probes in an annotation of their Pod, as OpenKruise writes it (PW-18). Pure.

_PROBE: Final = Path("livenessProbe")


def readable(container: str, probe: Mapping[str, Any]) -> PodContainerProbe | None:
    """PPM-56: the probe (JSON) of a container; None where the node agent cannot run it: by gRPC, or of another host."""
    try:
        read = PodContainerProbe.model_validate({"name": container, "containerName": container, "probe": probe})
    except ValidationError:
        return None
    return None if probe_errors(read.probe.to_dict(), _PROBE) else read


def annotation(probes: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """The value of the annotation: each container's probe, in the order in which Go prints its fields."""
    return dumps_go([{"name": name, "livenessProbe": normalized(PROBE, probe)} for name, probe in probes])


def saved_probes(pod: Pod) -> tuple[PodContainerProbe, ...]:
    """The probes of a Pod; what cannot be read, or run, is left out, and each container has one at most."""
    text = pod.metadata.annotations.get(names.CONTAINER_PROBE_CONTEXT, "")
    return _read(text) if text else ()


@remembered(1024, longest=8192)
def _read(text: str) -> tuple[PodContainerProbe, ...]:
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    found: dict[str, PodContainerProbe] = {}
    for entry in entries if isinstance(entries, list) else ():
        name, probe = (entry.get("name"), entry.get("livenessProbe")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not name or not isinstance(probe, dict) or name in found:
            continue
        if (read := readable(name, probe)) is not None:
            found[name] = read
    return tuple(found.values())


# What a node probes for liveness, which results mean a restart, and whether there is room for it (PPM-50 … PPM-55).
# Pure.

REQUESTS: Final = CONTAINER_RECREATE_REQUEST.resource()
decode_request: Final = ContainerRecreateRequest.model_validate_json
#: In the place of a PodProbeMarker's name; none can have this one.
OWNER: Final = "kruise/liveness"
#: How long a request is kept after its end. A container that still fails then is asked for again.
TTL_SECONDS: Final = 300
#: How long a request may take, beside the time the container has to end: one that never gets ready again must not keep
#: the next request waiting for ever.
DEADLINE_SECONDS: Final = 60
_DEFAULT_GRACE: Final = 30
Json = dict[str, Any]


def probe_name(status: ContainerStatus) -> str:
    """PPM-50: what the probe of a container is called in a NodePodProbe. Each run has a probe of its own: until it is
    asked for, the one of the run before may go on and fail while the container starts."""
    return f"{OWNER}{SEPARATOR}{status.name}-{status.restart_count}"


def pod_entry(pod: Pod, present: Collection[str]) -> Json:
    """PPM-50: what its node probes of one Pod; ``present``: the names of the probes it runs now.

    A container that runs has started once its startup probe, if it has one, succeeded.
    """
    statuses = {one.name: one for one in pod.status.container_statuses}
    found = []
    for saved in saved_probes(pod):
        status = statuses.get(saved.container_name)
        if status is None:
            continue
        name = probe_name(status)
        if not (status.started if status.state.running is not None else name in present):
            continue
        rendered = rendered_probe(saved, pod)
        if rendered is not None:
            found.append({"name": name, "containerName": saved.container_name, "probe": rendered})
    metadata = pod.metadata
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "IP": pod.status.pod_ip,
        "probes": found,
    }


@dataclass(frozen=True, slots=True)
class Failure:
    """A container that does not live, in the run it is in."""

    container: str
    container_id: str
    restart_count: int
    message: str
    #: How long it may take to end, where its probe says so.
    grace_seconds: int | None = None


def failures(pod: Pod, states: Iterable[ProbeState]) -> list[Failure]:
    """PPM-51: the containers whose probe has failed since they were started. ``states``: the results for the Pod."""
    by_name = {one.name: one for one in states}
    statuses = {one.name: one for one in pod.status.container_statuses}
    found = []
    for saved in saved_probes(pod):
        status = statuses.get(saved.container_name)
        state = by_name.get(probe_name(status)) if status is not None else None
        if state is None or status is None or state.state != FAILED or not _is_about(state, status):
            continue
        grace = saved.probe.termination_grace_period_seconds
        found.append(Failure(saved.container_name, status.container_id, status.restart_count, state.message, grace))
    return found


def _is_about(state: ProbeState, status: ContainerStatus) -> bool:
    """Whether the result is about the container that runs now. Times are in seconds, and no probe runs within the
    first: a result of the same second is about the one before."""
    probed, running = parsed_rfc3339(state.last_probe_time), status.state.running
    if probed is None or running is None or running.started_at is None or not status.started:
        return False
    return probed > running.started_at


def request_name(pod: Pod, failure: Failure) -> str:
    """PPM-52: one request for each run of a container."""
    return f"liveness-{pod.metadata.uid}-{failure.container}-{failure.restart_count}"


def recreate_request(pod: Pod, failure: Failure) -> Json:
    """PPM-52."""
    metadata = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid, "controller": True}
    strategy: Json = {"failurePolicy": "Fail"}
    grace = failure.grace_seconds
    if grace is not None:
        strategy["terminationGracePeriodSeconds"] = grace
    else:
        given = pod.spec.termination_grace_period_seconds
        grace = given if given is not None else _DEFAULT_GRACE
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": REQUESTS.kind,
        "metadata": {
            "name": request_name(pod, failure),
            "namespace": metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": {
            "podName": metadata.name,
            "containers": [{"name": failure.container}],
            "strategy": strategy,
            "activeDeadlineSeconds": grace + DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": TTL_SECONDS,
        },
    }


def is_open(request: ContainerRecreateRequest) -> bool:
    """Whether the request is still worked on."""
    return not request.deleting and not (request.status is not None and request.status.completion_time)


def is_available(pod: Pod, disrupted: Collection[str]) -> bool:
    """PPM-53: whether the Pod is ready, and stays so. ``disrupted``: uids of Pods whose containers are restarted."""
    metadata, ready = pod.metadata, pod.condition("Ready")
    if metadata.deletion_timestamp is not None or metadata.uid in disrupted:
        return False
    return ready is not None and ready.status == "True"


@dataclass(frozen=True, slots=True)
class Room:
    """PPM-53: how many Pods of a workload are available, and how many must be."""

    available: int
    least: int

    @property
    def is_left(self) -> bool:
        """Whether one more may become unavailable."""
        return self.available > self.least


def room(pods: Iterable[Pod], least: int, disrupted: Collection[str]) -> Room:
    """``pods``: those of the workload; ``least``: how many of them it wants available."""
    return Room(sum(is_available(pod, disrupted) for pod in pods), least)


def states_by_uid(statuses: Iterable[Any]) -> Mapping[str, tuple[ProbeState, ...]]:
    """The results in a NodePodProbe, by uid of their Pod."""
    return {one.uid: one.probe_states for one in statuses}
