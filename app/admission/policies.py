"""The operator's admission settings, read from ``policies/webhooks.yaml``.

    excludedNamespaces: [monitoring]        # for every Pod webhook
    excludedNamespaceLabels:                # for every webhook: namespaces whose label has one of these values
      kubernetes.azure.com/managedby: [aks]
    webhooks:
      mpod.kb.io:
        failurePolicy: Ignore               # Fail or Ignore
        timeoutSeconds: 5                   # 1 to 30
        excludedNamespaces: [batch]         # for this webhook alone

The operations that a webhook intercepts are declared in code. kube-system, kube-public and the manager's own namespace
are always excluded from Pod webhooks, so that the service cannot lock itself out.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from app.api import names
from app.framework.policies import POLICY, PolicyError, parse_policy, read_policy
from app.kube.admission import Handler, Webhook

FILE_NAME: Final = "webhooks.yaml"
ALWAYS_EXCLUDED: Final = ("kube-system", "kube-public")

NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class WebhookPolicy(BaseModel):
    """Overrides for one webhook; absent fields keep their declared values."""

    model_config = POLICY

    failure_policy: Literal["Fail", "Ignore"] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=30)] | None = None
    excluded_namespaces: list[NamespaceName] = []


class WebhookPolicies(BaseModel):
    """Contents of the policy file."""

    model_config = POLICY

    excluded_namespaces: list[NamespaceName] = []
    excluded_namespace_labels: dict[str, Annotated[list[str], Field(min_length=1)]] = {}
    webhooks: dict[str, WebhookPolicy] = {}


def load_policies(path: Path) -> WebhookPolicies:
    """Load the policies from a file, or from an optional ``webhooks.yaml`` in a folder. Raises PolicyError."""
    if path.is_dir():
        path = path / FILE_NAME
        if not path.exists():
            return WebhookPolicies()
    return parse_policy(read_policy(path), str(path), WebhookPolicies)


def apply_policies(webhooks: Iterable[Webhook], policies: WebhookPolicies, own_namespace: str) -> tuple[Webhook, ...]:
    """Return the declarations with the operator's settings. Raises PolicyError for an unknown webhook."""
    declared = tuple(webhooks)
    known = {webhook.name for webhook in declared}
    for name in policies.webhooks:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise PolicyError(f"webhooks.{name}: no webhook has this name{hint}; known are {', '.join(sorted(known))}")
    return tuple(_overridden(webhook, policies, own_namespace) for webhook in declared)


def apply_to_handlers(
    handlers: Iterable[Handler], policies: WebhookPolicies, own_namespace: str
) -> tuple[Handler, ...]:
    """Apply the policies to the declarations of handlers."""
    given = tuple(handlers)
    webhooks = apply_policies((handler.webhook for handler in given), policies, own_namespace)
    return tuple(dataclasses.replace(one, webhook=webhook) for webhook, one in zip(webhooks, given, strict=True))


def _overridden(webhook: Webhook, policies: WebhookPolicies, own_namespace: str) -> Webhook:
    policy = policies.webhooks.get(webhook.name, WebhookPolicy())
    excluded = list(policy.excluded_namespaces)
    if _concerns_pods(webhook):
        # The webhooks must not block the manager's own Pods: without the manager, nothing serves them. [MGR-94]
        excluded = [*ALWAYS_EXCLUDED, own_namespace, *policies.excluded_namespaces, *excluded]
    return dataclasses.replace(
        webhook,
        failure_policy=policy.failure_policy or webhook.failure_policy,
        timeout_seconds=policy.timeout_seconds or webhook.timeout_seconds,
        namespace_selector=_without_labels(
            without_namespaces(webhook.namespace_selector, excluded), policies.excluded_namespace_labels
        ),
    )


def _concerns_pods(webhook: Webhook) -> bool:
    return any(
        "" in rule.groups and any(resource.partition("/")[0] == "pods" for resource in rule.resources)
        for rule in webhook.rules
    )


def without_namespaces(selector: Mapping[str, Any] | None, excluded: Iterable[str]) -> Mapping[str, Any] | None:
    """Return a namespace selector that also excludes these namespaces by name."""
    wanted = list(dict.fromkeys(excluded))
    if not wanted:
        return selector
    merged = dict(selector or {})
    expressions: list[Mapping[str, Any]] = []
    for expression in merged.get("matchExpressions") or ():
        if expression.get("key") == names.NAMESPACE_NAME and expression.get("operator") == "NotIn":
            wanted = list(dict.fromkeys([*expression.get("values", ()), *wanted]))
        else:
            expressions.append(expression)
    expressions.append({"key": names.NAMESPACE_NAME, "operator": "NotIn", "values": wanted})
    merged["matchExpressions"] = expressions
    return merged


def _without_labels(
    selector: Mapping[str, Any] | None, excluded: Mapping[str, Iterable[str]]
) -> Mapping[str, Any] | None:
    if not excluded:
        return selector
    merged = dict(selector or {})
    expressions = [{"key": key, "operator": "NotIn", "values": list(values)} for key, values in excluded.items()]
    merged["matchExpressions"] = [*(merged.get("matchExpressions") or ()), *expressions]
    return merged
