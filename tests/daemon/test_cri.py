"""The gRPC client against a runtime behind a real socket, and how runtimes are found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from app.daemon.cri import client
from app.daemon.cri.client import GrpcRuntime, NoRuntime, connect, error_of, sockets
from app.daemon.cri.runtime_pb2 import StopContainerRequest
from app.daemon.cri.types import (
    Auth,
    ContainerState,
    CriError,
    DeadlineExceeded,
    ExecResult,
    NoSuchContainer,
    RuntimeUnavailable,
)
from app.generate.cri import main as generate
from tests.kit.runtime import CriServer, connected, served
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import until, virtual


def test_the_generated_messages_match_the_proto_file() -> None:
    assert generate(["--check"]) == 0


@pytest.mark.behaviour("KD-13", "KD-14", "KD-16")
async def test_requests_and_responses_pass_through_the_socket(tmp_path: Path) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        assert (runtime.name, runtime.version) == ("containerd", "1.0.0")
        one = simulated.start("u1", "main", annotations={"a": "b"}, env={"COLOUR": "red"})
        simulated.start("u2", "main")
        (found,) = await runtime.containers("u1")
        assert (found.id, found.name, found.state) == (one.id, "main", ContainerState.RUNNING)
        assert found.created_at == one.created_at
        details = await runtime.details(one.id)
        assert (details.started_at, details.annotations) == (one.started_at, {"a": "b"})
        assert await runtime.execute(one.id, ["env"], 3) == ExecResult(0, b"COLOUR=red\n", b"")
        assert (await runtime.execute(one.id, ["nothing"], 3)).code == 127
        with pytest.raises(NoSuchContainer):
            await runtime.details("other")
        await runtime.stop(one.id, 7)
        assert simulated.stops == [(one.id, 7)]
        assert (await runtime.details(one.id)).state is ContainerState.EXITED
        await runtime.pull("nginx:1", Auth("jane", "word"), {"app": "web"}, {"a": "b"}, 5)
        assert simulated.pulls == [("nginx:1", "jane", {"app": "web"}, {"a": "b"})]
        image = (await runtime.images(5))[0]
        assert image.tags == ("docker.io/library/nginx:1",)


@pytest.mark.behaviour("KD-13")
@pytest.mark.parametrize("missing", [{"name": ""}, {"created_at": 0}])
async def test_an_incomplete_response_is_an_error(tmp_path: Path, missing: dict[str, object]) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        one = simulated.start("u1", "main")
        for name, value in missing.items():
            setattr(one, name, value)
        with pytest.raises(CriError, match="the runtime's response is incomplete"):
            await runtime.details(one.id)


@pytest.mark.behaviour("KD-15")
async def test_a_timeout_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        one = simulated.start("u1", "main")

        async def refuse(_command: object) -> ExecResult:
            raise DeadlineExceeded("command timed out")

        # Hooks have no timeout of their own: zero is none.
        monkeypatch.setattr(client, "_SLACK_SECONDS", 0)
        assert (await runtime.execute(one.id, ["true"], 0)).code == 0
        one.execute = refuse
        said = "rpc error: code = DeadlineExceeded desc = command timed out"
        with pytest.raises(DeadlineExceeded, match=f"^{said}$"):
            await runtime.execute(one.id, ["sleep"], 1)


@pytest.mark.behaviour("KD-50")
@pytest.mark.parametrize("grace", [0, 30])
@virtual
async def test_a_container_that_is_killed_after_its_grace_period_counts_as_stopped(grace: int) -> None:
    clock, stopped = VirtualClock(), []

    class SlowChannel:
        def unary_unary(self, _method: str, **_: object) -> object:
            async def kill(request: StopContainerRequest, timeout: float) -> None:
                await clock.wait_for(clock.sleep(request.timeout + 2), timeout)
                stopped.append(request.container_id)

            return kill

    await GrpcRuntime("", SlowChannel()).stop("c1", grace)
    assert stopped == ["c1"]


@pytest.mark.behaviour("KD-105")
async def test_endless_command_output_is_cut_off(tmp_path: Path) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        one = simulated.start("u1", "main")
        one.execute = lambda command: ExecResult(0, b"x" * int(command[0]), b"")
        assert (await runtime.execute(one.id, ["200000"], 3)).code == 0
        for size in ("300000", "3000000", "15000000"):
            with pytest.raises(CriError, match=r"^the command printed more than 256 KiB$"):
                await runtime.execute(one.id, [size], 3)


@pytest.mark.parametrize(
    ("code", "shown"),
    [("NOT_FOUND", "NotFound"), ("FAILED_PRECONDITION", "FailedPrecondition"), ("CANCELLED", "Canceled")],
)
def test_errors_match_those_of_the_kubelet(code: str, shown: str) -> None:
    error = grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata(), "no such thing")
    assert str(error_of("PullImage", error)) == f"rpc error: code = {shown} desc = no such thing"


@pytest.mark.behaviour("KD-16", "KD-34")
async def test_canceling_a_pull_cancels_it_in_the_runtime(tmp_path: Path) -> None:
    async with connected(tmp_path) as (simulated, runtime):
        simulated.registry.default_seconds = 3600
        pull = asyncio.create_task(runtime.pull("nginx:1", None, {}, {}, 3600))
        await until(lambda: simulated.active_pulls == 1)
        pull.cancel()
        await until(lambda: simulated.active_pulls == 0)


@pytest.mark.behaviour("KD-16")
async def test_the_agent_reconnects_to_a_restarted_runtime(tmp_path: Path) -> None:
    async with served(tmp_path) as (simulated, path):
        runtime = await GrpcRuntime.connect(path)
    with pytest.raises(RuntimeUnavailable):
        await runtime.images(5)
    server = CriServer(simulated, path)
    await server.start()
    async with asyncio.timeout(120):
        while True:
            try:
                await runtime.images(5)
            except RuntimeUnavailable:
                await asyncio.sleep(0.05)
            else:
                break
    await runtime.close()
    await server.stop()


@pytest.mark.behaviour("KD-16")
async def test_the_agent_waits_for_a_starting_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """containerd listens before it has loaded its containers, so its answers about them do not count yet."""
    async with connected(tmp_path) as (simulated, runtime):

        async def starting(*_: object) -> None:
            raise CriError("server is not initialized yet")

        monkeypatch.setattr(simulated, "stop", starting)
        with pytest.raises(RuntimeUnavailable, match="is starting"):
            await runtime.stop("c1", 2)


@pytest.mark.behaviour("KD-11")
@pytest.mark.parametrize("method", ["ImageFsInfo", "ListImages", "Version"])
async def test_a_runtime_without_the_interface_is_refused(tmp_path: Path, method: str) -> None:
    async with served(tmp_path, frozenset({method})) as (_, path):
        with pytest.raises(CriError, match="does not speak CRI v1"):
            await GrpcRuntime.connect(path)
        with pytest.raises(NoRuntime, match=r"no usable container runtime in "):
            await connect(path)


@pytest.mark.behaviour("KD-11")
async def test_a_socket_left_over_by_another_runtime_does_not_hide_the_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOUNTED", tmp_path)
    (tmp_path / "containerd.sock").touch()
    async with served(tmp_path) as (_, path):
        (tmp_path / "crio.sock").symlink_to(path)
        (runtime,) = await connect("")
        assert runtime.path == str(tmp_path / "crio.sock")
        await runtime.close()


@pytest.mark.behaviour("KD-11")
async def test_without_a_runtime_the_message_lists_the_sockets_tried() -> None:
    with pytest.raises(NoRuntime, match=r"not found container runtime sock nowhere\.sock"):
        await connect("nowhere.sock")


@pytest.mark.behaviour("KD-10")
@pytest.mark.parametrize(
    ("file", "there", "found"),
    [
        ("", ["/hostvarrun", "/hostvarrun/containerd/containerd.sock"], ["/hostvarrun/containerd/containerd.sock"]),
        (
            "",
            ["/hostvarrun", *(f"/hostvarrun/{name}.sock" for name in ("cri-dockerd", "crio/crio", "containerd"))],
            [f"/hostvarrun/{name}.sock" for name in ("containerd", "crio/crio", "cri-dockerd")],
        ),
        ("x/y.sock", ["/hostvarrun", "/hostvarrun/x/y.sock", "/hostvarrun/crio.sock"], ["/hostvarrun/x/y.sock"]),
        ("x/y.sock", ["/hostvarrun", "/hostvarrun/crio.sock"], []),
        ("/x/y.sock", ["/hostvarrun", "/hostvarrun/x/y.sock"], ["/hostvarrun/x/y.sock"]),
        ("", ["/run/crio/crio.sock", "/var/run/crio/crio.sock"], ["/run/crio/crio.sock"]),
        ("/tmp/own.sock", ["/tmp/own.sock"], ["/tmp/own.sock"]),
        ("", ["/hostvarrun"], []),
    ],
)  # fmt: skip
def test_the_socket_is_the_flag_or_every_existing_candidate(file: str, there: list[str], found: list[str]) -> None:
    assert [str(path) for path in sockets(file, lambda path: str(path) in there)] == found
