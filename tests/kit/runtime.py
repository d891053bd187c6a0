"""A simulated container runtime in memory, and a gRPC server that serves it on a socket."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from app.daemon.cri import runtime_pb2 as pb
from app.daemon.cri.client import GrpcRuntime
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
from app.kube.clock import Clock, SystemClock
from app.kube.images import parse_image

_NANO: Final = 10**9


@dataclass(slots=True)
class SimulatedContainer:
    """One container. ``exec``: runs a command in it; None: a shell with a few commands."""

    id: str
    name: str
    pod_uid: str
    state: ContainerState = ContainerState.RUNNING
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    execute: Callable[[Sequence[str]], ExecResult | Awaitable[ExecResult]] | None = None
    #: Seconds that the container takes to stop.
    stop_seconds: float = 0.0


@dataclass(slots=True)
class Registry:
    """A registry: missing images and durations by full name, and by host the credentials that may pull (("", "")
    means anonymous only)."""

    missing: set[str] = field(default_factory=set)
    users: dict[str, tuple[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    default_seconds: float = 0.0

    def refusal(self, name: str, auth: Auth | None) -> str:
        registry = name.partition("/")[0]
        wanted = self.users.get(registry)
        given = (auth.username, auth.password) if auth is not None else ("", "")
        if wanted is not None and given != wanted:
            # The errors of registries may contain the credentials.
            return f"failed to authorize: {registry}: 401 Unauthorized: {':'.join(given)}"
        return f"{name}: not found" if name in self.missing else ""


class SimulatedRuntime:
    """The runtime of one node."""

    def __init__(self, clock: Clock, *, name: str = "containerd") -> None:
        self.name = name
        self.registry = Registry()
        self.known: dict[str, SimulatedContainer] = {}
        #: Called when a container has ended, like a kubelet's notification.
        self.on_stop: Callable[[SimulatedContainer], None] = lambda _container: None
        #: While it is unavailable, every call fails.
        self.away = False
        #: Calls for tests: pulls with labels and annotations, stops with their grace period, commands.
        self.pulls: list[tuple[str, str, Mapping[str, str], Mapping[str, str]]] = []
        self.stops: list[tuple[str, int]] = []
        self.commands: list[tuple[str, tuple[str, ...]]] = []
        #: Number of times the containers of a Pod were listed.
        self.lists = 0
        self.active_pulls = 0
        self.most_pulls = 0
        self._clock = clock
        self._images: dict[str, Image] = {}
        self._numbers = count(1)

    # ---- what a kubelet does

    def start(self, pod_uid: str, name: str, **fields: object) -> SimulatedContainer:
        number = next(self._numbers)
        identity = hashlib.sha256(f"{pod_uid} {name} {number}".encode()).hexdigest()
        now = int(self._clock.now().timestamp() * _NANO) + number
        container = SimulatedContainer(identity, name, pod_uid, created_at=now, started_at=now, **fields)  # type: ignore[arg-type]
        container.labels.setdefault("io.kubernetes.pod.uid", pod_uid)
        self.known[container.id] = container
        return container

    def add_image(self, text: str) -> Image:
        parsed = parse_image(text)
        assert parsed is not None, text
        digest = "sha256:" + hashlib.sha256(parsed.full_name.encode()).hexdigest()
        tags = () if parsed.digest else (parsed.full_name,)
        image = Image(digest, tags, (f"{parsed.repository}@{parsed.digest or digest}",), 1024)
        self._images[parsed.full_name] = image
        return image

    # ---- requests of an agent

    async def images(self, seconds: float) -> Sequence[Image]:
        self._check()
        return list(self._images.values())

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        """Pull an image, which takes as long as the registry specifies."""
        self._check()
        self.pulls.append((reference, auth.username if auth is not None else "", labels, annotations))
        parsed = parse_image(reference)
        if parsed is None:
            raise CriError(f"invalid reference {reference!r}")
        self.active_pulls += 1
        self.most_pulls = max(self.most_pulls, self.active_pulls)
        try:
            await self._clock.sleep(self.registry.seconds.get(parsed.full_name, self.registry.default_seconds))
        finally:
            self.active_pulls -= 1
        self._check()
        if why := self.registry.refusal(parsed.full_name, auth):
            raise CriError(f'failed to pull and unpack image "{parsed.full_name}": {why}')
        self.add_image(reference)

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        self.lists += 1
        self._check()
        return [_listed(one) for _, one in sorted(self.known.items()) if one.pod_uid == pod_uid]  # arbitrary order

    async def details(self, container_id: str) -> ContainerDetails:
        one = self._container(container_id)
        return ContainerDetails(
            one.id,
            one.name,
            one.state,
            one.created_at,
            one.started_at,
            one.finished_at,
            one.exit_code,
            dict(one.labels),
            dict(one.annotations),
        )

    async def stop(self, container_id: str, grace: int) -> None:
        """Stop a container, within the grace period."""
        one = self._container(container_id)
        self.stops.append((container_id, grace))
        if one.state is not ContainerState.RUNNING:
            return
        await self._clock.sleep(min(one.stop_seconds, grace))
        self._check()
        one.state = ContainerState.EXITED
        one.exit_code = 143 if one.stop_seconds <= grace else 137
        one.finished_at = int(self._clock.now().timestamp() * _NANO)
        self.on_stop(one)

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        one = self._container(container_id)
        if one.state is not ContainerState.RUNNING:
            raise CriError(f"container {container_id} is not running")
        self.commands.append((container_id, tuple(command)))
        if one.execute is not None:
            result = one.execute(command)
            if isinstance(result, ExecResult):
                return result
            try:
                return await (self._clock.wait_for(result, seconds) if seconds else result)
            except TimeoutError:
                raise DeadlineExceeded(f"timeout {seconds:g}s exceeded") from None
        return await self._shell(one, command, seconds)

    async def _shell(self, one: SimulatedContainer, command: Sequence[str], seconds: float) -> ExecResult:
        match list(command):
            case ["env"]:
                return ExecResult(0, "".join(f"{name}={value}\n" for name, value in one.env.items()).encode())
            case ["/no/such"]:
                raise CriError('exec failed: "/no/such": no such file or directory')
            case ["true"]:
                return ExecResult(0)
            case ["false"]:
                return ExecResult(1)
            case ["echo", *words]:
                return ExecResult(0, (" ".join(words) + "\n").encode())
            case ["sleep", number] if number.isdigit():
                await self._clock.sleep(min(float(number), seconds or float(number)))
                if seconds and float(number) > seconds:
                    raise DeadlineExceeded(f"timeout {seconds:g}s exceeded")
                return ExecResult(0)
        return ExecResult(127, stderr=f"{command[0] if command else ''}: not found".encode())

    async def close(self) -> None:
        pass

    def _container(self, container_id: str) -> SimulatedContainer:
        self._check()
        found = self.known.get(container_id)
        if found is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return found

    def _check(self) -> None:
        if self.away:
            raise RuntimeUnavailable("connection refused")


def _listed(one: SimulatedContainer) -> Container:
    return Container(one.id, one.name, one.state, one.created_at)


_FOREVER: Final = 3600.0


class CriServer:
    """Serves one runtime on a unix socket. ``without``: methods it does not implement, for tests."""

    def __init__(self, runtime: Runtime, path: str, *, without: frozenset[str] = frozenset()) -> None:
        self._runtime = runtime
        self._path = path
        self._without = without
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        server = grpc.aio.server()
        runtime: dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
            "Version": (pb.VersionRequest, self._version),
            "ListContainers": (pb.ListContainersRequest, self._list_containers),
            "ContainerStatus": (pb.ContainerStatusRequest, self._container_status),
            "StopContainer": (pb.StopContainerRequest, self._stop_container),
            "ExecSync": (pb.ExecSyncRequest, self._exec_sync),
        }
        images: dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
            "ListImages": (pb.ListImagesRequest, self._list_images),
            "PullImage": (pb.PullImageRequest, self._pull_image),
            "ImageFsInfo": (pb.ImageFsInfoRequest, self._image_fs_info),
        }
        for service, methods in (("RuntimeService", runtime), ("ImageService", images)):
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(
                    _answering(handle),
                    request_deserializer=request.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
                for name, (request, handle) in methods.items()
                if name not in self._without
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"runtime.v1.{service}", handlers),))
        server.add_insecure_port(f"unix://{self._path}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop at once, as a restarting runtime does."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def _version(self, _request: Any) -> pb.VersionResponse:
        return pb.VersionResponse(
            version="0.1.0", runtime_name=self._runtime.name, runtime_version="1.0.0", runtime_api_version="v1"
        )

    async def _list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        found = await self._runtime.containers(request.filter.label_selector["io.kubernetes.pod.uid"])
        return pb.ListContainersResponse(containers=[_container(one) for one in found])

    async def _container_status(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        one = await self._runtime.details(request.container_id)
        return pb.ContainerStatusResponse(
            status=pb.ContainerStatus(
                id=one.id,
                metadata=pb.ContainerMetadata(name=one.name),
                state=pb.ContainerState.Name(one.state),
                created_at=one.created_at,
                started_at=one.started_at,
                finished_at=one.finished_at,
                exit_code=one.exit_code,
                image=pb.ImageSpec(image="simulated"),
                image_ref="simulated",
                labels=one.labels,
                annotations=one.annotations,
            )
        )

    async def _stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        await self._runtime.stop(request.container_id, request.timeout)
        return pb.StopContainerResponse()

    async def _exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        done = await self._runtime.execute(request.container_id, list(request.cmd), request.timeout)
        return pb.ExecSyncResponse(stdout=done.stdout, stderr=done.stderr, exit_code=done.code)

    async def _list_images(self, _request: Any) -> pb.ListImagesResponse:
        images = await self._runtime.images(_FOREVER)
        return pb.ListImagesResponse(
            images=[pb.Image(id=one.id, repo_tags=one.tags, repo_digests=one.digests, size=one.size) for one in images]
        )

    async def _pull_image(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        given = request.auth
        auth = Auth(given.username, given.password) if request.HasField("auth") else None
        sandbox = request.sandbox_config
        reference = request.image.image
        await self._runtime.pull(reference, auth, dict(sandbox.labels), dict(sandbox.annotations), _FOREVER)
        return pb.PullImageResponse(image_ref=reference)

    async def _image_fs_info(self, _request: Any) -> pb.ImageFsInfoResponse:
        return pb.ImageFsInfoResponse()


def _container(one: Container) -> pb.Container:
    return pb.Container(
        id=one.id,
        metadata=pb.ContainerMetadata(name=one.name),
        state=pb.ContainerState.Name(one.state),
        created_at=one.created_at,
    )


def _answering(handle: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]:
    async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await handle(request)
        except DeadlineExceeded as error:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except NoSuchContainer as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except RuntimeUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except CriError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return answer


@asynccontextmanager
async def served(folder: Path, without: frozenset[str] = frozenset()) -> AsyncIterator[tuple[SimulatedRuntime, str]]:
    """Serve a simulated runtime on a socket in this folder."""
    simulated, path = SimulatedRuntime(SystemClock()), str(folder / "runtime.sock")
    server = CriServer(simulated, path, without=without)
    await server.start()
    try:
        yield simulated, path
    finally:
        await server.stop()


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[SimulatedRuntime, GrpcRuntime]]:
    """Serve a simulated runtime and connect the agent's client to it."""
    async with served(folder) as (simulated, path):
        runtime = await GrpcRuntime.connect(path)
        try:
            yield simulated, runtime
        finally:
            await runtime.close()
