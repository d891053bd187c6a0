"""Further kinds of workloads whose Pods may be spread, as the operator lists them in a ConfigMap (WS-15). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.api import names
from app.pods.customworkloads import GroupKind, WhitelistError, entries

__all__ = ["CustomWorkload", "GroupKind", "Whitelist", "WhitelistError", "parse_whitelist"]

#: WS-16: kinds that own Pods, or own those that do.
KNOWN_OWNERS: Final[frozenset[GroupKind]] = frozenset(
    {
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        (names.APPS_GROUP, "CloneSet"),
        (names.APPS_GROUP, "StatefulSet"),
        ("batch", "Job"),
    }
)


@dataclass(frozen=True, slots=True)
class CustomWorkload:
    """A kind that may be a target. ``version`` is empty where the operator named none (WS-17)."""

    group: str
    version: str
    kind: str
    replicas_path: str = ""


@dataclass(frozen=True, slots=True)
class Whitelist:
    """The list: targets, and kinds in between that own their Pods."""

    targets: Mapping[GroupKind, CustomWorkload] = field(default_factory=dict)
    owners: frozenset[GroupKind] = KNOWN_OWNERS


def parse_whitelist(text: str | None) -> Whitelist:
    """The list in the ConfigMap; empty without one. Raises WhitelistError."""
    targets: dict[GroupKind, CustomWorkload] = {}
    owners = set(KNOWN_OWNERS)
    for entry in entries(text, names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY):
        found = entry.kind
        group_kind = found.group, found.kind
        targets[group_kind] = CustomWorkload(found.group, found.version, found.kind, entry.text("replicasPath"))
        owners.add(group_kind)
        owners |= {(between.kind.group, between.kind.kind) for between in entry.entries("subResources")}
    return Whitelist(targets, frozenset(owners))
