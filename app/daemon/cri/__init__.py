"""The container runtime interface, version 1: what the agent asks of a runtime, and the gRPC client that does it."""

from app.daemon.cri.types import (
    Auth,
    Container,
    ContainerDetails,
    ContainerState,
    CriError,
    DeadlineExceeded,
    ExecResult,
    Image,
    NoSuchContainer,
    Runtime,
    RuntimeUnavailable,
)

__all__ = [
    "Auth",
    "Container",
    "ContainerDetails",
    "ContainerState",
    "CriError",
    "DeadlineExceeded",
    "ExecResult",
    "Image",
    "NoSuchContainer",
    "Runtime",
    "RuntimeUnavailable",
]
