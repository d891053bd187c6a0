"""A Kruise StatefulSet or DaemonSet replaces the built-in one of the same name, and its Pods keep running."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from app.cli.migrate import Limits, moved
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, KubeError, WrongCommandError
from app.kube.wire import Request, Response
from tests.cli.test_rollout import Server
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual

#: The words for the new object and for the built-in one.
WORDS = {"statefulset": ("asts/web", "sts/web"), "daemonset": ("ads/web", "ds/web")}
COUNTS = {"statefulset": "replicas", "daemonset": "currentNumberScheduled"}


class Moving(Server):
    """A built-in workload of three Pods: it is deleted a moment after the request, then the new one counts Pods."""

    def __init__(self, kind: str = "statefulset", *, refused: str = "", adopts: bool = True, goes: bool = True) -> None:
        super().__init__()
        self.native = f"/apis/apps/v1/namespaces/shop/{kind}s/web"
        self.ours = f"/apis/apps.kruise.io/v1beta1/namespaces/shop/{kind}s/web"
        self.kind, self.refused, self.adopts, self.goes = kind, refused, adopts, goes
        self.deleted: list[Any] = []
        self.said: list[str] = []
        #: The answer to the deletion.
        self.delete_code = 200
        #: The task that is interrupted during the deletion.
        self.interrupts: asyncio.Task[bool] | None = None
        metadata = {
            "name": "web",
            "namespace": "shop",
            "uid": "n",
            "resourceVersion": "7",
            "labels": {"app": "web"},
            "annotations": {"a": "b", "deprecated.daemonset.template.generation": "1"},
        }
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": {}}
        self.put(self.native, {"metadata": metadata, "spec": spec, "status": {COUNTS[kind]: 3}})

    def _answer(self, request: Request) -> Response:
        tried = request.query.get("dryRun") == "All"
        if request.method == "DELETE":
            self.said.append("delete")
            if self.interrupts is not None:
                self.interrupts.cancel()
            self.deleted.append(orjson.loads(request.body or b"{}"))
            if self.delete_code != 200:
                reason = {403: "Forbidden", 504: "Timeout"}[self.delete_code]
                return json_response(self.delete_code, status_body(self.delete_code, reason, "no"))
            return json_response(200, {"kind": "Status"})
        if request.method == "POST":
            self.said.append("try" if tried else "make")
            if self.refused == self.said[-1]:
                return json_response(422, {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no"})
            made = orjson.loads(request.body or b"{}")
            made["metadata"] |= {"generation": 1, "uid": "o", "resourceVersion": "1"}
            if not tried:
                self.put(self.ours, made)
            return json_response(201, made)
        answer = super()._answer(request)
        if request.method == "GET" and request.path == self.native and self.deleted and self.goes:
            self.objects.pop(self.native, None)  # the next read does not find it
        if request.method == "GET" and request.path == self.ours and self.adopts:
            found: Any = self.objects.get(request.path, {})
            found["status"] = {"observedGeneration": 1, COUNTS[self.kind]: 3}
        return answer


async def move(server: Moving, source: str = "", *, dry_run: bool = False, replicas: int | None = None) -> bool:
    client = Client(server, VirtualClock(), dry_run=dry_run)
    what, usual = WORDS[server.kind]
    return await moved(client, "shop", [what], source or usual, Limits(replicas, None, 10), dry_run=dry_run)


BOTH = pytest.mark.parametrize("kind", list(WORDS))


@virtual
@pytest.mark.behaviour("CLI-21")
@BOTH
async def test_the_kruise_workload_replaces_the_native_one_and_pods_keep_running(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Moving(kind)
    assert await move(server) is True
    # A dry run first checks that the new object is valid; the Pods are orphaned, and no namesake is deleted.
    assert server.said == ["try", "delete", "make"]
    (options,) = server.deleted
    assert (options["propagationPolicy"], options["preconditions"]) == ("Orphan", {"uid": "n"})
    made = server.objects[server.ours]
    assert made["apiVersion"] == "apps.kruise.io/v1beta1"
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == ({"app": "web"}, {"a": "b"})
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"see: pykruise rollout status {kind}/web")


@virtual
@pytest.mark.behaviour("CLI-12", "CLI-21")
@BOTH
async def test_a_dry_run_deletes_nothing(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = Moving(kind)
    assert await move(server, dry_run=True) is True
    assert server.said == ["try"]
    assert "would be deleted without its Pods" in capsys.readouterr().out


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_nothing_is_deleted_if_the_new_object_is_refused() -> None:
    server = Moving(refused="try")
    with pytest.raises(KubeError):
        await move(server)
    assert server.said == ["try"]


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_a_lost_object_is_printed_whole() -> None:
    server = Moving(refused="make")
    with pytest.raises(CommandError, match=r"not created .* create it with: echo .*selector.* kubectl create -f -"):
        await move(server)


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_an_object_that_may_be_lost_is_printed_whole() -> None:
    server = Moving()
    server.delete_code = 504
    with pytest.raises(CommandError, match=r"may be deleted .* to resume; if not, create it with: echo .*selector"):
        await move(server)
    server = Moving()
    server.delete_code = 403
    with pytest.raises(Forbidden):
        await move(server)


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_a_source_that_is_not_deleted_is_reported_with_the_next_step() -> None:
    server = Moving(goes=False)
    with pytest.raises(CommandError, match=r"not deleted within 10 s; run .* to resume, or create it with: echo"):
        await move(server)
    assert server.said == ["try", "delete"]


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_pods_that_are_not_adopted_cause_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert await move(Moving("daemonset", adopts=False)) is False
    assert "has not adopted its Pods within 10 s; see: pykruise explain daemonset/web" in capsys.readouterr().out


@virtual
@pytest.mark.behaviour("CLI-21")
@pytest.mark.parametrize(
    ("source", "limits", "error", "said"),
    [
        ("sts/other", {}, WrongCommandError, "replaces the StatefulSet of the same name, web"),
        ("sts", {}, WrongCommandError, "replaces the StatefulSet of the same name, web"),
        ("sts/web", {"replicas": 1}, WrongCommandError, "all Pods move at once; remove --replicas"),
        ("deploy/web", {}, WrongCommandError, "cannot migrate to a StatefulSet; supported sources: StatefulSet"),
    ],
)
async def test_an_impossible_adoption_is_refused_with_the_reason(
    source: str, limits: Any, error: type[CommandError], said: str
) -> None:
    server = Moving()
    with pytest.raises(error, match=said):
        await move(server, source, **limits)
    assert server.said == []


@virtual
@pytest.mark.behaviour("CLI-21")
async def test_a_missing_source_is_reported() -> None:
    server = Moving()
    del server.objects[server.native]
    with pytest.raises(CommandError, match=r"StatefulSet.apps shop/web: not found; use -n"):
        await move(server)


@virtual
@pytest.mark.behaviour("CLI-21", "CLI-23")
@BOTH
async def test_an_interrupt_after_the_deletion_still_creates_the_new_object(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Moving(kind)
    server.interrupts = asyncio.create_task(move(server))
    with pytest.raises(CommandError, match="was created, and its controller will adopt the Pods") as ended:
        await server.interrupts
    assert ended.value.exit_code == 130
    assert server.said == ["try", "delete", "make"]
    assert "first, because otherwise neither object would exist" in capsys.readouterr().err
    # The same command has nothing left to do.
    assert await move(server) is True
    assert "nothing to do; see: pykruise rollout status" in capsys.readouterr().out
    assert server.said == ["try", "delete", "make"]


@virtual
@pytest.mark.behaviour("CLI-21", "CLI-23")
async def test_a_lost_object_is_printed_whole_after_a_second_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    server = Moving(goes=False)
    moving = asyncio.create_task(move(server))
    await asyncio.sleep(2)
    moving.cancel()
    await asyncio.sleep(2)
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    assert "create it with: echo" in capsys.readouterr().out


@virtual
@pytest.mark.behaviour("CLI-21", "CLI-23")
@pytest.mark.parametrize(("finalizers", "said"), [(["orphan"], ["try", "make"]), (["foregroundDeletion"], [])])
async def test_a_deletion_in_progress_is_resumed_if_pods_are_kept(finalizers: list[str], said: list[str]) -> None:
    server = Moving()
    server.objects[server.native]["metadata"] |= {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": finalizers}
    server.deleted.append({})
    if said:
        assert await move(server) is True
    else:
        with pytest.raises(CommandError, match="is being deleted with its Pods"):
            await move(server)
    assert server.said == said
