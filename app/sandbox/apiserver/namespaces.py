"""What a terminating namespace says of its content, as the namespace controller writes it. Pure.

Source: Kubernetes 1.34, pkg/controller/namespace/deletion/status_condition_utils.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

#: Type, reason and message of the conditions where nothing is wrong.
_QUIET: Final = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


def with_conditions(
    namespace: Json, failures: Sequence[str], remaining: Mapping[str, int], finalizers: Mapping[str, int], now: str
) -> Json:
    """The namespace with its conditions.

    ``failures``: what deletions were refused with. ``remaining``: resources, as ``pods.``, with how many are left.
    ``finalizers``: those that hold objects, with how many.
    """
    trouble = {}
    if failures:
        text = ", ".join(dict.fromkeys(failures))
        shown = f"[{text}]" if len(set(failures)) > 1 else text
        trouble["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(set(failures))} remaining: {shown}",
        )
    if remaining:
        text = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remaining.items()))
        trouble["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {text}")
    if finalizers:
        text = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in finalizers.items()))
        trouble["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {text}",
        )
    status = namespace.get("status") or {}
    before = {one["type"]: one for one in status.get("conditions") or ()}
    conditions = []
    for kind, reason, message in _QUIET:
        value = "True" if kind in trouble else "False"
        reason, message = trouble.get(kind, (reason, message))
        old = before.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == value else now
        conditions.append(
            {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return {**namespace, "status": {**status, "conditions": conditions}}
