"""What a node remembers of a container that runs, and what it notes while containers move on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from app.kube.objects import Struct
from app.sandbox.kubelet.behaviour import Behaviour, Pace
from app.sandbox.kubelet.probes import PASSED, Asked
from app.sandbox.kubelet.program import NEVER
from app.sandbox.objects import Container, ContainerStatus, Pod

#: The kubelet's back-off, for pulls and for crashes: this, doubled up to the longest.
BACK_OFF_SECONDS: Final = 10.0
LONGEST_BACK_OFF: Final = 300.0


class Stage(Enum):
    """Where a container is."""

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
    """What the node remembers of a container beside its status."""

    stage: Stage = Stage.NEW
    #: When it began to run.
    since: float = 0.0
    #: When it moves on from a stage that takes a while.
    until: float = NEVER
    #: The image pulled or run.
    image: str = ""
    pull_failures: int = 0
    crashes: int = 0
    #: The exit code of one that is being stopped, and why it is.
    code: int = 0
    why: str = ""
    startup: Asked = PASSED
    readiness: Asked = PASSED
    liveness: Asked = PASSED


NEW: Final = Run()


class Happened(NamedTuple):
    """An event of the Pod; ``container``: which one it is about."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str


@dataclass(slots=True)
class Context:
    """One Pod at one moment, and what is noted while its containers move on."""

    pod: Pod
    now: float
    pace: Pace
    behave: Callable[[Container], Behaviour]
    #: What keeps a container from being created; '' if nothing does.
    hindrance: Callable[[Container], str]
    has_image: Callable[[str], bool]
    unready: frozenset[str] = frozenset()
    crash: Mapping[str, int] = field(default_factory=dict)
    events: list[Happened] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    #: When something is due next.
    next: float = NEVER

    def wait_until(self, moment: float) -> None:
        """Something is due then."""
        self.next = min(self.next, moment)

    def record_event(self, container: Container, reason: str, message: str, *, warning: bool = False) -> None:
        """Note an event about a container."""
        self.events.append(Happened("Warning" if warning else "Normal", reason, message, container.name))


Moved: TypeAlias = "tuple[Run, ContainerStatus] | None"


def back_off(failures: int) -> float:
    """How long to wait after so many failures, in seconds."""
    return min(LONGEST_BACK_OFF, BACK_OFF_SECONDS * 2.0 ** (max(1, failures) - 1))
