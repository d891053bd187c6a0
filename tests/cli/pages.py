"""The commands in pages. Tests read them from the page instead of copying them.

test_pages also collects the calls ``lines("docs/x.md")`` and ``line("docs/x.md", "how it begins")``, and fails on a
command that no test takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cli.guides import Typed, commands_in

ROOT: Final = Path(__file__).resolve().parents[2]
BLOCK: Final = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
_COMMENT: Final = re.compile(r"\s+#( .*)?$")


def typed(page: str) -> list[Typed]:
    """Return the commands of a page in order, each with the output shown after it."""
    found: list[Typed] = []
    for block in BLOCK.finditer((ROOT / page).read_text("utf-8")):
        if block[1] == "sh":
            found += (Typed(command, "") for command in _in_script(block[2]))
        elif block[1] == "console":
            found += commands_in(block[2])
    return found


def lines(page: str) -> list[str]:
    return [one.command for one in typed(page)]


def line(page: str, beginning: str) -> str:
    """Return the only command of a page that equals or starts with the text."""
    return shown(page, beginning).command


def shown(page: str, beginning: str) -> Typed:
    there = typed(page)
    found = [one for one in there if one.command == beginning]
    found = found or [one for one in there if one.command.startswith(beginning)]
    assert len(found) == 1, f"{page} has {len(found)} commands that begin with {beginning!r}"
    return found[0]


def _in_script(content: str) -> Iterator[str]:
    parts: list[str] = []
    for written in content.splitlines():
        if not parts and (not written.strip() or written.startswith("#")):
            continue
        parts.append(_COMMENT.sub("", written))
        if not parts[-1].endswith("\\"):
            yield "\n".join(parts)
            parts.clear()
