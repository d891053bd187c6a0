"""A simulated runtime behind a socket: CRI v1 by gRPC, as far as the node agent speaks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from app.daemon.cri import (
    Auth,
    Container,
    CriError,
    DeadlineExceeded,
    NoSuchContainer,
    Runtime,
    RuntimeUnavailable,
)
from app.daemon.cri import runtime_pb2 as pb

_FOREVER: Final = 3600.0


class CriServer:
    """Serves one runtime on one unix socket. ``without``: methods it does not know, for tests."""

    def __init__(self, runtime: Runtime, path: str, *, without: frozenset[str] = frozenset()) -> None:
        self._runtime = runtime
        self._path = path
        self._without = without
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
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
        """Stop at once, as a runtime that is restarted."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def _version(self, _request: Any) -> pb.VersionResponse:
        return pb.VersionResponse(
            version="0.1.0", runtime_name=self._runtime.name, runtime_version="1.0.0", runtime_api_version="v1"
        )

    async def _list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        wanted = request.filter
        if wanted.id:
            one = await self._runtime.container(wanted.id)
            found = [one] if one is not None else []
        else:
            found = list(await self._runtime.containers(wanted.label_selector["io.kubernetes.pod.uid"]))
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
    """Errors of the runtime as status codes."""

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
