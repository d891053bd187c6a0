"""A user who follows the documents: a shell, kubectl and helm, and an installed clone."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

from tests.cluster import binaries, helm
from tests.cluster.paths import cache_dir, locked
from tests.scenarios.world import printed

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 90
#: Files of a clone that are the user's own.
_OWN: Final = (".git", ".venv", "build", "certs")
_POD: Final = re.compile(r"\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-[a-z0-9]{5}\b")


class Reader:
    """A user's shell beside a sandbox."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        (self.programs / "kubectl").symlink_to(binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL])
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"KUBECONFIG": str(folder / "kube"), "PATH": path} | environment
        self.names: dict[str, str] = {}

    def administers(self, kubeconfig: Path) -> None:
        """Give the shell helm and administrator rights."""
        (self.programs / "helm").symlink_to(helm.ensure())
        homes = {f"HELM_{kind}_HOME": str(self.programs.parent / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        self.environment |= {**homes, "KUBECONFIG": str(kubeconfig)}

    def types(self, command: str, *, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def does(self, command: str, *, seconds: float = SECONDS) -> str:
        """Run a command that must succeed; return its output."""
        done = self.types(command, seconds=seconds)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def leaves_running(self, command: str) -> Iterator[Running]:
        """Run a command inside the context and end it with Ctrl-C."""
        said = self.programs.parent / f"said-{len(list(self.programs.parent.glob('said-*')))}"
        with said.open("wb") as output:
            # A background shell ignores Ctrl-C, and so do its children.
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_heeds_interrupts,
            )
        running = Running(command, process, said)
        try:
            yield running
        finally:
            running.ends()

    def as_here(self, text: str) -> str:
        there = self.types("kubectl get pods -o name").stdout.replace("pod/", "").split()
        for name in dict.fromkeys(_POD.findall(text)):
            if name not in there and name not in self.names:
                free = [one for one in there if _POD.fullmatch(one) and one not in self.names.values()]
                alike = max(free, key=lambda one: _alike(one, name), default="")
                if _alike(alike, name):
                    self.names[name] = alike
        return _POD.sub(lambda found: self.names.get(found[0], found[0]), text)


class Running:
    """A running command and its output."""

    def __init__(self, command: str, process: subprocess.Popen[bytes], said: Path) -> None:
        self.command = command
        self._process = process
        self._said = said

    @property
    def text(self) -> str:
        return self._said.read_text("utf-8", "replace")

    def says(self, words: str, seconds: float = SECONDS) -> str:
        """Return the first line with these words, as soon as it appears."""

        def look(text: str) -> str | None:
            return next((one for one in text.splitlines() if words in one), None)

        return printed(self._process, self._said, look, f"{self.command} says {words}", seconds)

    def ends(self) -> int:
        """Send Ctrl-C to all processes of the command, like a terminal; return its exit code."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise AssertionError(f"{self.command} does not end:\n{self.text}") from None


@contextmanager
def sandboxed(folder: Path, flags: Sequence[str] | str = "") -> Iterator[Reader]:
    reader = Reader(folder)
    wanted = flags if isinstance(flags, str) else shlex.join(flags)
    kubeconfig = f"--kubeconfig {folder / 'kube'}"
    reader.does(f"pykruise sandbox --detach {kubeconfig} {wanted}")
    try:
        yield reader
    finally:
        reader.types(f"pykruise sandbox --stop {kubeconfig}")


def clone(folder: Path) -> Path:
    """A clone as ``make venv`` leaves it, with this virtual environment."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in _OWN and not entry.name.startswith("sandbox"):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "certs", folder / "certs", ignore=shutil.ignore_patterns("*.crt", "*.key", "*.pem"))
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / ".installed").touch()
    return folder


@contextmanager
def ports_of_the_documents() -> Iterator[None]:
    """The ports that documents name, for one test at a time."""
    with locked(cache_dir() / "ports-of-the-documents.lock"):
        yield


def _heeds_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _alike(one: str, other: str) -> int:
    """Return the length of the common prefix of two paths, in parts."""
    same = (mine == theirs for mine, theirs in zip(one.split("-"), other.split("-"), strict=False))
    return sum(takewhile(bool, same))
