"""Container runtime calls and types, independent of gRPC so that simulations can implement them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from app.kube.errors import KubeError

#: A label and an annotation that the kubelet sets on every container. [KD-14]
POD_UID: Final = "io.kubernetes.pod.uid"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"


class CriError(KubeError):
    """The runtime rejected the call or failed to carry it out."""


class RuntimeUnavailable(CriError):
    """The runtime is currently unreachable."""


class DeadlineExceeded(CriError):
    """The call exceeded its timeout."""


class NoSuchContainer(CriError):
    """The runtime has no such container."""


class ContainerState(IntEnum):
    """State of a container in the runtime. [KD-13]"""

    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Container:
    """A container in a list. Times are nanoseconds since the epoch."""

    id: str
    name: str
    state: ContainerState
    created_at: int


@dataclass(frozen=True, slots=True)
class ContainerDetails:
    """Details of a container. Times are nanoseconds since the epoch; 0 means unset."""

    id: str
    name: str
    state: ContainerState
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def restart_count(self) -> int:
        """Return the kubelet's restart count; 0 if it is missing or invalid."""
        text = self.annotations.get(RESTART_COUNT, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

    def is_of(self, pod_uid: str) -> bool:
        """Return whether the kubelet's label names this Pod; containers without the label match every Pod. [KD-99]"""
        return self.labels.get(POD_UID, pod_uid) == pod_uid


@dataclass(frozen=True, slots=True)
class Image:
    """An image on the node."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Auth:
    """Credentials for a pull. Never shown in logs or errors."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Result of a command."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class Runtime(Protocol):
    """A container runtime. Every call may raise ``CriError``."""

    @property
    def name(self) -> str:
        """Prefix of container IDs in Pod status: ``containerd``, ``cri-o``, ``docker``."""
        ...

    async def images(self, seconds: float) -> Sequence[Image]:
        """List the images of the node."""
        ...

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        """Pull an image. Canceling the call cancels the pull. Labels and annotations describe the Pod."""
        ...

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        """List the containers of a Pod, including exited ones."""
        ...

    async def details(self, container_id: str) -> ContainerDetails:
        """Return a container with its times, labels and annotations."""
        ...

    async def stop(self, container_id: str, grace: int) -> None:
        """Stop a container, killing it after ``grace`` seconds."""
        ...

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        """Run a command in a container, without a timeout if ``seconds`` is 0. Raises ``DeadlineExceeded``."""
        ...

    async def close(self) -> None: ...
