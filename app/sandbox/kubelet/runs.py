"""State of simulated containers and results of their probes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final, Literal, NamedTuple, TypeAlias

from app.kube.objects import Struct
from app.sandbox.kubelet.program import NEVER, Behaviour, Pace, answer_of
from app.sandbox.objects import Container, ContainerStatus, Pod, Probe

# Probes run when a kubelet would run them; the container's predicted program determines the result. A probe whose
# result cannot change is not run again, so that ten thousand idle Pods cost nothing.


class Kind(Enum):
    """What a probe determines: whether the container has started, is ready, or is alive."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"


class Asked(Struct, frozen=True):
    """State of a probe. ``next`` is when it runs next, in seconds on the node's clock; ``NEVER`` means the result is
    final."""

    next: float = 0.0
    streak: int = 0
    last: bool = False
    result: bool = False


#: A container without a probe counts as passing it.
PASSED: Final = Asked(next=NEVER, result=True)


def first(probe: Probe | None, started_at: float, not_before: float, *, result: bool) -> Asked:
    """Return the initial state of a probe for a container started at ``started_at``."""
    if probe is None:
        return PASSED
    return Asked(next=max(started_at + probe.initial_delay_seconds, not_before), result=result)


def probe_of(container: Container, kind: Kind, behaviour: Behaviour) -> Probe | None:
    """Return the container's probe. Scripted readiness needs no probe in the spec; it is then checked every second."""
    match kind:
        case Kind.STARTUP:
            return container.startup_probe
        case Kind.LIVENESS:
            return container.liveness_probe
    script = behaviour.script
    if container.readiness_probe is None and (script.ready_after or script.ready_until < NEVER):
        return Probe(period_seconds=1, failure_threshold=1)
    return container.readiness_probe


def asked(probe: Probe, kind: Kind, behaviour: Behaviour, state: Asked, started_at: float, now: float) -> Asked:
    """Return the state of the probe after all its runs up to ``now``, or up to the one that fails the container."""
    while state.next <= now:
        ok, stays = _answer(probe, kind, behaviour, state.next - started_at)
        streak = state.streak + 1 if state.streak and ok is state.last else 1
        threshold = probe.success_threshold if ok else probe.failure_threshold
        decided = streak >= max(1, threshold)
        result = ok if decided else state.result
        next_ = state.next + max(1, probe.period_seconds)
        if decided:
            next_ = max(next_, _first_after(state.next, started_at + stays, max(1, probe.period_seconds)))
        lost = decided and not ok and kind is not Kind.READINESS
        state = Asked(NEVER if lost else next_, streak, ok, result)
    return state


def _first_after(tick: float, moment: float, period: int) -> float:
    """Return the first time the probe runs at or after ``moment``."""
    if moment == NEVER:
        return NEVER
    return tick + ceil(max(0.0, moment - tick) / period - 1e-9) * period


def _answer(probe: Probe, kind: Kind, behaviour: Behaviour, seconds: float) -> tuple[bool, float]:
    """Return the result of the probe ``seconds`` after the start, and the time until which it holds."""
    script = behaviour.script
    since, until = {
        Kind.STARTUP: (script.started_after, NEVER),
        Kind.READINESS: (script.ready_after, script.ready_until),
        Kind.LIVENESS: (0.0, script.alive_until),
    }[kind]
    if seconds < since:
        return False, since
    if seconds >= until:
        return False, NEVER
    if probe.exec is None:
        return True, until
    ok, stays = answer_of(probe.exec.command, behaviour.program, seconds)
    return ok, min(stays, until)


#: The kubelet's back-off after failed pulls and crashes: initial and maximum seconds. It doubles each time.
BACK_OFF_SECONDS: Final = 10.0
LONGEST_BACK_OFF: Final = 300.0


class Stage(Enum):
    """Stage of a container."""

    NEW = "new"
    PULLING = "pulling"
    PULL_FAILED = "pull failed"
    PULL_BACK_OFF = "pull back-off"
    BAD_IMAGE = "bad image"
    CONFIGURING = "configuring"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    CRASH_BACK_OFF = "crash back-off"


class Run(Struct, frozen=True):
    """What the node remembers about a container in addition to its status."""

    stage: Stage = Stage.NEW
    #: When the container started running.
    since: float = 0.0
    #: When the container leaves its current stage, if the stage takes time.
    until: float = NEVER
    #: The image being pulled or run.
    image: str = ""
    pull_failures: int = 0
    crashes: int = 0
    #: Exit code and reason of a container being stopped.
    code: int = 0
    why: str = ""
    startup: Asked = PASSED
    readiness: Asked = PASSED
    liveness: Asked = PASSED


NEW: Final = Run()


class Happened(NamedTuple):
    """A Pod event about ``container``."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str


@dataclass(slots=True)
class Context:
    """A Pod at one point in time, and the events and images that its containers record as they advance."""

    pod: Pod
    now: float
    pace: Pace
    behave: Callable[[Container], Behaviour]
    #: Why a container cannot be created, or ''.
    hindrance: Callable[[Container], str]
    has_image: Callable[[str], bool]
    unready: frozenset[str] = frozenset()
    crash: Mapping[str, int] = field(default_factory=dict)
    events: list[Happened] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    #: When to wake up next.
    next: float = NEVER

    def wait_until(self, moment: float) -> None:
        """Wake up at this time at the latest."""
        self.next = min(self.next, moment)

    def record_event(self, container: Container, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about a container."""
        self.events.append(Happened("Warning" if warning else "Normal", reason, message, container.name))


Moved: TypeAlias = "tuple[Run, ContainerStatus] | None"


def back_off(failures: int) -> float:
    """Return the back-off in seconds after this many failures."""
    return min(LONGEST_BACK_OFF, BACK_OFF_SECONDS * 2.0 ** (max(1, failures) - 1))
