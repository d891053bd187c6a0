"""Responses recorded from OpenKruise; see tests/data/openkruise/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "openkruise"


def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


def undescribed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [undescribed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: undescribed(sub) for name, sub in value.items()} if key == "properties" else undescribed(value)
        for key, value in schema.items()
        if key != "description"
    }
