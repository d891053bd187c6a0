"""An example of each kind, as a newcomer would write it: for reference pages, tests and the pages of webhooks."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from app.api.kind import KindDefinition


def example_text(kind: KindDefinition) -> str:
    """The example as YAML."""
    return (files(__name__) / f"{kind.singular}.yaml").read_text("utf-8")


@cache
def example(kind: KindDefinition) -> dict[str, Any]:
    """The example as JSON; it is shared and must not be changed."""
    found: dict[str, Any] = yaml.safe_load(example_text(kind))
    return found
