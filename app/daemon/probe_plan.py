"""Timing of probes, meaning of their results, and the status of the node's NodePodProbe. Pure. [KD-60 … KD-68]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from app.daemon.cri.types import ContainerDetails, ContainerState
from app.daemon.objects import NodePodProbe, PodProbeStatus, Probe, ProbeState
from app.daemon.probes_and_hooks import Outcome
from app.kube.jsonvalues import cut_text

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
#: An unchanged result is reported again after this many seconds. [KD-66]
REFRESH_SECONDS: Final = 600.0
#: Maximum total size of the messages in a NodePodProbe, in bytes as stored. The API server accepts 1.5 MB including
#: the spec (384 KiB) and the results without messages (768 KiB); verbose probes must not prevent the results of others
#: from being reported. [KD-98]
MAX_MESSAGES: Final = 256 * 1024


class Key(NamedTuple):
    """One probe of one container; ``uid`` identifies the Pod. [KD-60]"""

    namespace: str
    pod: str
    uid: str
    container: str
    probe: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A probe to run. The Pod's address is looked up for each run. [KD-91]"""

    probe: Probe
    ip: str

    @property
    def period(self) -> float:
        """Seconds between probes. [KD-61]"""
        return float(max(1, self.probe.period_seconds))

    @property
    def timeout(self) -> float:
        """Timeout in seconds. [KD-61]"""
        return float(max(1, self.probe.timeout_seconds))

    @property
    def delay(self) -> float:
        """Initial delay in seconds. [KD-61]"""
        return float(max(1, self.probe.initial_delay_seconds))

    def threshold(self, succeeded: bool) -> int:
        """Return how many consecutive results it takes to change the state. [KD-61]"""
        return max(1, self.probe.success_threshold if succeeded else self.probe.failure_threshold)

    def asks_the_same_as(self, other: Wanted) -> bool:
        """Return whether both probes run the same action, in which case results carry over. [KD-60]"""
        ours, theirs = self.probe, other.probe
        return (ours.exec, ours.http_get, ours.tcp_socket) == (theirs.exec, theirs.http_get, theirs.tcp_socket)


def wanted(node_pod_probe: NodePodProbe | None) -> dict[Key, Wanted]:
    """Return every requested probe."""
    if node_pod_probe is None:
        return {}
    return {
        Key(pod.namespace, pod.name, pod.uid, probe.container_name, probe.name): Wanted(probe.probe, pod.ip)
        for pod in node_pod_probe.spec.pod_probes
        for probe in pod.probes
        if pod.uid
    }


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """State of a probe between runs."""

    container_id: str = ""
    #: The last outcome and how many times in a row it occurred.
    last: bool | None = None
    run: int = 0
    #: Probe state of this container: Succeeded, Failed or Unknown; empty until the container is found.
    state: str = ""
    message: str = ""
    recorded_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """Result of checking the container: the new progress and whether to probe."""

    progress: ProbeProgress
    probe: bool = False
    #: Whether there is something to report.
    changed: bool = False


def before(progress: ProbeProgress, container: ContainerDetails | None, want: Wanted, now: float, wall: float) -> Step:
    """Check the container before the probe. ``now`` is monotonic, ``wall`` is seconds since the epoch. [KD-63]"""
    if container is None:
        return Step(progress)
    changed = False
    if container.id != progress.container_id:
        progress = ProbeProgress(container.id, state=UNKNOWN, recorded_at=now)
        changed = True
    if container.state is not ContainerState.RUNNING:
        # A container that is not running counts as a failed probe. [KD-93]
        message = f"Container({container.name}) is Non-running"
        told = record(replace(progress, last=None, run=0), FAILED, message, now)
        return Step(told.progress, changed=changed or told.changed)
    if wall - container.started_at / 1e9 < want.delay:
        return Step(progress, changed=changed)
    return Step(progress, probe=True, changed=changed)


def after(progress: ProbeProgress, outcome: Outcome, want: Wanted, now: float) -> Step:
    """Evaluate the outcome of the probe. [KD-63]"""
    run = progress.run + 1 if progress.last is outcome.succeeded else 1
    progress = replace(progress, last=outcome.succeeded, run=run)
    if run < want.threshold(outcome.succeeded):
        return Step(progress)
    return record(progress, SUCCEEDED if outcome.succeeded else FAILED, outcome.message, now)


def not_made(progress: ProbeProgress, why: str, now: float) -> Step:
    """Handle a probe that could not be run. A known state is kept; otherwise only the first reason is reported, because
    the runtime's message differs for every run. [KD-69]"""
    if progress.state != UNKNOWN or progress.message:
        return Step(progress)
    return record(progress, UNKNOWN, why, now)


def record(progress: ProbeProgress, state: str, message: str, now: float) -> Step:
    """Record a result. [KD-66]"""
    changed = (state, message) != (progress.state, progress.message)
    if not changed and now - progress.recorded_at < REFRESH_SECONDS:
        return Step(progress)
    return Step(replace(progress, state=state, message=message, recorded_at=now), changed=True)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one probe and when it was recorded."""

    state: str
    message: str
    probed_at: str


@dataclass(frozen=True, slots=True)
class Report:
    """Status to write (None if it is up to date) and the results that changed. [KD-66]"""

    status: Mapping[str, Any] | None
    news: tuple[tuple[Key, Result], ...] = field(default=())


def report(node_pod_probe: NodePodProbe, results: Mapping[Key, Result]) -> Report:
    """Return the status with the latest results; its ``status`` is None if nothing needs to be written. [KD-67]

    Results are matched by the Pod's UID, so a Pod of the same name never receives them.
    """
    known = {
        (status.uid, state.name): state
        for status in node_pod_probe.status.pod_probe_statuses
        for state in status.probe_states
    }
    share = MAX_MESSAGES // max(1, sum(len(pod.probes) for pod in node_pod_probe.spec.pod_probes))
    statuses: list[PodProbeStatus] = []
    news: list[tuple[Key, Result]] = []
    for pod in node_pod_probe.spec.pod_probes:
        states = []
        for probe in pod.probes:
            key = Key(pod.namespace, pod.name, pod.uid, probe.container_name, probe.name)
            old, result = known.get((pod.uid, probe.name)), results.get(key)
            if result is not None:
                result = replace(result, message=cut_text(result.message, share))
                state = _state(probe.name, old, result)
                if old is None or (state.state, state.message) != (old.state, old.message):
                    news.append((key, result))
                states.append(state)
            elif old is not None:
                states.append(old)
        if states:
            statuses.append(PodProbeStatus(pod.name, pod.namespace, pod.uid, tuple(states)))
    if tuple(statuses) == node_pod_probe.status.pod_probe_statuses:
        return Report(None)
    return Report({"podProbeStatuses": msgspec.to_builtins(statuses) or None}, tuple(news))


def _state(name: str, old: ProbeState | None, result: Result) -> ProbeState:
    is_same = old is not None and old.state == result.state
    since = old.last_transition_time if old is not None and is_same else result.probed_at
    return ProbeState(name, result.state, result.probed_at, since, result.message)
