"""Which of the expensive checks one CI run makes: those about changed packages, and a rotating tenth of the others.

`make nightly` makes them all. The rotation follows the commit's name, so a run of a commit repeats exactly.
$CI_BASE names the commit to compare with; by default the newest one a day older than HEAD.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
ROTATION: Final = 10


@dataclass(frozen=True)
class Selection:
    """``share``: one in this many is selected whatever has changed."""

    share: int = ROTATION

    @cached_property
    def commit(self) -> str:
        """The commit under test."""
        return _git("rev-parse", "HEAD")

    @cached_property
    def changed(self) -> frozenset[str]:
        """The packages below app/ with changes, such as ``app/workloads/cloneset``; a module at the top is its own."""
        base = os.environ.get("CI_BASE") or _day_before(self.commit)
        return frozenset(map(package, _git("diff", "--name-only", base, "--", "app").splitlines()))

    def takes(self, name: str, about: Iterable[str | Path]) -> bool:
        """Whether the check ``name`` about these modules is selected."""
        if any(package(path) in self.changed for path in about):
            return True
        return crc32(f"{self.commit} {name}".encode()) % self.share == 0


SELECTION: Final = Selection()


def package(path: str | Path) -> str:
    """Return the folder that a module belongs to, with at most three parts."""
    relative = Path(path).relative_to(ROOT) if Path(path).is_absolute() else Path(path)
    return "/".join(relative.parent.parts[:3])


def _day_before(commit: str) -> str:
    when = int(_git("show", "-s", "--format=%ct", commit) or 0)
    return _git("rev-list", "-1", f"--before={when - 86400}", commit) or commit


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
