"""Rules for every command, including those of features: help, JSON, invalid words, no answer, a pipe, Ctrl-C.

The commands come from the command line itself, so that new ones are included automatically.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from app.cli import kinds
from app.cli.kinds import known
from app.cli.main import app
from app.cli.verbs import Later
from tests.cli.answers import Answers

EXAMPLES: Final = Path(__file__).parent.parent.parent / "docs/guides/examples"
PROGRAM: Final = str(Path(sys.executable).with_name("pykruise"))
#: Values of arguments and required options, by metavar; a Pod for any other.
WORDS: Final = {
    "KIND NAME": "clone/web",
    "KIND NAME CONTAINER=IMAGE...": "clone/web main=nginx:2",
    "KIND/NAME": "deploy/web",
    "NAME,NAME": "web-1",
    "NAMESPACE/NAME": "shop/web",
    "IMAGE": "nginx:1",
}
#: Options that a command requires although its declaration does not.
BESIDE: Final = {"restart": ("-c", "main"), "debug": ("--image", "busybox:1"), "protect": (), "unprotect": ()}
#: They serve, read files, or need no cluster; other tests cover their start and end.
WITHOUT_A_CLUSTER: Final = ("manager", "daemon", "serve", "review", "version", "sandbox", "completion")


@dataclass(frozen=True)
class Command:
    path: tuple[str, ...]
    options: frozenset[str]
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return " ".join(self.path)

    @property
    def reads(self) -> bool:
        return "--output" in self.options and self.name not in WITHOUT_A_CLUSTER


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[Command]:
    if isinstance(command, Later):
        command = command.made()
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), (*path, name))
        return
    words: list[str] = []
    for one in command.params:
        if one.param_type_name == "argument" and (one.required or one.metavar):
            words += WORDS.get(one.metavar or "", "pod/web").split()
        elif one.required:
            words += [one.opts[0], WORDS.get(one.metavar or "", "x")]
    words += BESIDE.get(" ".join(path), ())
    yield Command(path, frozenset(option for one in command.params for option in one.opts), tuple(words))


COMMANDS: Final = tuple(_commands(typer.main.get_command(app)))
ASKING: Final = [one for one in COMMANDS if one.name not in WITHOUT_A_CLUSTER]
READING: Final = [one for one in COMMANDS if one.reads]


def by_name(found: list[Command] | tuple[Command, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("command", found, ids=lambda one: one.name.replace(" ", "-"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Answers({})
    yield server.kubeconfig(tmp_path_factory.mktemp("empty"))
    server.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Write the kubeconfig of a cluster with an object of every kind that has commands."""
    server = Answers(STORED)
    yield server.kubeconfig(tmp_path_factory.mktemp("filled"))
    server.close()


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def one_sentence(result: Result, *codes: int) -> str:
    """Check that a command ended with one of these codes and one line on standard error only; return the line."""
    assert result.exit_code in codes, (result.exit_code, result.output)
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("pykruise: ")
    assert "Traceback" not in line
    return line


def test_every_verb_of_a_feature_is_a_command() -> None:
    assert set(kinds.verbs()) <= {one.path[0] for one in COMMANDS}
    assert len(READING) >= 4
    assert {"rollout status", "migrate", "pull", "restart", "debug"} <= {one.name for one in ASKING}


@by_name([one for one in COMMANDS if one.name not in ("manager", "daemon")])  # their flags are in Go's syntax
@pytest.mark.behaviour("CLI-11")
def test_help_describes_the_command(command: Command) -> None:
    result = typed(*command.path, "-h")
    assert (result.exit_code, result.stderr) == (0, "")
    assert typed(*command.path, "--help").stdout == result.stdout
    usage, _, said, *_ = result.stdout.splitlines()
    assert command.name in usage
    assert said.strip()[:1].isupper()
    # Names of Python types mean nothing to users.
    assert re.findall(r"<(?:str|int|float|path|list)\b[^>]*>", result.stdout) == []


@pytest.mark.parametrize("path", [(), ("rollout",), ("set",)], ids=["pykruise", "rollout", "set"])
def test_command_lists_describe_each_command_in_a_full_sentence(path: tuple[str, ...]) -> None:
    said = typed(*path, "-h").stdout
    listed = [line for line in said.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    assert [line for line in listed if line.endswith("...")] == []


@by_name(ASKING)
@pytest.mark.behaviour("CLI-11")
def test_an_unknown_option_is_reported_in_one_line_with_exit_code_2(command: Command) -> None:
    assert "--nonsense" in one_sentence(typed(*command.path, *command.arguments, "--nonsense"), 2)


@by_name(ASKING)
@pytest.mark.behaviour("CLI-11")
def test_without_a_cluster_commands_print_one_line_with_exit_code_2(command: Command) -> None:
    result = typed(*command.path, *command.arguments, "--kubeconfig", "/there/is/none")
    assert "kubeconfig /there/is/none does not exist; use --kubeconfig FILE" in one_sentence(result, 2)


@by_name([one for one in ASKING if one.arguments and one.name != "pull"])  # the image need not exist
@pytest.mark.behaviour("CLI-11")
def test_an_unknown_name_is_reported_in_one_line_with_exit_code_1(command: Command, empty: str) -> None:
    result = typed(*command.path, *command.arguments, "--kubeconfig", empty)
    assert "not found" in one_sentence(result, 1)


@by_name([one for one in ASKING if one.arguments])
@pytest.mark.parametrize("word", ["bogus/web", "a/b/c/d", "clone/", "/", "web\nweb/x", "é/ü"])
@pytest.mark.behaviour("CLI-10", "CLI-11")
def test_invalid_words_are_reported_in_one_line(command: Command, word: str, empty: str) -> None:
    result = typed(*command.path, word, *command.arguments[1:], "--kubeconfig", empty)
    one_sentence(result, 1, 2)


def _stored() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for commands in known():
        kind = commands.kind
        text = (EXAMPLES / f"{kind.singular}.yaml").read_text("utf-8")
        given = next(
            one
            for one in yaml.safe_load_all(text)
            if one["kind"] == kind.kind and kind.version(one["apiVersion"]) is not None
        )
        resource = kind.resource()
        name = given["metadata"]["name"]
        given["apiVersion"] = resource.api_version
        given["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1}
        if kind.namespaced:
            given["metadata"]["namespace"] = "default"
        found[resource.path("default" if kind.namespaced else "", name)] = given
    return found


STORED: Final = _stored()
OBJECTS: Final = [
    (one["singular"], path) for one in kinds.kinds() for path, obj in STORED.items() if obj["kind"] == one["kind"]
]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make commands interruptible even if this process was started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@by_name([one for one in ASKING if one.name != "dashboard"])
@pytest.mark.usefixtures("interruptible")
@pytest.mark.behaviour("CLI-11")
def test_an_interrupt_exits_at_once_and_reports_leftovers(command: Command, tmp_path: Path) -> None:
    server, ended = Answers({}, silent=True), threading.Event()

    def interrupt() -> None:
        if server.asked.wait(timeout=60):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        ended.wait(timeout=60)
        server.close()

    user = threading.Thread(target=interrupt)
    user.start()
    try:
        result = typed(*command.path, *command.arguments, "--kubeconfig", server.kubeconfig(tmp_path))
    finally:
        ended.set()
        user.join()
    assert (result.exit_code, result.stdout) == (130, "")
    assert re.fullmatch(r"(pykruise: interrupted; .* may have been (made|created); .*\n)?", result.stderr)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.behaviour("CLI-11")
def test_an_interrupt_during_a_wait_exits(output: str, filled: str) -> None:
    """The command waits for a CloneSet whose status never arrives."""
    path = next(path for kind, path in OBJECTS if kind == "cloneset")
    words = [PROGRAM, "rollout", "status", "cloneset", STORED[path]["metadata"]["name"], "-o", output]
    running = subprocess.Popen(
        [*words, "--kubeconfig", filled], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert running.stdout is not None
    try:
        assert "waiting for the controller to observe the change" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, said, complained) == (130, "", "")


@by_name([one for one in READING if one.name in ("rollout status", "explain")])
@pytest.mark.behaviour("CLI-11")
def test_a_closed_pipe_ends_the_command_silently(command: Command, filled: str) -> None:
    path = next(path for kind, path in OBJECTS if kind == "cloneset")
    reading, writing = os.pipe()
    os.close(reading)
    words = [PROGRAM, *command.path, "cloneset", STORED[path]["metadata"]["name"]]
    words += ["--no-watch"] if "--watch" in command.options else []
    try:
        found = subprocess.run(
            [*words, "--kubeconfig", filled], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(writing)
    assert (found.returncode, found.stderr) == (1, "")


#: Modules that a short command must not import. (Typer itself reads arguments with pydantic.)
HEAVY: Final = (
    "aiohttp",
    "kubernetes",
    "fastapi",
    "rich",
    "prometheus_client",
    "app.api",
    "app.features",
    "app.sandbox",
)


def test_short_commands_import_no_kind() -> None:
    script = (
        "import sys\n"
        "from app.cli.main import main\n"
        "for words in ('--version', '-h', 'rollout status -h', 'completion bash'):\n"
        "    sys.argv = ['pykruise', *words.split()]\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        f"    print(*(f'{{words}}: {{one}}' for one in {HEAVY!r} if one in sys.modules), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stderr.split() == []


def test_a_command_for_one_kind_imports_no_other(empty: str) -> None:
    modules = sorted(one["at"].partition(":")[0] for one in kinds.kinds())
    script = (
        f"import sys; sys.argv = ['pykruise', 'rollout', 'status', 'clone/web', '--kubeconfig', {empty!r}]\n"
        "from app.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(*(one for one in {modules!r} if one in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["app.features.cloneset.commands"]
