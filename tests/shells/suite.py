"""The server that all cases share, and their recorded results."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from tests.kit.virtualtime import VirtualLoop
from tests.shells.checks import Case, Report, Trial
from tests.shells.world import Saved, Server

EXPECTED: Final = Path(__file__).parent / "expected.json"


@cache
def started() -> tuple[VirtualLoop, Server, Saved]:
    """Return the server that all cases share, its loop, and the objects that all cases need."""
    loop = VirtualLoop()
    server, base = loop.run_until_complete(_filled())
    return loop, server, base


async def _filled() -> tuple[Server, Saved]:
    server = Server()
    await server.fill()
    return server, server.save()


def report_of(case: Case, *, to_first: bool = False) -> Report:
    """Run a case; with ``to_first``, up to its first problem."""
    loop, server, base = started()
    return loop.run_until_complete(Trial(server, case, base, to_first=to_first).run())


def expected() -> dict[str, Any]:
    """Return the recorded results by case."""
    return orjson.loads(EXPECTED.read_bytes()) if EXPECTED.exists() else {}


def write_expected(found: dict[str, Any]) -> None:
    """Record the results."""
    EXPECTED.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
