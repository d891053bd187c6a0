"""When a probe runs, what its results mean, and what the node's NodePodProbe says about them (KD-60 … KD-68). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from app.daemon.actions import Outcome
from app.daemon.cri.types import ContainerDetails, ContainerState
from app.daemon.objects import NodePodProbe, PodProbeStatus, Probe, ProbeState

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
#: KD-66: a result that does not change is told again after so long.
REFRESH_SECONDS: Final = 600.0
#: KD-98: what the messages of all probes may take of a NodePodProbe, in bytes as it is stored. An API server takes
#: 1.5 MB of it, with what is asked for: whoever has many probes say much must not keep those of others from being told.
MAX_MESSAGES: Final = 512 * 1024
#: How many bytes more a character takes where it is stored than here: an API server escapes these as well.
_WIDER: Final = {"<": 5, ">": 5, "&": 5, "\b": 4, "\f": 4, "\u2028": 3, "\u2029": 3}
#: What no character takes more of.
_WIDEST: Final = 6


class Key(NamedTuple):
    """KD-60: one probe of one container of one very Pod."""

    namespace: str
    pod: str
    uid: str
    container: str
    probe: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a probe does. The Pod's address is looked up each time (KD-91)."""

    probe: Probe
    ip: str

    @property
    def period(self) -> float:
        """KD-61."""
        return float(max(1, self.probe.period_seconds))

    @property
    def timeout(self) -> float:
        """KD-61."""
        return float(max(1, self.probe.timeout_seconds))

    @property
    def delay(self) -> float:
        """KD-61."""
        return float(max(1, self.probe.initial_delay_seconds))

    def threshold(self, succeeded: bool) -> int:
        """KD-61: how often in a row a result must come before it counts."""
        return max(1, self.probe.success_threshold if succeeded else self.probe.failure_threshold)

    def asks_the_same_as(self, other: Wanted) -> bool:
        """KD-60: whether a result of the one is a result of the other."""
        ours, theirs = self.probe, other.probe
        return (ours.exec, ours.http_get, ours.tcp_socket) == (theirs.exec, theirs.http_get, theirs.tcp_socket)


def wanted(node_pod_probe: NodePodProbe | None) -> dict[Key, Wanted]:
    """Every probe that is asked for."""
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
    """What a probe remembers from one time to the next."""

    container_id: str = ""
    #: The last outcome, and how often in a row it came.
    last: bool | None = None
    run: int = 0
    #: What is known of this container; empty: nothing yet.
    state: str = ""
    message: str = ""
    recorded_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """What comes of a look at the container: whether to probe it, and what is known."""

    progress: ProbeProgress
    probe: bool = False
    #: There is something to tell.
    changed: bool = False


def before(progress: ProbeProgress, container: ContainerDetails | None, want: Wanted, now: float, wall: float) -> Step:
    """KD-63, the rows before the probe. ``now`` on the clock of the progress, ``wall`` since the epoch."""
    if container is None:
        return Step(progress)
    changed = False
    if container.id != progress.container_id:
        progress = ProbeProgress(container.id, state=UNKNOWN, recorded_at=now)
        changed = True
    if container.state is not ContainerState.RUNNING:
        # KD-93: what does not run is not probed as well.
        message = f"Container({container.name}) is Non-running"
        told = record(replace(progress, last=None, run=0), FAILED, message, now)
        return Step(told.progress, changed=changed or told.changed)
    if wall - container.started_at / 1e9 < want.delay:
        return Step(progress, changed=changed)
    return Step(progress, probe=True, changed=changed)


def after(progress: ProbeProgress, outcome: Outcome, want: Wanted, now: float) -> Step:
    """KD-63, the rows after it."""
    run = progress.run + 1 if progress.last is outcome.succeeded else 1
    progress = replace(progress, last=outcome.succeeded, run=run)
    if run < want.threshold(outcome.succeeded):
        return Step(progress)
    return record(progress, SUCCEEDED if outcome.succeeded else FAILED, outcome.message, now)


def not_made(progress: ProbeProgress, why: str, now: float) -> Step:
    """KD-69: the probe could not be made. What was known before stays; where nothing was, the first reason is told:
    runtimes name a command anew each time."""
    if progress.state != UNKNOWN or progress.message:
        return Step(progress)
    return record(progress, UNKNOWN, why, now)


def record(progress: ProbeProgress, state: str, message: str, now: float) -> Step:
    """KD-66: take note of a result."""
    changed = (state, message) != (progress.state, progress.message)
    if not changed and now - progress.recorded_at < REFRESH_SECONDS:
        return Step(progress)
    return Step(replace(progress, state=state, message=message, recorded_at=now), changed=True)


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of one probe, and since when it is told."""

    state: str
    message: str
    probed_at: str


@dataclass(frozen=True, slots=True)
class Report:
    """What to write, and which results are news (KD-92)."""

    status: Mapping[str, Any] | None
    news: tuple[tuple[Key, Result], ...] = field(default=())


def report(node_pod_probe: NodePodProbe, results: Mapping[Key, Result]) -> Report:
    """KD-67: the status with what is known now; nothing to write where it says that already.

    Results are found by the Pod's uid, so none gets to another Pod of the name.
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
                result = replace(result, message=_cut(result.message, share))
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


def _cut(message: str, limit: int) -> str:
    """KD-98, KD-95: no more bytes than this where it is stored, and whole characters."""
    if len(message) <= limit // _WIDEST or _stored(message) <= limit:
        return message
    fits = bisect_right(range(1, len(message) + 1), limit, key=lambda length: _stored(message[:length]))
    return message[:fits]


def _stored(text: str) -> int:
    """How many bytes a text takes in the JSON that an API server stores."""
    return len(orjson.dumps(text)) - 2 + sum(more * text.count(character) for character, more in _WIDER.items())


def _state(name: str, old: ProbeState | None, result: Result) -> ProbeState:
    is_same = old is not None and old.state == result.state
    since = old.last_transition_time if old is not None and is_same else result.probed_at
    return ProbeState(name, result.state, result.probed_at, since, result.message)


def event_reason(state: str) -> str:
    """KD-68."""
    return "KruiseProbeSucceeded" if state == SUCCEEDED else "KruiseProbeFailed"
