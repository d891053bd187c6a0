"""gRPC client of a container runtime, and discovery of its socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from app.daemon.cri import runtime_pb2 as pb
from app.daemon.cri.types import (
    POD_UID,
    Auth,
    Container,
    ContainerDetails,
    ContainerState,
    CriError,
    DeadlineExceeded,
    ExecResult,
    Image,
    NoSuchContainer,
    RuntimeUnavailable,
)

# A client for one runtime on a Unix socket. [KD-11 … KD-16]

#: Largest ExecSync response in bytes. [KD-105]
MAX_ANSWER: Final = 256 * 1024


def _limited(service: str, method: str, size: int) -> str:
    """Return a gRPC service config that limits the response size of one method."""
    config = {"name": [{"service": service, "method": method}], "maxResponseMessageBytes": size}
    return json.dumps({"methodConfig": [config]})


#: Same options as OpenKruise's client. [KD-16]
_OPTIONS: Final = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # At most 10 KiB of a command's output is used, but a tenant's command may print any amount. [KD-105]
    ("grpc.service_config", _limited("runtime.v1.RuntimeService", "ExecSync", MAX_ANSWER)),
    ("grpc.enable_http_proxy", 0),
    # Reconnect to a restarted runtime at once; no other failure is expected on a Unix socket.
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_CALL_SECONDS: Final = 5.0
_FILE_SYSTEM_SECONDS: Final = 10.0
_START_SECONDS: Final = 30.0
#: Seconds added to the timeout of calls whose request has its own timeout.
_SLACK_SECONDS: Final = 5.0
_MAX_MESSAGE: Final = 2048
#: Longest container id.
_MAX_ID: Final = 512
#: Status codes that Go spells differently.
_GO_NAMES: Final = {"OK": "OK", "CANCELLED": "Canceled"}
#: containerd's error while it is listening but has not loaded its containers yet.
_STARTING: Final = "server is not initialized yet"


class GrpcRuntime:
    """Client of one runtime. ``await connect(path)`` returns a client for a runtime that supports CRI v1."""

    def __init__(self, path: str, channel: grpc.aio.Channel) -> None:
        self.path = path
        self.name = ""
        self.version = ""
        self._channel = channel
        self._methods: dict[str, Any] = {}

    @classmethod
    async def connect(cls, path: str) -> GrpcRuntime:
        """Connect to the socket. Raises ``CriError`` if any start-up check fails. [KD-11]"""
        runtime = cls(path, grpc.aio.insecure_channel(f"unix://{path}", options=list(_OPTIONS)))
        try:
            await runtime._check()
        except BaseException:
            await runtime.close()
            raise
        return runtime

    async def _check(self) -> None:
        await self._image("ImageFsInfo", pb.ImageFsInfoRequest(), pb.ImageFsInfoResponse, _FILE_SYSTEM_SECONDS)
        await self.images(_START_SECONDS)
        for asked in ("", "0.1.0"):
            said: pb.VersionResponse = await self._runtime(
                "Version", pb.VersionRequest(version=asked), pb.VersionResponse, _CALL_SECONDS
            )
            if not (said.version and said.runtime_name and said.runtime_version and said.runtime_api_version):
                raise CriError(f"{self.path}: the runtime does not report its name and version")
        self.name, self.version = said.runtime_name, said.runtime_version

    async def images(self, seconds: float) -> Sequence[Image]:
        said: pb.ListImagesResponse = await self._image(
            "ListImages", pb.ListImagesRequest(), pb.ListImagesResponse, seconds
        )
        return [Image(one.id[:_MAX_ID], tuple(one.repo_tags), tuple(one.repo_digests), one.size) for one in said.images]

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        request = pb.PullImageRequest(
            image=pb.ImageSpec(image=reference),
            sandbox_config=pb.PodSandboxConfig(labels=labels, annotations=annotations),
        )
        if auth is not None:
            request.auth.CopyFrom(pb.AuthConfig(username=auth.username, password=auth.password))
        await self._image("PullImage", request, pb.PullImageResponse, seconds)

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(label_selector={POD_UID: pod_uid}))
        said: pb.ListContainersResponse = await self._runtime(
            "ListContainers", request, pb.ListContainersResponse, _CALL_SECONDS
        )
        return [Container(one.id, one.metadata.name, _state(one.state), one.created_at) for one in said.containers]

    async def details(self, container_id: str) -> ContainerDetails:
        request = pb.ContainerStatusRequest(container_id=container_id)
        said: pb.ContainerStatusResponse = await self._runtime(
            "ContainerStatus", request, pb.ContainerStatusResponse, _CALL_SECONDS
        )
        status = said.status
        if not (status.id and status.metadata.name and status.created_at and status.image.image and status.image_ref):
            # [KD-13]
            raise CriError(f"container {container_id}: the runtime's response is incomplete")
        if status.id != container_id:
            raise CriError(f"container {container_id}: the runtime returned container {status.id[:_MAX_ID]}")  # [KD-99]
        return ContainerDetails(
            id=status.id,
            name=status.metadata.name,
            state=_state(status.state),
            created_at=status.created_at,
            started_at=status.started_at,
            finished_at=status.finished_at,
            exit_code=status.exit_code,
            labels=dict(status.labels),
            annotations=dict(status.annotations),
        )

    async def stop(self, container_id: str, grace: int) -> None:
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace)
        await self._runtime("StopContainer", request, pb.StopContainerResponse, grace + _SLACK_SECONDS)

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        # CRI timeouts are whole seconds.
        whole = ceil(seconds)
        request = pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=whole)
        limit = whole + _SLACK_SECONDS if whole else None
        said: pb.ExecSyncResponse = await self._runtime("ExecSync", request, pb.ExecSyncResponse, limit)
        return ExecResult(said.exit_code, said.stdout, said.stderr)

    async def close(self) -> None:
        await self._channel.close()

    async def _runtime(self, method: str, request: Any, response: Any, seconds: float | None) -> Any:
        return await self._call(f"/runtime.v1.RuntimeService/{method}", request, response, seconds)

    async def _image(self, method: str, request: Any, response: Any, seconds: float | None) -> Any:
        return await self._call(f"/runtime.v1.ImageService/{method}", request, response, seconds)

    async def _call(self, method: str, request: Any, response: Any, seconds: float | None) -> Any:
        call = self._methods.get(method)
        if call is None:
            call = self._methods[method] = self._channel.unary_unary(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
        try:
            return await call(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            name = method.rpartition("/")[2]
            if name == "ExecSync" and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise CriError(f"the command printed more than {MAX_ANSWER // 1024} KiB") from None
            raise error_of(name, error) from None


def _state(number: int) -> ContainerState:
    return ContainerState(number) if 0 <= number <= 3 else ContainerState.UNKNOWN


def error_of(method: str, error: grpc.aio.AioRpcError) -> CriError:
    """Convert a gRPC error. The runtime's message is untrusted, so it is truncated."""
    code, said = error.code(), (error.details() or "")[:_MAX_MESSAGE].replace("\x00", "")
    # The format used by Go clients, including the kubelet.
    shown = f"rpc error: code = {_GO_NAMES.get(code.name) or _camel(code.name)} desc = {said}"
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(shown)
        case grpc.StatusCode.UNAVAILABLE:
            return RuntimeUnavailable(f"{method}: the container runtime cannot be reached: {said}")
        case grpc.StatusCode.UNKNOWN if _STARTING in said:
            return RuntimeUnavailable(f"{method}: the container runtime is starting: {said}")
        case grpc.StatusCode.NOT_FOUND:
            return NoSuchContainer(shown)
        case grpc.StatusCode.UNIMPLEMENTED:
            return CriError(f"{method}: the runtime does not speak CRI v1: {said}")
    return CriError(shown)


def _camel(name: str) -> str:
    """Convert ``FAILED_PRECONDITION`` to ``FailedPrecondition``."""
    return "".join(part.capitalize() for part in name.split("_"))


# Runtime discovery. [KD-10, KD-11]

logger = logging.getLogger(__name__)

#: Mount point of the host's /var/run.
MOUNTED: Final = Path("/hostvarrun")
#: Socket directories when the agent runs directly on the host.
ON_HOST: Final = (Path("/run"), Path("/var/run"))
CANDIDATES: Final = (
    "containerd.sock",
    "containerd/containerd.sock",
    "crio.sock",
    "crio/crio.sock",
    "cri-dockerd.sock",
    "cri-dockerd/cri-dockerd.sock",
)


class NoRuntime(CriError):
    """No runtime can be used; the message lists the sockets that were tried."""


def sockets(socket_file: str, exists: Callable[[Path], bool]) -> list[Path]:
    """Return the sockets to try, in order. ``socket_file`` selects a single one; a relative path is below the mount
    point.

    Without a mount point, the host's own directories are searched. A socket found under two names is tried once.
    """
    roots = (MOUNTED,) if exists(MOUNTED) else ON_HOST
    if socket_file:
        given = Path(socket_file)
        wanted = (
            [given] if given.is_absolute() and exists(given) else [root / socket_file.lstrip("/") for root in roots]
        )
        return [path for path in wanted if exists(path)][:1]
    found: dict[str, Path] = {}
    for root in roots:
        for name in CANDIDATES:
            if exists(root / name):
                found.setdefault(name, root / name)
    return list(found.values())


async def connect(socket_file: str) -> list[GrpcRuntime]:
    """Connect to every usable runtime. Raises :class:`NoRuntime` if there is none."""
    found = sockets(socket_file, Path.exists)
    if not found:
        where = f" {socket_file}" if socket_file else f"; looked for {', '.join(CANDIDATES)}"
        roots = MOUNTED if MOUNTED.exists() else " and ".join(map(str, ON_HOST))
        raise NoRuntime(f"not found container runtime sock{where} in {roots}; set --socket-file")
    runtimes, last = [], None
    for path in found:
        try:
            runtime = await GrpcRuntime.connect(str(path))
        except CriError as error:
            last = error
            logger.warning("container runtime %s is unusable: %s", path, error)
            continue
        logger.info("container runtime %s: %s %s", path, runtime.name, runtime.version)
        runtimes.append(runtime)
    if not runtimes:
        raise NoRuntime(f"no usable container runtime in {', '.join(map(str, found))}: {last}")
    return runtimes
