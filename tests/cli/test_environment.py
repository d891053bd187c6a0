"""Terminals, pipes and clusters in a bad state: full, closed, narrow, hanging, forbidden."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from app.api import names
from app.cli.kinds import known, wanted
from app.cli.main import app
from app.cli.plan import of_pod, whole
from app.cli.status import _shown, show_all, show_status
from app.cli.verbs import run
from app.cli.workload_changes import images_of
from app.framework.commands import Progress
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, WrongCommandError
from app.kube.wire import Request, Response
from tests.cli.answers import Answers
from tests.cli.test_rollout import DONE, ENABLED, PODS, WHAT, world
from tests.features.cloneset.writing import rolling
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual
from tests.pods.apiserver import ApiServer

PROGRAM: Final = str(Path(sys.executable).with_name("pykruise"))
LATE: Final = {"updatedReplicas": 1, "updatedAvailableReplicas": 1, "availableReplicas": 1}


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.behaviour("CLI-11")
@pytest.mark.parametrize("words", ["-h", "completion bash"])
def test_a_full_disk_is_reported_in_one_line(words: str) -> None:
    done = in_shell(f"{PROGRAM} {words} > /dev/full")
    assert (done.returncode, done.stderr) == (1, "pykruise: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.behaviour("CLI-11")
def test_the_exit_code_is_set_even_if_the_reason_cannot_be_written() -> None:
    assert in_shell(f"{PROGRAM} frobnicate 2> /dev/full").returncode == 2


@pytest.mark.behaviour("CLI-11")
def test_an_unusable_file_is_named(tmp_path: Path) -> None:
    """A separate process: later output would be lost."""
    missing = tmp_path / "gone" / "cluster.json"
    program = f"from app.cli.verbs import run; run(lambda: open({str(missing)!r}, 'w'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == f"pykruise: {missing}: No such file or directory\n"


@pytest.mark.behaviour("CLI-11")
def test_an_interrupt_while_a_pipe_is_full_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", Full())
    assert run(lambda: None) == 130


@pytest.mark.behaviour("CLI-11")
@pytest.mark.parametrize(("closed", "said"), [(">&-", ""), ("<&-", "pykruise "), (">&- 2>&- <&-", "")])
def test_closed_streams_are_not_an_error(closed: str, said: str) -> None:
    done = in_shell(f"{PROGRAM} --version {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(said)


@pytest.mark.behaviour("CLI-11")
def test_an_encoding_without_a_character_is_not_an_error(tmp_path: Path) -> None:
    with closing(Answers({})) as server:
        kubeconfig = server.kubeconfig(tmp_path)
        done = in_shell(f"LC_ALL=C PYTHONIOENCODING=ascii {PROGRAM} takeover --kubeconfig {kubeconfig}")
    assert (done.returncode, done.stderr) == (1, "pykruise: not possible, see above\n")
    assert "there is nothing to take over" in done.stdout


@pytest.mark.behaviour("CLI-11")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "sandbox --feature-gates EnableExternalCerts=true",
            "leave out EnableExternalCerts: the sandbox has no external certificates",
        ),
        ("daemon --nonsense", "unrecognized arguments: --nonsense (pykruise daemon --help lists all)"),
    ],
)
def test_usage_errors_of_long_running_commands_are_reported_in_one_line(words: str, said: str) -> None:
    done = in_shell(f"{PROGRAM} {words}")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert said in line


@pytest.mark.behaviour("CLI-18")
@pytest.mark.parametrize(
    ("columns", "term", "bar"), [("80", "xterm", True), ("40", "xterm", False), ("80", "dumb", False)]
)
def test_a_narrow_terminal_gets_lines_instead_of_a_progress_bar(
    columns: str, term: str, bar: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with _shown("text", {}, watch=True) as show:
        show(Progress(1, 1, 2, False, "", "1 of 2 Pods updated"), "")
    said = capsys.readouterr().out
    assert (said == "1 of 2 Pods updated\n") is not bar


# ---- clusters


class Guarded(ApiServer):
    """Refuses requests for paths below ``forbidden``."""

    def __init__(self, forbidden: tuple[str, ...], inner: ApiServer) -> None:
        super().__init__()
        self.forbidden, self.inner = forbidden, inner

    def _answer(self, request: Request) -> Response:
        if any(part in request.path for part in self.forbidden):
            return json_response(403, status_body(403, "Forbidden", "you cannot list it"))
        return self.inner._answer(request)


@virtual
@pytest.mark.behaviour("CLI-14")
async def test_a_user_without_the_right_to_read_pods_sees_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    server, _ = world("nginx:1", "nginx:2", status={**DONE, **LATE})
    client = Client(Guarded((PODS,), server), VirtualClock())
    assert await show_status(client, "shop", WHAT, watch=False, give_up=0) is True
    said = capsys.readouterr().out
    assert said.startswith(
        "1 of 3 Pods updated, 1 available; cannot list the Pods that are not ready: refused: you cannot"
    )


@virtual
@pytest.mark.behaviour("CLI-13")
async def test_forbidden_kinds_are_named_beside_the_others() -> None:
    server, _ = world("nginx:1", status=DONE)
    client = Client(Guarded(("statefulsets",), server), VirtualClock())
    found = await show_all(client, "shop", [])
    assert found.left_out == "not shown, because you are not allowed to list them: StatefulSet"
    assert "CloneSet" in found.text
    listed = json.loads((await show_all(client, "shop", [], output="json")).text)["items"]
    (unread,) = [one for one in listed if one["kind"] == "StatefulSet"]
    assert unread == {"kind": "StatefulSet", "namespace": "shop", "message": "refused: you cannot list it"}
    with pytest.raises(Forbidden):
        await show_all(client, "shop", ["asts"])


@virtual
@pytest.mark.behaviour("CLI-13")
async def test_a_user_who_may_list_no_kind_is_refused() -> None:
    server, _ = world("nginx:1", status=DONE)
    plurals = [one.kind.resource().plural for one in known() if one.progress is not None]
    client = Client(Guarded(tuple(plurals), server), VirtualClock())
    refused = r"not allowed to list .*CloneSet.* in namespace shop; use -n to specify another"
    with pytest.raises(CommandError, match=refused):
        await show_all(client, "shop", [])
    with pytest.raises(CommandError, match="in all namespaces; use -n to specify one"):
        await show_all(client, "", [])


@virtual
@pytest.mark.behaviour("CLI-17")
async def test_unreadable_details_of_a_pod_are_named_beside_the_rest() -> None:
    server, _ = world("nginx:1", status=DONE)
    server.objects[f"{PODS}/web-0"]["metadata"]["annotations"] = {names.RELATED_PUB: "guard"}
    client = Client(Guarded(("podunavailablebudgets",), server), VirtualClock())
    said = (await of_pod(client, "shop", "web-0", ENABLED)).text()
    assert "PodUnavailableBudget: not checked: refused: you cannot list it" in said
    assert said.startswith("Pod shop/web-0 of CloneSet web")
    del server.objects[f"{PODS}/web-0"]["metadata"]["ownerReferences"]
    said = (await of_pod(client, "shop", "web-0", ENABLED)).text()
    assert said.splitlines()[0] == "Pod shop/web-0"
    assert said.splitlines()[-1] == "to do: nothing"


@virtual
@pytest.mark.behaviour("CLI-17", "CLI-24")
async def test_explain_works_without_the_right_to_read_pods() -> None:
    server, _ = world("nginx:1", status=DONE, updateStrategy=rolling(paused=True))
    client = Client(Guarded((PODS,), server), VirtualClock())
    assert (await whole(client, wanted(WHAT)[0], "shop", "web", ENABLED)).text().splitlines() == [
        "CloneSet shop/web: 3 of 3 Pods updated, 3 available",
        "the rest was not checked: refused: you cannot list it",
        "to do: pykruise rollout resume cloneset web",
    ]


class Hung(ApiServer):
    """Accepts requests and never answers."""

    async def request(self, request: Request) -> Response:
        await VirtualClock().sleep(3600)
        return await super().request(request)


@virtual
@pytest.mark.behaviour("CLI-18")
async def test_a_timeout_holds_while_the_server_hangs() -> None:
    client = Client(Hung(), VirtualClock())
    started = client.clock.monotonic()
    with pytest.raises(CommandError, match="CloneSet shop/web: the API server did not respond in time"):
        await show_status(client, "shop", WHAT, watch=True, give_up=5)
    assert client.clock.monotonic() - started == pytest.approx(5, abs=0.1)


@pytest.mark.behaviour("CLI-10")
def test_kinds_without_rollout_point_to_other_commands(tmp_path: Path) -> None:
    path = "/apis/policy.kruise.io/v1beta1/namespaces/default/podunavailablebudgets/x"
    stored: dict[str, Any] = {path: {"metadata": {"name": "x", "namespace": "default"}, "spec": {}}}
    with closing(Answers(stored)) as server:
        kubeconfig = server.kubeconfig(tmp_path)
        status = CliRunner().invoke(app, ["rollout", "status", "pub/x", "--kubeconfig", kubeconfig])
        restart = CliRunner().invoke(app, ["rollout", "restart", "pub/x", "--kubeconfig", kubeconfig])
    assert "has no rollout; see: pykruise explain podunavailablebudget/x" in status.stderr
    assert re.search("cannot be restarted; these can: .*cloneset", restart.stderr)
    assert (status.exit_code, restart.exit_code) == (1, 1)


@pytest.mark.behaviour("CLI-15")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["main=nginx:1"], "main=nginx:1: specify the object: KIND NAME CONTAINER=IMAGE"),
        (["clone/web", "main=A B"], "A B: is not a valid image reference such as nginx:1.27"),
    ],
)
def test_invalid_images_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(WrongCommandError) as refused:
        images_of(words)
    assert str(refused.value).startswith(said)
