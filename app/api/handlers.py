"""What a probe or a hook does, as Pods say it: a command, a request, or a connection. The fields of core v1 types."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.api.keywords import LIST_TYPE
from app.api.model import ApiModel
from app.api.schema import Int32, Int64, IntOrString, Keywords, schema_default

_ATOMIC = Keywords({LIST_TYPE: "atomic"})


class ExecAction(ApiModel):
    """A command that runs inside the container."""

    command: Annotated[list[str] | None, _ATOMIC] = None
    """The command and its arguments, started as they stand, without a shell. Exit code 0 is success."""


class HttpHeader(ApiModel):
    """One header of a request."""

    name: str
    """The header's name."""
    value: str
    """The header's value."""


class HttpGetAction(ApiModel):
    """A GET request. Every answer from 200 up to 399 is success."""

    host: str = ""
    """The host to connect to; the Pod's own address by default."""
    http_headers: Annotated[list[HttpHeader] | None, _ATOMIC] = None
    """Headers of the request. Names may repeat."""
    path: str = ""
    """The path to ask for."""
    port: IntOrString
    """The port to connect to: its number, or its name among the container's ports."""
    scheme: str = ""
    """HTTP (the default) or HTTPS; the certificate is not verified."""


class TcpSocketAction(ApiModel):
    """A connection that is opened and closed. That it can be opened is success."""

    host: str = ""
    """The host to connect to; the Pod's own address by default."""
    port: IntOrString
    """The port to connect to: its number, or its name among the container's ports."""


class GrpcAction(ApiModel):
    """A gRPC health check."""

    port: Int32
    """The port of the gRPC service."""
    service: Annotated[str, schema_default("")] = ""
    """The service to ask about."""


class SleepAction(ApiModel):
    """A wait."""

    seconds: Int64
    """How long to wait, in seconds."""


class ContainerPort(ApiModel):
    """One port of a container."""

    container_port: Int32
    """The number of the port."""
    host_ip: str = Field(default="", alias="hostIP")
    """The address on the node it is bound to."""
    host_port: Int32 = 0
    """The port on the node it is bound to."""
    name: str = ""
    """The name by which it can be referred to."""
    protocol: Annotated[str, schema_default("TCP")] = ""
    """TCP, UDP or SCTP."""


class _Handlers(ApiModel):
    """What probes and hooks have in common."""

    exec: ExecAction | None = None
    """Runs a command inside the container."""
    http_get: HttpGetAction | None = None
    """Sends a GET request."""
    tcp_socket: TcpSocketAction | None = None
    """Opens a connection."""


class LifecycleHandler(_Handlers):
    """What is done before a container is stopped."""

    sleep: SleepAction | None = None
    """Waits."""


class Probe(_Handlers):
    """What is done to find out how a container is, and how often."""

    grpc: GrpcAction | None = None
    """Not supported: use one of the others."""
    initial_delay_seconds: Int32 = 0
    """How long after the container's start the first probe runs, in seconds; 1 at least."""
    timeout_seconds: Int32 = 0
    """After how many seconds a probe has failed; 1 by default."""
    period_seconds: Int32 = 0
    """How often the probe runs, in seconds; 1 by default."""
    success_threshold: Int32 = 0
    """How many successes in a row change the result; 1 by default."""
    failure_threshold: Int32 = 0
    """How many failures in a row change the result; 1 by default."""
    termination_grace_period_seconds: Int64 | None = None
    """Not used: a failed probe of this kind stops no container."""
