"""``pykruise explain resourcedistribution NAME``: lists the namespaces with and without a copy, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from app.api.webhooks import unreadable
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.plan import (
    SYSTEM_NAMESPACES,
    TargetRule,
    Template,
    TemplateError,
    is_copy_of,
    update_patch,
)
from app.features.resourcedistribution.types import ResourceDistribution
from app.features.resourcedistribution.webhooks import GATE
from app.framework.commands import Commands, Report, Stored
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.errors import CommandError
from app.kube.objects import ObjectMeta, decode_namespace
from app.kube.resources import NAMESPACES
from app.kube.selector_query import SelectorError

_COLUMNS: Final = ("namespace", "copy", "because")


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Explain the state of the copies."""
    name = stored["metadata"]["name"]
    try:
        distribution = ResourceDistribution.model_validate(dict(stored))
        template = Template.of(name, stored["metadata"]["uid"], distribution.spec.resource)
        rule = TargetRule.of(distribution.spec.targets)
    except (ValidationError, TemplateError, SelectorError) as error:
        said = unreadable(error) if isinstance(error, ValidationError) else str(error)
        raise CommandError(f"ResourceDistribution {name}: {said}") from None
    namespaces = await client.list(NAMESPACES, decode=decode_namespace)
    found = await client.list(template.resource, field_selector=f"metadata.name={template.name}", decode=None)
    copies: dict[str, dict[str, Any]] = {one["metadata"]["namespace"]: one for one in found.items}
    rows, todo = _explained(rule, template, [one.metadata for one in namespaces.items], copies)
    right = sum(state == "up to date" for _, state, _ in rows)
    wanted = len(rule.namespaces({one.metadata.name: one.metadata.labels for one in namespaces.items}))
    head = (
        f"ResourceDistribution {name}: {template.resource.kind} {template.name}, {right} of {wanted} copies up to date"
    )
    notes = [] if rows else ["no namespace is selected"]
    if (stored.get("status") or {}).get("observedGeneration", 0) < stored["metadata"].get("generation", 0):
        todo.append(
            f"the manager has not processed the last change; if this lasts, start it with --feature-gates={GATE}=true"
        )
    return Report(head, _COLUMNS, rows, notes, todo)


def _explained(
    rule: TargetRule, template: Template, namespaces: Iterable[ObjectMeta], copies: Mapping[str, Mapping[str, Any]]
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return a row per namespace that has or will have a copy, and suggested actions. ``copies`` holds the objects of
    the template's kind and name by namespace."""
    known = {one.name: one for one in namespaces}
    targets = set(rule.namespaces({name: one.labels for name, one in known.items()}))
    ours = {name for name, copy in copies.items() if is_copy_of(copy, template)}
    rows, todo = [], []
    for name in sorted(targets | ours | (rule.excluded & known.keys()) - SYSTEM_NAMESPACES):
        metadata, copy = known.get(name), copies.get(name)
        why = _why(rule, name, metadata.labels if metadata is not None else {})
        if name not in targets:
            rows.append((name, "will be deleted" if name in ours else "none", why))
        elif metadata is None or metadata.deletion_timestamp is not None:
            rows.append((name, "none", f"{why}; the namespace {'is being deleted' if metadata else 'does not exist'}"))
            if metadata is None:
                todo.append(f"create namespace {name}, or remove it from includedNamespaces")
        elif copy is None:
            rows.append((name, "will be created", why))
        elif name not in ours:
            what = f"{template.resource.kind} {name}/{template.name}"
            rows.append((name, "conflict", f"{why}; {what} is not a copy and is left unchanged"))
            todo.append(f"delete or rename {what}, or exclude the namespace")
        else:
            rows.append((name, "will be updated" if update_patch(template, copy) else "up to date", why))
    return rows, todo


def _why(rule: TargetRule, name: str, labels: Mapping[str, str]) -> str:
    if name in SYSTEM_NAMESPACES:
        return "system namespaces never get a copy"
    if name in rule.excluded:
        return "listed in excludedNamespaces"
    if rule.all_namespaces:
        return "allNamespaces"
    if name in rule.included:
        return "listed in includedNamespaces"
    return "namespaceSelector selects it" if rule.selects(labels) else "nothing selects it"


COMMANDS: Final = Commands(RESOURCE_DISTRIBUTION, explain_object=explain_object, pausable=False, history=False)
