"""What a running OpenKruise leaves in a cluster: tests/data/openkruise."""

import copy
import functools
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "openkruise"
#: Recorded objects of everything it serves, beside the installation itself.
RECORDED = (
    "01-created-v1beta1.json",
    "10-statefulset.json",
    "11-daemonset-jobs.json",
    "12-placement-protection.json",
    "13-node-agent.json",
    "14-united-distribution.json",
)


def installed() -> list[dict[str, Any]]:
    """The objects of its installation, each time anew."""
    return copy.deepcopy(_items("00-installed.json"))


def recorded() -> list[dict[str, Any]]:
    """The objects that it keeps, each time anew."""
    return copy.deepcopy([item for name in RECORDED for item in _items(name)])


@functools.cache
def _items(name: str) -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / name).read_text("utf-8"))["items"])
