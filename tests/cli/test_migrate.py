"""Replicas move from a Deployment to a CloneSet, and there are never fewer than before."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
import pytest

from app.api import names
from app.cli.migrate import Limits, moved
from app.kube.client import Client
from app.kube.errors import CommandError, InterruptedCommandError, WrongCommandError
from app.kube.wire import Request, Response
from tests.cli.test_rollout import Server
from tests.kit.objects import workload_spec
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
CLONE_SETS = "/apis/apps.kruise.io/v1beta1/namespaces/shop/clonesets"
CLONE_SET = f"{CLONE_SETS}/web"


class Moving(Server):
    """Workloads whose Pods become available at once, or never; records the number of replicas."""

    def __init__(self, replicas: int = 5, *, available: bool = True) -> None:
        super().__init__()
        self.available = available
        self.least = replicas
        self.most = replicas
        self.put(DEPLOYMENT, {"metadata": {"name": "web", "generation": 1}, "spec": workload_spec(replicas)})

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the replicas of the source and the target."""
        return tuple(self.objects[path]["spec"]["replicas"] for path in (DEPLOYMENT, CLONE_SET))

    def _answer(self, request: Request) -> Response:
        answer = super()._answer(request)
        found: Any = self.objects.get(CLONE_SET)
        if found is not None:
            found["metadata"].setdefault("generation", 1)
            ready = found["spec"]["replicas"] if self.available else 0
            found["status"] = {"observedGeneration": 1, "availableReplicas": ready}
            there = self.objects[DEPLOYMENT]["spec"]["replicas"] + ready
            self.least, self.most = min(self.least, there), max(self.most, there)
        return answer


async def move(server: Moving, *, replicas: int | None = None, surge: int = 1, **given: str) -> bool:
    client = Client(server, VirtualClock())
    what, source = given.get("what", "clone/web"), given.get("source", "deploy/web")
    return await moved(client, "shop", [what], source, Limits(replicas, surge, 10))


@virtual
@pytest.mark.behaviour("CLI-20")
@pytest.mark.parametrize(("surge", "most"), [(1, 6), (2, 7), (9, 10)])
async def test_all_replicas_move_and_the_total_never_drops(
    surge: int, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Moving()
    assert await move(server, surge=surge) is True
    assert (server.replicas, server.least, server.most) == ((0, 5), 5, most)
    made = server.objects[CLONE_SET]["spec"]
    # Neither workload selects the Pods of the other.
    assert made["selector"]["matchLabels"] == {"app": "web", "pykruise.io/migrated-from": "web"}
    assert made["template"]["metadata"]["labels"] == made["selector"]["matchLabels"]
    assert capsys.readouterr().out.splitlines()[-1] == "5 of 5 replicas moved"


@virtual
@pytest.mark.behaviour("CLI-20")
async def test_replicas_can_move_in_several_runs() -> None:
    server = Moving()
    assert await move(server, replicas=2) is True
    assert server.replicas == (3, 2)
    assert await move(server) is True
    assert server.replicas == (0, 5)
    assert server.least == 5


@virtual
@pytest.mark.behaviour("CLI-20")
async def test_source_replicas_stay_until_the_new_ones_are_available(capsys: pytest.CaptureFixture[str]) -> None:
    server = Moving(available=False)
    assert await move(server) is False
    assert server.objects[DEPLOYMENT]["spec"]["replicas"] == 5
    assert "not available within 10 s; the source keeps its replicas" in capsys.readouterr().out


@virtual
@pytest.mark.behaviour("CLI-12", "CLI-20")
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"replicas": 9}, CommandError, "Deployment shop/web: has only 5 replicas; cannot move 9"),
        ({"source": "deploy/api"}, CommandError, "Deployment shop/api: not found"),
        ({"source": "sts/web"}, WrongCommandError, "supported sources: Deployment of apps"),
        ({"what": "asts/web"}, WrongCommandError, "a StatefulSet; supported sources: StatefulSet of apps"),
        ({"what": "sidecarset/web"}, CommandError, "SidecarSet: owns no Pods; remove the container from"),
        ({"what": "uniteddeployment/web"}, CommandError, "UnitedDeployment: creates its own workloads"),
        ({"what": "broadcastjob/web"}, CommandError, "BroadcastJob: replicas of another workload cannot move to it"),
    ],
)
async def test_an_impossible_migration_is_refused_with_the_reason(
    given: Any, error: type[CommandError], said: str
) -> None:
    server = Moving()
    with pytest.raises(error, match=said):
        await move(server, **given)
    assert server.objects[DEPLOYMENT]["spec"]["replicas"] == 5


@virtual
@pytest.mark.behaviour("CLI-20")
async def test_a_target_with_other_images_is_not_changed() -> None:
    server = Moving()
    await move(server, replicas=1)
    server.objects[CLONE_SET]["spec"]["template"]["spec"]["containers"][0]["image"] = "b"
    with pytest.raises(CommandError, match="runs different images than Deployment shop/web"):
        await move(server)


class Interrupted(Moving):
    """A user presses Ctrl-C during a request: before it is carried out, or before its answer arrives."""

    def __init__(self, at: int, *, carried_out: bool) -> None:
        super().__init__()
        self.at, self.carried_out = at, carried_out

    def _answer(self, request: Request) -> Response:
        self.at -= 1
        if self.at != 0:
            return super()._answer(request)
        if self.carried_out:
            super()._answer(request)
        raise asyncio.CancelledError


@virtual
@pytest.mark.behaviour("CLI-20", "CLI-23")
@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize(("surge", "again"), [(1, 1), (2, 2), (3, 1), (1, 9)])
async def test_an_interrupted_command_can_be_resumed_at_any_point(
    surge: int, again: int, carried_out: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for at in range(1, 60):
        server = Interrupted(at, carried_out=carried_out)
        (ended,) = await asyncio.gather(move(server, surge=surge), return_exceptions=True)
        if ended is True:
            break
        if at > 2:  # before: nothing has been written
            assert isinstance(ended, InterruptedCommandError)
            assert re.search(r"^interrupted; .*; run the same command to resume$", str(ended))
        assert await move(server, surge=again) is True
        assert server.replicas == (0, 5), at
        assert names.MIGRATION not in (server.objects[CLONE_SET]["metadata"].get("annotations") or {})
        assert server.least == 5
    else:
        pytest.fail("there are more requests than were looked at")
    capsys.readouterr()


@virtual
@pytest.mark.behaviour("CLI-20", "CLI-23")
async def test_a_replica_count_covers_resumed_commands(capsys: pytest.CaptureFixture[str]) -> None:
    server = Moving(available=False)
    assert await move(server, replicas=3) is False
    server.available = True
    assert await move(server, replicas=3) is True
    assert server.replicas == (2, 3)
    said = capsys.readouterr().out
    assert "the source keeps its replicas; run the same command to resume" in said
    # The migration is complete, so the next one moves other replicas.
    assert await move(server, replicas=1) is True
    assert server.replicas == (1, 4)


@virtual
@pytest.mark.behaviour("CLI-20")
async def test_a_source_without_replicas_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    server = Moving()
    await move(server)
    capsys.readouterr()
    assert await move(server) is True
    assert capsys.readouterr().out == "Deployment shop/web: has no replicas to move\n"


@virtual
@pytest.mark.behaviour("CLI-20")
@pytest.mark.parametrize(
    "note",
    [
        "nonsense",
        "[]",
        '{"uid": "another", "from": 5, "to": 4, "moved": 0}',
        '{"uid": 1}',
        '{"uid": "UID", "number": null, "from": 4, "to": 3, "moved": -3}',
        '{"uid": "UID", "number": null, "from": 4, "to": 3, "moved": 1e300}',
        '{"uid": "UID", "number": null, "from": 4, "to": 3, "moved": "2"}',
    ],
)
async def test_a_foreign_note_does_not_shorten_the_migration(note: str) -> None:
    server = Moving()
    await move(server, replicas=1)
    uid = orjson.dumps(server.objects[DEPLOYMENT]["metadata"].get("uid")).decode()
    server.objects[CLONE_SET]["metadata"]["annotations"] = {names.MIGRATION: note.replace('"UID"', uid)}
    assert await move(server) is True
    assert server.replicas == (0, 5)
