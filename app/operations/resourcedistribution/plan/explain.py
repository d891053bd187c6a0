"""How the copies of a ResourceDistribution stand, namespace by namespace. Never what they contain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.kube.objects import ObjectMeta
from app.operations.resourcedistribution.plan.copies import Template, is_copy_of, update_patch
from app.operations.resourcedistribution.plan.targets import SYSTEM_NAMESPACES, TargetRule

COLUMNS: Final = ("namespace", "copy", "because")


def explained(
    rule: TargetRule, template: Template, namespaces: Iterable[ObjectMeta], copies: Mapping[str, Mapping[str, Any]]
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """A row per namespace that has a copy or is to have one, and what a person can do. ``copies``: the objects of the
    template's kind and name, by namespace."""
    known = {one.name: one for one in namespaces}
    targets = set(rule.namespaces({name: one.labels for name, one in known.items()}))
    ours = {name for name, copy in copies.items() if is_copy_of(copy, template)}
    rows, todo = [], []
    for name in sorted(targets | ours | (rule.excluded & known.keys()) - SYSTEM_NAMESPACES):
        metadata, copy = known.get(name), copies.get(name)
        why = _why(rule, name, metadata.labels if metadata is not None else {})
        if name not in targets:
            rows.append((name, "is to be deleted" if name in ours else "none", why))
        elif metadata is None or metadata.deletion_timestamp is not None:
            rows.append((name, "none", f"{why}; the namespace {'is going' if metadata else 'does not exist'}"))
            if metadata is None:
                todo.append(f"create namespace {name}, or take it out of includedNamespaces")
        elif copy is None:
            rows.append((name, "is to be created", why))
        elif name not in ours:
            what = f"{template.resource.kind} {name}/{template.name}"
            rows.append((name, "conflict", f"{why}; {what} is somebody else's and is not touched"))
            todo.append(f"delete or rename {what}, or exclude the namespace")
        else:
            rows.append((name, "is to be updated" if update_patch(template, copy) else "up to date", why))
    return rows, todo


def _why(rule: TargetRule, name: str, labels: Mapping[str, str]) -> str:
    if name in SYSTEM_NAMESPACES:
        return "system namespaces never get one"
    if name in rule.excluded:
        return "excludedNamespaces names it"
    if rule.all_namespaces:
        return "allNamespaces"
    if name in rule.included:
        return "includedNamespaces names it"
    return "namespaceSelector selects it" if rule.selects(labels) else "nothing selects it"
