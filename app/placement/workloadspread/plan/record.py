"""What is written on a Pod about its subset, and which version of its workload it is of (WS-33, WS-40). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api import names

#: The version of Pods that are counted together.
VERSION_IGNORED: Final = "versionIgnored"
_HASHES: Final = (names.POD_TEMPLATE_HASH, names.CONTROLLER_HASH)
#: The longest record that is read: names are much shorter.
_MOST_TEXT: Final = 4_096


@dataclass(frozen=True, slots=True)
class SubsetRecord:
    """The annotation of a Pod. ``uid``: by what its place was taken, if it had no name."""

    spread: str
    subset: str
    uid: str = ""

    def annotation(self) -> dict[str, str]:
        """As it is written."""
        value = {"name": self.spread, "subset": self.subset}
        if self.uid:
            value["uid"] = self.uid
        return {names.MATCHED_WORKLOAD_SPREAD: orjson.dumps(value).decode()}


def record_of(annotations: Mapping[str, str]) -> SubsetRecord | None:
    """WS-33: what the annotation says, whatever the case of its keys; None where it says nothing."""
    text = annotations.get(names.MATCHED_WORKLOAD_SPREAD)
    if not text or len(text) > _MOST_TEXT:
        return None
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(read, dict):
        return None
    found = {key.lower(): value for key, value in read.items() if isinstance(value, str)}
    return SubsetRecord(found.get("name", ""), found.get("subset", ""), found.get("uid", ""))


def version_of(kind: str, labels: Mapping[str, Any], versioned: Collection[str]) -> str:
    """WS-40: the version of a Pod whose controller is of this kind. ``versioned``: kinds in lower case."""
    if kind.lower() not in versioned:
        return VERSION_IGNORED
    template, revision = (labels.get(key) for key in _HASHES)
    return str(template or "") or str(revision or "").rpartition("-")[2] or VERSION_IGNORED


def versioned_kinds(text: str) -> frozenset[str]:
    """WS-40: the kinds that the flag names; Deployments bring their ReplicaSets."""
    kinds = {part.strip().lower() for part in text.split(",")} - {""}
    return frozenset(kinds | {"replicaset"} if "deployment" in kinds else kinds)
