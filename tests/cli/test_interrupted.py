"""Interrupted commands report what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pytest

from app.cli.takeover import carried_out, carry_out_or_explain
from app.features.containerrecreate.commands import restart
from app.features.ephemeraljob.commands import LABEL, debug
from app.features.imagepull.commands import pull
from app.framework.verbs import Call
from app.kube.client import Client
from app.kube.errors import CommandError, Conflict, WrongCommandError
from app.kube.resources import CONFIGMAPS
from app.kube.wire import Request, Response
from app.manager.takeover.model import Step
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual
from tests.manager.memory import MemoryApi
from tests.pods.apiserver import ApiServer, pod_path

POD: Final[Mapping[str, Any]] = {
    "metadata": {"name": "web-0", "namespace": "shop"},
    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
}
OPTIONS: Final[Mapping[str, Any]] = {"wait": True, "parallelism": "1", "deadline": "0", "timeout": "60"}
GROUP: Final = "/apis/apps.kruise.io/"


class Busy(ApiServer):
    """Creates objects, and interrupts the caller on the second read."""

    def __init__(self, *, at_creation: bool = False) -> None:
        super().__init__()
        self.put(pod_path(), dict(POD))
        self.at_creation = at_creation

    def _answer(self, request: Request) -> Response:
        ours = request.path.startswith(GROUP)
        if ours and request.method == ("POST" if self.at_creation else "GET") and "dryRun" not in request.query:
            raise asyncio.CancelledError
        if ours and request.method == "POST" and "dryRun" in request.query:
            return json_response(201, orjson.loads(request.body or b"{}"))
        return super()._answer(request)


def call(server: Busy, *arguments: str, **options: Any) -> tuple[Call, list[str]]:
    said: list[str] = []
    client = Client(server, VirtualClock())
    return Call(client, "shop", arguments, {**OPTIONS, **options}, said.append), said


@virtual
@pytest.mark.behaviour("CLI-23")
@pytest.mark.parametrize(
    ("verb", "argument", "plural"),
    [(restart, "pod/web-0", "containerrecreaterequests"), (pull, "nginx:1", "imagepulljobs")],
)
@pytest.mark.parametrize("at_creation", [True, False])
async def test_resources_that_keep_running_are_named(verb: Any, argument: str, plural: str, at_creation: bool) -> None:
    server = Busy(at_creation=at_creation)
    asked, _ = call(server, argument)
    with pytest.raises(CommandError, match=r"^interrupted; ") as ended:
        await verb(asked)
    assert ended.value.exit_code == 130
    made = [path for path in server.objects if plural in path]
    assert len(made) == (0 if at_creation else 1)
    assert ("may have been created" if at_creation else "keeps") in str(ended.value)
    assert f"kubectl get {plural}.apps.kruise.io " in str(ended.value)
    if made:
        name = made[0].rpartition("/")[2]
        assert f"kubectl delete {plural}.apps.kruise.io {name} -n shop" in str(ended.value)


@virtual
@pytest.mark.behaviour("CLI-23")
@pytest.mark.parametrize(
    ("at_creation", "state", "said"),
    [
        (True, {}, r"interrupted; EphemeralJob shop/debug-web-0-.* was deleted"),
        (False, {}, r"interrupted; EphemeralJob shop/debug-web-0-.* was deleted"),
        (False, {"waiting": {"reason": "InvalidImageName"}}, r"tools in Pod web-0 cannot run: InvalidImageName"),
    ],
)
async def test_an_unstarted_debug_container_is_removed(at_creation: bool, state: dict[str, Any], said: str) -> None:
    server = Busy(at_creation=at_creation)
    server.objects[pod_path()]["status"] = {"ephemeralContainerStatuses": [{"name": "tools", "state": state}]}
    asked, _ = call(server, "pod/web-0", image="busybox:1", name="tools")
    with pytest.raises(CommandError, match=said) as ended:
        await debug(asked)
    assert ended.value.exit_code == (1 if state else 130)
    assert not [path for path in server.objects if "ephemeraljobs" in path]
    assert LABEL not in (server.objects[pod_path()]["metadata"].get("labels") or {})


@virtual
@pytest.mark.behaviour("CLI-23")
async def test_a_running_debug_container_is_kept_and_named() -> None:
    server = Busy()
    server.objects[pod_path()]["status"] = {
        "ephemeralContainerStatuses": [{"name": "tools", "state": {"terminated": {"exitCode": 0}}}]
    }
    asked, _ = call(server, "pod/web-0", image="busybox:1", name="tools")
    with pytest.raises(CommandError, match=r"and its container remain; .* kubectl label pod web-0") as ended:
        await debug(asked)
    assert ended.value.exit_code == 130


class Refusing(ApiServer):
    """Rejects the request, or interrupts the caller."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def _answer(self, request: Request) -> Response:
        if not self.code:
            raise asyncio.CancelledError
        reason = {403: "Forbidden", 504: "Timeout"}[self.code]
        return json_response(self.code, status_body(self.code, reason, "you may not"))


@virtual
@pytest.mark.behaviour("CLI-23")
@pytest.mark.parametrize(
    ("code", "first", "said"),
    [
        (0, True, "interrupted; 2/9 x: may have been applied, later steps were not; back"),
        (403, True, "2/9 x: refused: you may not; nothing was changed"),
        (403, False, "2/9 x: refused: you may not; back"),
        (504, True, "2/9 x: refused: you may not; back"),
    ],
)
async def test_an_interrupted_takeover_says_how_to_resume(code: int, first: bool, said: str) -> None:
    client = Client(Refusing(code), VirtualClock())
    step = Step("keep", "create", CONFIGMAPS, "x", "shop", {"metadata": {"name": "x"}})
    with pytest.raises(CommandError) as ended:
        await carry_out_or_explain(client, step, "2/9 x", "back", first=first)
    assert str(ended.value) == said


@virtual
@pytest.mark.behaviour("MGR-145")
@pytest.mark.parametrize("conflicts", [3, 100])
async def test_an_object_that_others_write_too_is_replaced_or_reported(conflicts: int) -> None:
    path = "/api/v1/namespaces/shop/configmaps/x"
    left = iter(range(conflicts))

    def written_by_others(request: Request) -> Response | None:
        lost = request.method == "PUT" and next(left, None) is not None
        return json_response(409, status_body(409, "Conflict")) if lost else None

    api = MemoryApi(objects={path: {"metadata": {"name": "x", "resourceVersion": "1"}}}, fail=written_by_others)
    replacing = carried_out(
        Client(api, VirtualClock()), Step("x", "replace", CONFIGMAPS, "x", "shop", {"data": {"a": "b"}})
    )
    if conflicts == 3:
        await replacing
        assert api.objects[path]["data"] == {"a": "b"}
    else:
        with pytest.raises(Conflict):
            await replacing


@pytest.mark.behaviour("CLI-18")
@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1500ms", 2)]
)
def test_times_are_durations_everywhere(text: str, seconds: int) -> None:
    asked, _ = call(Busy(), "pod/web-0", timeout=text)
    assert asked.seconds("timeout") == seconds


@pytest.mark.behaviour("CLI-18")
@pytest.mark.parametrize("text", ["", "soon", "-5", "-5s", "5 m", "99999999999", "9999999h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    asked, _ = call(Busy(), "pod/web-0", timeout=text)
    with pytest.raises(WrongCommandError, match=r"--timeout: .* is not a duration such as 90s, 5m or 1h30m"):
        asked.seconds("timeout")
