"""Guides as scripts: the files they tell readers to save, the commands, and their printed output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Guides typed on a sandbox, with kubectl (test_guides_controlplane).
TYPED = (
    "cloneset",
    "statefulset",
    "daemonset",
    "sidecarset",
    "podunavailablebudget",
    "workloadspread",
    "resourcedistribution",
    "persistentpodstate",
    "jobs",
    "images",
    "restarting-containers",
    "pod-probes",
    "sidecar-termination",
    "enhanced-liveness",
    "uniteddeployment",
    "node-agent",
    "deletion-protection",
)
#: Guides tested elsewhere: the dashboard ends only on request, and programs are not commands.
ELSEWHERE = {
    "dashboard": ("tests/cli/test_pages_controlplane.py", "tests/deploy/test_release_cluster.py"),
    "python": ("tests/client/test_client.py",),
}
#: Commands that test_node_cluster runs on a node with real containers.
ON_A_NODE = ("curl ", "NODE_NAME=")
#: Lines that start a sandbox by hand.
_SANDBOX = ("make sandbox", "pykruise sandbox", "export KUBECONFIG=")
_TYPED_HERE = ("kubectl ", "for ")
_BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"`([\w.-]+\.ya?ml)`")
_FLAGS = re.compile(r"--feature-gates[ =][\w=,]+|--no-samples")
#: The first line of a failed command's output.
_FAILURES = ("Error", "error", "pykruise:", "The ")


@dataclass(frozen=True)
class Typed:
    """A command, and the output that the guide shows."""

    command: str
    printed: str

    @property
    def fails(self) -> bool:
        return self.printed.startswith(_FAILURES) or "\nError from server" in self.printed


@dataclass(frozen=True)
class Guide:
    """``flags``: of its sandbox. ``steps``: files to save (name, content), and commands."""

    flags: str
    steps: tuple[Typed | tuple[str, str], ...]


def read(path: Path) -> Guide:
    text = path.read_text("utf-8")
    flags = " ".join(found[0] for found in _FLAGS.finditer(text[: text.find("## ")]))
    return Guide(flags, tuple(_steps(text)))


def on_a_node(path: Path) -> list[str]:
    """Return the lines of a guide that are typed on a node with real containers."""
    return [line.partition("   #")[0].rstrip() for line in _lines(path) if line.startswith(ON_A_NODE)]


def untyped(path: Path) -> list[str]:
    return [line for line in _lines(path) if line and not line.startswith((*_TYPED_HERE, *ON_A_NODE, *_SANDBOX))]


def _lines(path: Path) -> Iterator[str]:
    for block in _BLOCK.finditer(path.read_text("utf-8")):
        if block[1] == "sh":
            yield from block[2].splitlines()


def _steps(text: str) -> Iterator[Typed | tuple[str, str]]:
    end = 0
    for block in _BLOCK.finditer(text):
        before, end = text[end : block.start()], block.end()
        language, content = block[1], block[2]
        names = _FILE.findall(before)
        if language == "yaml" and names:
            yield names[-1], content
        elif language == "sh":
            lines = (line for line in content.splitlines() if line.startswith(_TYPED_HERE))
            yield from (Typed(line.partition("   #")[0].rstrip(), "") for line in lines)
        elif language == "console":
            yield from commands_in(content)


def commands_in(content: str) -> Iterator[Typed]:
    """Return the commands of a block that shows a terminal."""
    for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = [lines.pop(0)]
        while command[-1].endswith("\\") and lines:
            command.append(lines.pop(0))
        yield Typed("\n".join(command), "\n".join(lines))
