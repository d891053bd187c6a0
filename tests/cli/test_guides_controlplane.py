"""What guides have their readers type is typed, by the kubectl that readers have: each command does what is printed.

Names that are made up on the way (of Pods) are taken from the cluster. What is printed is held where it does not depend
on the moment: the end of a roll-out, what a change says, and why something is refused.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import pytest

from tests.cli.guides import TYPED, Typed, read
from tests.cluster import binaries

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90
_POD = re.compile(r"\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-[a-z0-9]{5}\b")
_STABLE = re.compile(
    r"kubectl (apply|create|patch|label|delete -f|taint|annotate|scale|wait(?!.*--for=delete)|get .* -o jsonpath)"
    r"|(pykruise|kubectl kruise) rollout"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]{8}Z")

pytestmark = pytest.mark.controlplane


class Reader:
    """Somebody in a shell beside a sandbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kubectl = folder / "bin" / "kubectl"
        kubectl.parent.mkdir()
        kubectl.symlink_to(binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL])
        path = f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"KUBECONFIG": str(folder / "kube"), "PATH": path}
        self.names: dict[str, str] = {}

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line in a shell."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def as_here(self, text: str) -> str:
        """A command with the names of Pods that there are here."""
        there = self.types("kubectl get pods -o name").stdout.replace("pod/", "").split()
        for name in dict.fromkeys(_POD.findall(text)):
            if name not in there and name not in self.names:
                free = [one for one in there if _POD.fullmatch(one) and one not in self.names.values()]
                alike = max(free, key=lambda one: _alike(one, name), default="")
                if _alike(alike, name):
                    self.names[name] = alike
        return _POD.sub(lambda found: self.names.get(found[0], found[0]), text)


@contextmanager
def reader(folder: Path, wanted: str) -> Iterator[Reader]:
    """A reader with a sandbox of their own."""
    somebody = Reader(folder)
    flags = f"--kubeconfig {folder / 'kube'}"
    started = somebody.types(f"pykruise sandbox --detach {flags} {wanted}")
    assert started.returncode == 0, started.stdout
    try:
        yield somebody
    finally:
        somebody.types(f"pykruise sandbox --stop {flags}")


@pytest.mark.parametrize("name", TYPED)
def test_a_guide_can_be_followed(name: str, tmp_path: Path) -> None:
    guide = read(ROOT / "docs" / "guides" / f"{name}.md")
    assert sum(isinstance(step, Typed) for step in guide.steps) > 3
    with reader(tmp_path, guide.flags) as somebody:
        for step in guide.steps:
            if not isinstance(step, Typed):
                (tmp_path / step[0]).write_text(step[1], "utf-8")
                continue
            done = somebody.types(somebody.as_here(step.command))
            told = f"$ {step.command}\n{done.stdout}\nprinted in the guide:\n{step.printed}"
            assert (done.returncode != 0) is step.fails, told
            if step.fails or (step.printed and _STABLE.match(step.command)):
                # The last line; newer versions of kubectl say more.
                assert _plain(step.printed.splitlines()[-1]) in _plain(done.stdout), told


def _alike(one: str, other: str) -> int:
    """How many parts of two names are the same, from the first on."""
    same = (mine == theirs for mine, theirs in zip(one.split("-"), other.split("-"), strict=False))
    return sum(takewhile(bool, same))


def _plain(text: str) -> str:
    """What is said whatever the Pods are called, whenever it is."""
    return " ".join(_TIME.sub("TIME", _POD.sub("POD", text)).split())
