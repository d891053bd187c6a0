"""Reads the results recorded from the Kubernetes libraries (tests/data/apimachinery)."""

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "data" / "apimachinery"


def cases(name: str) -> list[Any]:
    """Return the parameters (in, out) of every recorded case with this name."""
    recorded = json.loads((DATA / f"{name}.json").read_text())
    return [pytest.param(case["in"], case["out"], id=str(number)) for number, case in enumerate(recorded)]
