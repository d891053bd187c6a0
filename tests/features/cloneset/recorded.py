"""What OpenKruise answered about CloneSets, and how an answer of ours is held against it.

The recorded answers are in tests/data/openkruise. The recorder left out uids and times, and of templates inside the
spec what a status has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "openkruise"
CASES: list[dict[str, Any]] = json.loads((DATA / "samples-cloneset.json").read_text("utf-8"))
IDS = [case["manifest"]["metadata"]["name"] for case in CASES]
#: Recorded messages were cut to this many characters.
RECORDED = 400
_LEFT_OUT = frozenset(
    {
        "status",
        "creationTimestamp",
        "uid",
        "generation",
        "resourceVersion",
        "managedFields",
        "kruise.io/conversion-data",
    }
)


def judged(refusal: str, ok: bool, message: str) -> None:
    """Hold a judgement against the recorded one. ``refusal``: as kubectl prints it; empty for an accepted object."""
    assert refusal[:RECORDED] == message
    assert (not refusal) is ok


def comparable(value: Any) -> Any:
    """Without what was left out when the answers were recorded."""
    if isinstance(value, dict):
        kept = {key: comparable(item) for key, item in value.items() if key not in _LEFT_OUT}
        if kept.get("annotations") == {}:
            del kept["annotations"]
        return kept
    return [comparable(item) for item in value] if isinstance(value, list) else value


def read_alike(ours: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Hold an object as it was read against the recorded one."""
    assert comparable(ours) == recorded
