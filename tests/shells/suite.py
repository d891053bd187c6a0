"""The server that all cases share, and their recorded results."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from tests.kit.virtualtime import run
from tests.shells.checks import Case, Report, Trial
from tests.shells.world import Saved, Server

EXPECTED: Final = Path(__file__).parent / "expected.json"


@cache
def started() -> tuple[Server, Saved]:
    """Return the server that all cases share, and the objects that all cases need."""
    return run(_filled())


async def _filled() -> tuple[Server, Saved]:
    server = Server()
    await server.fill()
    return server, server.save()


def report_of(case: Case, *, to_first: bool = False) -> Report:
    """Run a case; with ``to_first``, up to its first problem or deviation from the recorded results."""
    server, base = started()
    recorded = expected().get(case.name, {"done": {}, "sent": [], "after a failure": {}}) if to_first else None
    # Time starts at zero, so that earlier cases do not change how times are rounded.
    return run(Trial(server, case, base, recorded).run())


def expected() -> dict[str, Any]:
    return orjson.loads(EXPECTED.read_bytes()) if EXPECTED.exists() else {}


def write_expected(found: dict[str, Any]) -> None:
    EXPECTED.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
