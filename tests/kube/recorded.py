"""Reads the results recorded from the Kubernetes libraries (tests/data/apimachinery)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data" / "apimachinery"


def cases(name: str) -> list[tuple[Any, Any]]:
    """Return input and output of every recorded case with this name."""
    return [(case["in"], case["out"]) for case in json.loads((DATA / f"{name}.json").read_text())]


def for_each(found: list[tuple[Any, Any]]) -> Callable[[Callable[[Any, Any], None]], Callable[[], None]]:
    """Run a test for each case; a failure shows the input. One test, since there are hundreds of cheap cases."""

    def decorated(test: Callable[[Any, Any], None]) -> Callable[[], None]:
        def runs_each() -> None:
            assert found
            for asked, expected in found:
                try:
                    test(asked, expected)
                except Exception as error:
                    error.add_note(f"recorded case: {asked!r}")
                    raise

        runs_each.__name__, runs_each.__doc__, runs_each.__module__ = test.__name__, test.__doc__, test.__module__
        return runs_each

    return decorated
