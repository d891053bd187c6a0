"""Events in the two groups that serve them: ``v1`` and ``events.k8s.io/v1`` are two views of one object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

#: Field of v1 → field of events.k8s.io/v1, where they differ.
_NAMES: Final[Mapping[str, str]] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}


def new_event(event: Json) -> Json:
    """A v1 Event as ``events.k8s.io/v1``."""
    empty: Json = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
    found = _renamed(event, _NAMES, "events.k8s.io/v1")
    return {**found, **{name: value for name, value in empty.items() if name not in found}}


def core_event(event: Json) -> Json:
    """An ``events.k8s.io/v1`` Event as v1."""
    return _renamed(event, {new: old for old, new in _NAMES.items()}, "v1")


def _renamed(event: Json, names: Mapping[str, str], api_version: str) -> Json:
    found = {names.get(key, key): value for key, value in event.items()}
    return {"kind": "Event", "apiVersion": api_version, "metadata": event["metadata"]} | {
        key: value for key, value in found.items() if key not in ("kind", "apiVersion", "metadata")
    }
