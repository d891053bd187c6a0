"""What commands print: text for people, JSON or YAML for programs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from app.kube.text import one_line, printable

Format: TypeAlias = Literal["text", "json", "yaml"]


def written(data: Mapping[str, Any] | Sequence[Any], output: Format, *, one_line: bool = False) -> str:
    """Data as JSON or YAML, without the newline at its end; what a terminal would obey is escaped."""
    if output == "json":
        import orjson

        return printable(orjson.dumps(data, option=0 if one_line else orjson.OPT_INDENT_2).decode())
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if printable(text) != text:
        text = yaml.safe_dump(data, sort_keys=False)
    return f"---\n{text.rstrip()}" if one_line else text.rstrip()


def write(text: str) -> None:
    """Print it, whatever characters the terminal knows, and nothing that it obeys: much of it is other people's."""
    encoding = sys.stdout.encoding or "utf-8"
    print(printable(text).encode(encoding, "replace").decode(encoding), flush=True)


def items(found: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """A list as programs know it from kubectl."""
    return {"kind": kind, "items": [dict(one) for one in found]}


def complain(message: str) -> None:
    """One line on standard error, in the one style that all commands have."""
    with contextlib.suppress(OSError):  # the exit code is told all the same
        sys.stderr.write(f"pykruise: {one_line(message)}\n")
        sys.stderr.flush()
