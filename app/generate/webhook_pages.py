"""Generate the reference page of the webhooks, and the defaults they add to an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson
import yaml

from app.api.kind import find_kind, find_plural
from app.kube.admission import GroupVersionKind, GroupVersionResource, Operation, Review, Rule, Webhook
from app.kube.clock import SystemClock
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone

_HEAD: Final = """\
# Webhooks

Generated from the declarations in code by `make generate`; do not edit.

Mutating webhooks (`m…`) are registered in `kruise-mutating-webhook-configuration`, validating ones (`v…`) in
`kruise-validating-webhook-configuration`. All accept AdmissionReview `v1` and use match policy `Equivalent`. Unless the
last column says otherwise, the failure policy is Fail, the timeout 10 s, and there are no side effects.
`policies/webhooks.yaml` can set failure policy, timeout and further excluded namespaces per webhook; Pod webhooks
always exclude `kube-system`, `kube-public` and the manager's namespace. Names such as spec-changed are match
conditions; `kubectl get validatingwebhookconfigurations -o yaml` shows their expressions. Permissions:
[identities](../security.md#identities-of-the-chart).

Paths of older charts, such as `/mutate-apps-kruise-io-v1alpha1-sidecarset`, are served too.

## Creating and updating our kinds
Called for CREATE and UPDATE in every version, at `/mutate-GROUP-KIND` or `/validate-GROUP-KIND`, such as
`/mutate-apps-kruise-io-cloneset`.

| Webhook | Does | Only if |
|---|---|---|
"""
_OTHERS: Final = """
## Everything else
| Webhook | Does | Path | Called for | Only if |
|---|---|---|---|---|
"""
#: Settings that the page states once for all webhooks.
_USUAL: Final = ("Fail", 10, "None")


def page(webhooks: Iterable[Webhook]) -> str:
    """Return the page as Markdown."""
    ordered = sorted(webhooks, key=lambda webhook: (not webhook.mutating, webhook.name))
    rows = "".join(_row(webhook, ()) for webhook in ordered if _is_regular(webhook))
    others = "".join(
        _row(webhook, (f"`{webhook.path}`", "; ".join(map(_intercepted, webhook.rules))))
        for webhook in ordered
        if not _is_regular(webhook)
    )
    return f"{_HEAD}{rows}{_OTHERS}{others}"


def _is_regular(webhook: Webhook) -> bool:
    """Return whether path and rules belong to one of our kinds."""
    start = "mutate" if webhook.mutating else "validate"
    (rule, *more) = webhook.rules
    kind = find_plural(rule.groups[0], rule.resources[0])
    return (
        not more
        and kind is not None
        and set(rule.operations) == {Operation.CREATE, Operation.UPDATE}
        and set(rule.versions) == {one.name for one in kind.versions}
        and webhook.path == f"/{start}-{kind.group.replace('.', '-')}-{kind.singular}"
    )


def _row(webhook: Webhook, details: Sequence[str]) -> str:
    only = [f"gate {gate}" for gate in (webhook.gate, " or ".join(webhook.gates)) if gate]
    only += [_selector(found) for found in (webhook.namespace_selector, webhook.object_selector) if found]
    only += [one.name for one in webhook.match_conditions]
    if (webhook.failure_policy, webhook.timeout_seconds, webhook.side_effects) != _USUAL:
        only.append(f"({webhook.failure_policy}, {webhook.timeout_seconds} s, side effects {webhook.side_effects})")
    return f"| {' | '.join((webhook.name, webhook.summary.rstrip('.'), *details, ', '.join(only)))} |\n"


def _intercepted(rule: Rule) -> str:
    operations = ", ".join(operation.value for operation in rule.operations)
    groups = ", ".join(group or "core" for group in rule.groups)
    return f"{operations} of {', '.join(rule.resources)} ({groups}; {', '.join(rule.versions)})"


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
