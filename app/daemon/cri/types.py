"""What the agent asks of a container runtime, and what it gets. Knows nothing of gRPC: a simulation gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from app.kube.errors import KubeError

#: What the kubelet writes on every container.
POD_UID: Final = "io.kubernetes.pod.uid"


class CriError(KubeError):
    """The runtime refuses, or cannot do what it is asked to."""


class RuntimeUnavailable(CriError):
    """The runtime cannot be reached now."""


class DeadlineExceeded(CriError):
    """The call took longer than it may."""


class NoSuchContainer(CriError):
    """The runtime does not know the container (any more)."""


class ContainerState(IntEnum):
    """KD-13: a container as the runtime has it."""

    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Container:
    """One container in a list. Times in nanoseconds since the epoch."""

    id: str
    name: str
    state: ContainerState
    created_at: int


@dataclass(frozen=True, slots=True)
class ContainerDetails:
    """One container with all that is read of it. Times in nanoseconds since the epoch; 0: not yet."""

    id: str
    name: str
    state: ContainerState
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def is_of(self, pod_uid: str) -> bool:
        """KD-99: whether it is a container of that Pod, by the kubelet's label; one without it is."""
        return self.labels.get(POD_UID, pod_uid) == pod_uid


@dataclass(frozen=True, slots=True)
class Image:
    """One image that the node has."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Auth:
    """Who pulls. Never shown: neither in logs nor in errors."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class Runtime(Protocol):
    """One runtime. Every call may raise ``CriError``."""

    @property
    def name(self) -> str:
        """What container ids of Pods begin with: ``containerd``, ``cri-o``, ``docker``."""
        ...

    async def images(self, seconds: float) -> Sequence[Image]:
        """The images of the node."""
        ...

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        """Pull an image. Cancelling the call cancels the pull. Labels and annotations describe the Pod."""
        ...

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        """The containers of a Pod, those that have ended too."""
        ...

    async def container(self, container_id: str) -> Container | None:
        """One container, if the runtime knows it."""
        ...

    async def details(self, container_id: str) -> ContainerDetails:
        """One container with its times, labels and annotations."""
        ...

    async def stop(self, container_id: str, grace: int) -> None:
        """End a container: after so many seconds it is killed."""
        ...

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        """Run a command in a container; ``seconds`` 0: as long as it takes. Raises ``DeadlineExceeded``."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
