"""Replicas of a target, and the whitelist of custom workloads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.api import names
from app.pods.custom_workloads import GroupKind, entries

# Replicas of a target. [WS-18]

#: Path of the replicas by group and kind. A missing value counts as 1.
_PATHS: Final = {
    ("apps", "Deployment"): "spec.replicas",
    ("apps", "ReplicaSet"): "spec.replicas",
    ("apps", "StatefulSet"): "spec.replicas",
    (names.APPS_GROUP, "CloneSet"): "spec.replicas",
    (names.APPS_GROUP, "StatefulSet"): "spec.replicas",
    ("batch", "Job"): "spec.parallelism",
}
_DEFAULT: Final = 1
#: Maximum number of steps in a path.
_MAX_STEPS: Final = 50
_MAX_DIGITS: Final = 10


class ReplicasPathError(ValueError):
    """A replicas path does not refer to a number. The message names the path and the fix."""


def replicas_of(
    target: Mapping[str, Any], group_kind: tuple[str, str], paths: Sequence[str], custom_path: str
) -> int | None:
    """Return the replicas. They are read at the paths in the target filter, otherwise at the path in the whitelist,
    otherwise at the kind's own path. [WS-18]

    Returns None if they must be read from the scale subresource. Raises ReplicasPathError.
    """
    if paths:
        return sum(at_path(target, path) for path in paths)
    if custom_path:
        return at_path(target, custom_path)
    known = _PATHS.get(group_kind)
    if known is None:
        return None
    outer, _, inner = known.partition(".")
    spec = target.get(outer)
    found = spec.get(inner) if isinstance(spec, Mapping) else None
    return found if isinstance(found, int) else _DEFAULT


def at_path(target: Mapping[str, Any], path: str) -> int:
    """Return the integer at a path such as ``spec.groups.0.replicas``, or 0 if the path is empty. Raises
    ReplicasPathError."""
    if not path:
        return 0
    held: Any = target
    if path.count(".") >= _MAX_STEPS:
        raise ReplicasPathError(f"replicas path {path[:100]}…: exceeds {_MAX_STEPS} steps")
    for step in path.split("."):
        if isinstance(held, Mapping) and step in held:
            held = held[step]
        elif isinstance(held, list) and step.isdecimal() and len(step) < _MAX_DIGITS and int(step) < len(held):
            held = held[int(step)]
        else:
            raise ReplicasPathError(f"replicas path {path}: no such field in the workload: {step}")
    if isinstance(held, bool) or not isinstance(held, int):
        raise ReplicasPathError(f"replicas path {path}: expected an integer, found {type(held).__name__}")
    return held


# Custom workload kinds that the operator lists in a ConfigMap. [WS-15]

#: Kinds that own Pods or the owners of Pods. [WS-16]
KNOWN_OWNERS: Final[frozenset[GroupKind]] = frozenset(_PATHS)


@dataclass(frozen=True, slots=True)
class CustomWorkload:
    """A kind that may be a target. ``version`` is empty if the operator gave none. [WS-17]"""

    group: str
    version: str
    kind: str
    replicas_path: str = ""


@dataclass(frozen=True, slots=True)
class Whitelist:
    """The whitelist: custom target kinds, and all kinds that own Pods or the owners of Pods."""

    targets: Mapping[GroupKind, CustomWorkload] = field(default_factory=dict)
    owners: frozenset[GroupKind] = KNOWN_OWNERS


def parse_whitelist(text: str | None) -> Whitelist:
    """Parse the whitelist in the ConfigMap. The result is empty if ``text`` is empty or None. Raises WhitelistError."""
    targets: dict[GroupKind, CustomWorkload] = {}
    owners = set(KNOWN_OWNERS)
    for entry in entries(text, names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY):
        found = entry.kind
        group_kind = found.group, found.kind
        targets[group_kind] = CustomWorkload(found.group, found.version, found.kind, entry.text("replicasPath"))
        owners.add(group_kind)
        owners |= {(between.kind.group, between.kind.kind) for between in entry.entries("subResources")}
    return Whitelist(targets, frozenset(owners))
