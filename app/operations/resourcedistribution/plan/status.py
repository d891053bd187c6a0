"""What a ResourceDistribution's status says (RD-50 … RD-53, RD-75)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.resourcedistribution.types import (
    CONDITION_TYPES,
    CREATE_FAILED,
    DELETE_FAILED,
    GET_FAILED,
    UPDATE_FAILED,
)

SUCCEEDED: Final = "Succeeded"
NAMESPACE_MISSING: Final = "namespace not found or is terminating"
#: RD-55: what the API server refused is tried again.
RETRIED: Final = frozenset({GET_FAILED, CREATE_FAILED, UPDATE_FAILED, DELETE_FAILED})
#: Longer texts of an API server are cut: a status is no log.
LONGEST_REASON: Final = 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in one namespace; ``condition`` is one of CONDITION_TYPES."""

    namespace: str
    condition: str
    reason: str


def conflict_reason(namespace: str, api_version: str, kind: str, name: str) -> str:
    """RD-52: the words for an object that somebody else made."""
    return f"{api_version}, Kind={kind} {namespace}/{name} already exists and is not controlled by this object"


def status_of(
    targets: Sequence[str],
    failures: Sequence[Failure],
    present: Mapping[str, Any],
    generation: int,
    now: str,
) -> dict[str, Any]:
    """The whole status; ``present`` is the one there is, ``now`` an RFC 3339 time."""
    failed = {one.namespace for one in failures} & set(targets)
    counts = {"desired": len(targets), "succeeded": len(targets) - len(failed), "failed": len(failed)}
    return {
        **{name: count for name, count in counts.items() if count},
        "observedGeneration": generation,
        "conditions": [_condition(type_, failures, _conditions(present).get(type_), now) for type_ in CONDITION_TYPES],
    }


def status_patch(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """What a merge patch of the status must say; empty if nothing differs."""
    patch = {key: value for key, value in wanted.items() if present.get(key) != value}
    return {**patch, **{key: None for key in present if key not in wanted}}


def newly_failed(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Collection[str]:
    """The conditions that became true, or became so for other namespaces: what is worth an event."""
    before = _conditions(present)
    return [
        type_
        for type_, condition in _conditions(wanted).items()
        if condition["status"] == "True"
        and condition.get("failedNamespaces") != before.get(type_, {}).get("failedNamespaces")
    ]


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = status.get("conditions")
    listed = found if isinstance(found, list) else ()
    return {str(one.get("type")): one for one in listed if isinstance(one, Mapping)}


def _condition(type_: str, failures: Sequence[Failure], before: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    failed = [one for one in failures if one.condition == type_]
    status = "True" if failed else "False"
    changed = before is None or before.get("status") != status
    condition: dict[str, Any] = {
        "type": type_,
        "status": status,
        "lastTransitionTime": now if changed or before is None else before.get("lastTransitionTime", now),
        "reason": failed[-1].reason[:LONGEST_REASON] if failed else SUCCEEDED,
    }
    if failed:
        condition["failedNamespaces"] = sorted(one.namespace for one in failed)
    return condition
