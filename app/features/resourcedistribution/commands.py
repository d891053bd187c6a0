"""``pykruise explain resourcedistribution NAME``: lists the namespaces with and without a copy, and why."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from app.api.webhooks import unreadable
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.plan import COLUMNS, TargetRule, Template, TemplateError, explained
from app.features.resourcedistribution.types import ResourceDistribution
from app.framework.commands import Commands, Report, Stored
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.errors import CommandError
from app.kube.objects import decode_namespace
from app.kube.resources import NAMESPACES
from app.kube.selector_query import SelectorError

GATE: Final = "ResourceDistributionGate"


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
    rows, todo = explained(rule, template, [one.metadata for one in namespaces.items], copies)
    right = sum(state == "up to date" for _, state, _ in rows)
    wanted = len(rule.namespaces({one.metadata.name: one.metadata.labels for one in namespaces.items}))
    head = (
        f"ResourceDistribution {name}: {template.resource.kind} {template.name}, {right} of {wanted} copies up to date"
    )
    notes = [] if rows else ["no namespace is selected"]
    if (stored.get("status") or {}).get("observedGeneration", 0) < stored["metadata"].get("generation", 0):
        todo.append(f"the manager has not processed the last change: it requires --feature-gates={GATE}=true")
    return Report(head, COLUMNS, rows, notes, todo)


COMMANDS: Final = Commands(RESOURCE_DISTRIBUTION, explain_object=explain_object, pausable=False, history=False)
