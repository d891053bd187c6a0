"""The command line of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing


@pytest.fixture(autouse=True, scope="session")
def _command_line_built_once() -> Iterator[None]:
    """Typer's runner builds all commands again for each command that it runs, which takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield
