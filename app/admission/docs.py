"""The reference page of webhooks, derived from their declarations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.admission.registry import old_paths
from app.kube.admission import PolicyRule, Rule, Webhook

_HEAD = """\
# Webhooks

Generated from the declarations in code by `make generate`; do not edit.

Mutating webhooks stand in `kruise-mutating-webhook-configuration`, the others in
`kruise-validating-webhook-configuration`. All take AdmissionReview `v1`, match with policy `Equivalent`, and declare
the side effects shown. Failure policy, timeout and further excluded namespaces can be changed per webhook in
`policies/webhooks.yaml`. `kube-system`, `kube-public` and the manager's own namespace are always excluded from Pod
webhooks.

`/mutate-pod` is called for every new Pod of the other namespaces: which Pods a SidecarSet matches is decided by objects
that come and go, and a selector here that followed them would race with the first Pod of a new set.
"""


def page(webhooks: Iterable[Webhook]) -> str:
    """The page as Markdown."""
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
