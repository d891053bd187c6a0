"""Further kinds of workloads whose Pods may be spread, as the operator lists them in a ConfigMap (WS-15). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from app.api import names

#: A kind, whatever its version: its group and name.
GroupKind: TypeAlias = tuple[str, str]

_WHERE: Final = f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}, key {names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY}"
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
#: More than that many kinds are a mistake.
MAX_WORKLOADS: Final = 100


class WhitelistError(ValueError):
    """The list cannot be read. The text says where and why."""


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
    if not text:
        return Whitelist()
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WhitelistError(f"{_WHERE}: is no JSON: {error}") from error
    if not isinstance(read, Mapping):
        raise WhitelistError(f"{_WHERE}: expected an object with workloads")
    workloads = _member(read, "workloads")
    workloads = [] if workloads is None else workloads
    if not isinstance(workloads, list) or len(workloads) > MAX_WORKLOADS:
        raise WhitelistError(f"{_WHERE}: workloads: expected a list of at most {MAX_WORKLOADS} kinds")
    targets: dict[GroupKind, CustomWorkload] = {}
    owners = set(KNOWN_OWNERS)
    for index, entry in enumerate(workloads):
        found = _workload(entry, f"workloads[{index}]")
        path = _text(entry, "replicasPath", f"workloads[{index}]")
        targets[found.group, found.kind] = CustomWorkload(found.group, found.version, found.kind, path)
        owners.add((found.group, found.kind))
        below = _member(entry, "subResources")
        below = [] if below is None else below
        if not isinstance(below, list) or len(below) > MAX_WORKLOADS:
            raise WhitelistError(f"{_WHERE}: workloads[{index}].subResources: expected a list of kinds")
        for each, sub in enumerate(below):
            between = _workload(sub, f"workloads[{index}].subResources[{each}]")
            owners.add((between.group, between.kind))
    return Whitelist(targets, frozenset(owners))


def _workload(entry: Any, at: str) -> CustomWorkload:
    if not isinstance(entry, Mapping):
        raise WhitelistError(f"{_WHERE}: {at}: expected an object with Group, Version and Kind")
    group, version, kind = (_text(entry, key, at) for key in ("Group", "Version", "Kind"))
    if not kind:
        raise WhitelistError(f"{_WHERE}: {at}.Kind: is required")
    return CustomWorkload(group, version, kind)


def _text(entry: Mapping[str, Any], key: str, at: str) -> str:
    value = _member(entry, key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WhitelistError(f"{_WHERE}: {at}.{key}: expected a string")
    return value


def _member(entry: Mapping[str, Any], key: str) -> Any:
    """As Go reads JSON: whatever the case of the key, but the exact one first."""
    if key in entry:
        return entry[key]
    return next((value for name, value in entry.items() if name.lower() == key.lower()), None)
