"""Generate the reference page of the webhooks, and the defaults they add to an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson
import yaml

from app.admission.registry import old_paths
from app.api.kind import find_kind
from app.kube.admission import GroupVersionKind, GroupVersionResource, Operation, PolicyRule, Review, Rule, Webhook
from app.kube.clock import SystemClock
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone

_HEAD = """\
# Webhooks

Generated from the declarations in code by `make generate`; do not edit.

Mutating webhooks are registered in `kruise-mutating-webhook-configuration`, the others in
`kruise-validating-webhook-configuration`. All accept AdmissionReview `v1`, use match policy `Equivalent`, and declare
the side effects shown. Failure policy, timeout and additional excluded namespaces can be set per webhook in
`policies/webhooks.yaml`. `kube-system`, `kube-public` and the manager's own namespace are always excluded from Pod
webhooks.

`/mutate-pod` is called for every new Pod in the other namespaces: objects that come and go decide which Pods a
SidecarSet matches, and a selector that followed them would race with the first Pod of a new set.
"""


def page(webhooks: Iterable[Webhook]) -> str:
    """Return the page as Markdown."""
    ordered = sorted(webhooks, key=lambda webhook: (not webhook.mutating, webhook.name))
    parts = [_HEAD, _overview(ordered)]
    parts += [_section(webhook) for webhook in ordered]
    return "\n".join(parts).rstrip() + "\n"


def _overview(webhooks: list[Webhook]) -> str:
    rows = ["| Name | Kind | Path | Intercepts | Failure policy | Timeout |", "|---|---|---|---|---|---|"]
    for webhook in webhooks:
        kind = "mutating" if webhook.mutating else "validating"
        intercepts = "; ".join(_intercepted(rule) for rule in webhook.rules)
        rows.append(
            f"| [{webhook.name}](#{webhook.name.replace('.', '')}) | {kind} | `{webhook.path}` | {intercepts} "
            f"| {webhook.failure_policy} | {webhook.timeout_seconds} s |"
        )
    return "\n".join(rows) + "\n"


def _section(webhook: Webhook) -> str:
    lines = [f"## {webhook.name}", "", f"{webhook.summary.rstrip('.')}.", ""]
    lines.append(f"- Path `{webhook.path}`" + _aliases(webhook.path))
    lines += [f"- Intercepts {_intercepted(rule)}" for rule in webhook.rules]
    if webhook.gate:
        lines.append(f"- Only with feature gate `{webhook.gate}`")
    if webhook.namespace_selector:
        lines.append(f"- Namespaces: {_selector(webhook.namespace_selector)}")
    if webhook.object_selector:
        lines.append(f"- Objects: {_selector(webhook.object_selector)}")
    lines += [
        f"- Called only if `{condition.name}`: `{condition.expression}`" for condition in webhook.match_conditions
    ]
    lines.append(f"- Failure policy {webhook.failure_policy}, timeout {webhook.timeout_seconds} s")
    lines.append(f"- Side effects {webhook.side_effects}")
    lines += [f"- Needs {_permission(rule)}" for rule in webhook.permissions]
    return "\n".join(lines) + "\n"


def _aliases(path: str) -> str:
    old = ", ".join(f"`{alias}`" for alias in old_paths(path))
    return f" (also under {old}, as older charts register it)" if old else ""


def _intercepted(rule: Rule) -> str:
    operations = ", ".join(operation.value for operation in rule.operations)
    groups = ", ".join(group or "core" for group in rule.groups)
    return f"{operations} of {', '.join(rule.resources)} ({groups}; {', '.join(rule.versions)})"


def _permission(rule: PolicyRule) -> str:
    groups = ", ".join(group or "core" for group in rule.groups)
    where = " in the manager's namespace" if rule.own_namespace else f" in {rule.namespace}" if rule.namespace else ""
    names = f" named {', '.join(rule.names)}" if rule.names else ""
    return f"{', '.join(rule.verbs)} on {', '.join(rule.resources)} ({groups}){names}{where}"


def _selector(selector: Mapping[str, Any]) -> str:
    parts = [f"`{key}={value}`" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        values = f" [{', '.join(expression['values'])}]" if expression.get("values") else ""
        parts.append(f"`{expression['key']} {expression['operator']}{values}`")
    return " and ".join(parts)


#: Fixed time, so that the page is reproducible.
_TIME: Final = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*"')


async def filled_in(example: str) -> Sequence[str]:
    """Return ``path: value`` of each spec field that webhooks set by default, outside Pod templates."""
    document = yaml.safe_load(example)
    group, _, version = str(document["apiVersion"]).rpartition("/")
    kind = find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        return ()
    if kind.namespaced:
        document["metadata"].setdefault("namespace", "default")
    review = Review(
        uid="example",
        operation=Operation.CREATE,
        kind=GroupVersionKind(group, version, document["kind"]),
        resource=GroupVersionResource(group, version, kind.plural),
        name=document["metadata"]["name"],
        namespace=document["metadata"].get("namespace", ""),
        dry_run=True,
        object=document,
    )
    _, reviewed = await Standalone(None, parse_gates(""), SystemClock(), Random(0)).decide(review)
    after = reviewed.object or {}
    return [f"{path}: {value}" for path, value in _added(document.get("spec"), after.get("spec"), "spec")]


def _added(before: Any, after: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(after, dict) and (isinstance(before, dict) or (before is None and after)):
        for name, value in after.items():
            if name != "template" or path not in ("spec", "spec.template"):
                yield from _added((before or {}).get(name), value, f"{path}.{name}")
    elif isinstance(after, list) and isinstance(before, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _added(one, other, f"{path}[{index}]")
    elif before is None and after not in (None, {}, []):
        yield path, _TIME.sub("(now)", orjson.dumps(after).decode())
