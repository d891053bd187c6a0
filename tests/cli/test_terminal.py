"""What all commands share: names, exit codes, output formats, dry runs, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from app.cli.main import app
from app.kube.errors import RequestInfo, Status, sentence, status_error
from tests.cli.answers import Answers
from tests.kit.objects import kubeconfig, workload_spec

WRITING = (
    *("rollout undo", "rollout restart", "rollout pause", "rollout resume", "set image", "scale-in"),
    *("protect", "unprotect", "migrate", "pull", "restart", "debug"),
)


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, [part for word in words for part in word.split(" ")])


@pytest.fixture
def unreachable(tmp_path: Path) -> str:
    """The kubeconfig of a cluster that does not answer."""
    config = tmp_path / "config"
    config.write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:9")), "utf-8")
    return str(config)


@pytest.mark.parametrize("command", WRITING)
def test_write_commands_have_a_dry_run(command: str) -> None:
    assert "--dry-run" in typed(command, "-h").output


@pytest.mark.parametrize("command", ["rollout status", "explain", "plan"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("deploy/web", "is built into Kubernetes; use kubectl rollout"),
        ("rollouts/web", "belongs to Kruise Rollouts, another project"),
        ("nodeimage/web", "has no rollout and no commands of its own; use kubectl describe nodeimage"),
        ("bogus/web", "is not a supported kind; use one of: "),
        ("a/b/c", "expected KIND NAME or KIND/NAME"),
        ("clone/", "expected KIND NAME or KIND/NAME"),
    ],
)
@pytest.mark.behaviour("CLI-10", "CLI-11")
def test_a_wrong_kind_is_refused_with_a_hint(command: str, kind: str, said: str, unreachable: str) -> None:
    result = typed(command, kind, "--kubeconfig", unreachable)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.behaviour("CLI-11")
def test_an_unresponsive_cluster_is_reported_in_one_line_with_exit_code_1(unreachable: str) -> None:
    result = typed("rollout status clone/web", "--kubeconfig", unreachable)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("pykruise: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bogus", "no such command 'bogus'; see "),
        ("rollout statu clone/web", "no such command 'statu'. Did you mean 'status', 'restart'? See "),
        ("rollout status clone/web --timeout 5x", "'5x' is not a duration such as 90s, 5m or 1h30m"),
        ("rollout status clone/web --timeout -5s", "is not a valid timeout"),
        ("rollout status clone/web -A", "--all-namespaces cannot be used with a name"),
        ("rollout history", "missing argument"),
        ("plan", "expected one of -f FILE for a manifest, KIND NAME"),
        ("plan clone/web -f -", "expected one of -f FILE for a manifest, KIND NAME"),
        ("set image clone/web", "expected KIND NAME CONTAINER=IMAGE, where * means every container"),
        ("set image clone/web main=", "expected KIND NAME CONTAINER=IMAGE, where * means every container"),
        ("set image clone/web a=b a=c", "a container is named twice"),
        ("scale-in clone/web --pods ,", "--pods: expected comma-separated Pod names"),
        ("scale-in clone/web --pods a,a", "--pods: a Pod is named twice"),
        ("scaledown", "there is no command scaledown here; use: pykruise scale-in KIND NAME --pods NAME,NAME"),
        ("set env clone/web A=b", "there is no command env here; use: kubectl edit"),
        ("completion tcsh", "'tcsh'"),
        ("completion", "missing argument 'shell'. Choose from: bash, zsh, fish; see"),
        ("version -o xml", "invalid value for '--output' / '-o': 'xml' is not one of"),
        ("rollout history clone/web --revision x", "invalid value for '--revision': it is not a whole number; see"),
        (
            "migrate clone/web --from deploy/web --max-surge 0",
            "invalid value for '--max-surge': it is less than 1; see",
        ),
        ("--kubeconfig x rollout status", "no such option: --kubeconfig here; put it after the command, see"),
    ],
)
@pytest.mark.behaviour("CLI-11", "CLI-18", "CLI-19")
def test_usage_errors_are_reported_in_one_line_with_exit_code_2(words: str, said: str, unreachable: str) -> None:
    result = CliRunner(env={"KUBECONFIG": unreachable}).invoke(app, words.split(" "))
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("pykruise: ")
    assert said in line


@pytest.mark.behaviour("CLI-11")
def test_warnings_of_the_api_server_are_printed_as_kubectl_prints_them(tmp_path: Path) -> None:
    path = "/apis/apps.kruise.io/v1beta1/namespaces/it/clonesets/web"
    stored = {"metadata": {"name": "web", "namespace": "it", "resourceVersion": "1"}, "spec": workload_spec()}
    warnings = ('299 - "unknown field \\"spec.a\\""', '299 - "b", 299 - "c\x85"')
    with closing(Answers({path: stored}, warnings=warnings)) as server:
        result = typed("set image clone/web main=nginx:2 -n it --kubeconfig", server.kubeconfig(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ['Warning: unknown field "spec.a"', "Warning: b", "Warning: c\\x85"]


def test_a_scale_in_of_foreign_pods_is_refused(unreachable: str) -> None:
    result = typed("scale-in sidecarset/log --pods a", "--kubeconfig", unreachable)
    assert result.exit_code == 1
    assert "owns no Pods; scale the workloads that own them" in result.stderr


def test_the_version_is_printed_by_command_and_option() -> None:
    assert typed("--version").output == typed("version").output
    assert json.loads(typed("version -o json").output)["name"] == "pykruise"
    assert yaml.safe_load(typed("version -o yaml").output)["name"] == "pykruise"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.behaviour("CLI-19")
def test_each_shell_gets_its_completion_script(shell: str) -> None:
    said = typed("completion", shell)
    assert said.exit_code == 0
    assert "_PYKRUISE_COMPLETE=complete_" in said.output


@pytest.mark.behaviour("CLI-19")
def test_commands_are_completed() -> None:
    asked = {"COMP_WORDS": "pykruise rollout re", "COMP_CWORD": "2", "_PYKRUISE_COMPLETE": "complete_bash"}
    command = [str(Path(sys.executable).with_name("pykruise"))]
    found = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["restart", "resume"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status(code=422, reason="Invalid", message='CloneSet "web" is invalid'), 'refused: CloneSet "web" is invalid'),
        (Status(code=404, reason="NotFound"), "the API server does not serve /apis/x: is the kind installed?"),
        (Status(code=401, reason="Unauthorized", message="Unauthorized"), "rejected the credentials"),
    ],
)
@pytest.mark.behaviour("CLI-11")
def test_a_refusal_is_shown_without_the_request(status: Status, said: str) -> None:
    error = status_error(RequestInfo("PUT", "/apis/x?dryRun=All"), status)
    assert said in sentence(error)
    assert "PUT" not in sentence(error)


@pytest.mark.behaviour("CLI-19")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("explain clo", ["cloneset"]),
        ("rollout status daem", ["daemonset"]),
        ("explain clone/w", []),
        ("plan clone w", []),
    ],
)
def test_kinds_and_names_of_a_reachable_cluster_are_completed(words: str, completed: list[str]) -> None:
    """Without a cluster, completion prints nothing."""
    asked = {"COMP_WORDS": f"pykruise {words}", "COMP_CWORD": str(len(words.split())), "KUBECONFIG": "/there/is/none"}
    found = CliRunner(env={**asked, "_PYKRUISE_COMPLETE": "complete_bash"}).invoke(app, prog_name="pykruise")
    assert (found.stdout.split(), found.stderr) == (completed, "")


@pytest.mark.behaviour("CLI-19")
def test_kubectl_completes_through_its_plugin() -> None:
    command = [str(Path(sys.executable).with_name("kubectl_complete-kruise")), "rollout", "re"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["restart", "resume", ":4"]
