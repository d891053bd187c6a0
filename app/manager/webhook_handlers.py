"""All admission handlers, collected from the features and connected to their dependencies.

In the manager, the dependencies read caches and the API server; in standalone mode, they read files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from app.admission import pod_webhooks
from app.admission.registry import merged_handlers, merged_webhooks
from app.framework.feature import AdmissionContext, AdmissionPart, is_on
from app.kube.admission import Allowed, Handler, Webhook
from app.kube.client import Client, get_or_none
from app.kube.resources import PODS
from app.kube.selectors import Selector, compile_selector
from app.manager.features import features
from app.pods.admission import Guarded, PodMutator, PodValidator


def declarations(policies: Path | None = None) -> tuple[Webhook, ...]:
    """Return all declared webhooks with the operator's policies, regardless of gates. Raises PolicyError."""
    found = (webhook for part in _parts() for webhook in part.declared(policies))
    return merged_webhooks((_pod_webhook(), *pod_webhooks.webhooks(_guarded()), *found))


def _pod_webhook() -> Webhook:
    """Return the webhook that mutates new Pods, with the permissions of all steps."""
    needed = (rule for part in _parts() for rule in (*part.permissions, *(one.permission for one in part.watched)))
    return dataclasses.replace(pod_webhooks.MUTATE_POD, permissions=tuple(dict.fromkeys(needed)))


def _guarded() -> Sequence[Guarded]:
    return [one for part in _parts() for one in part.guarded]


def _parts() -> Iterable[AdmissionPart]:
    return (part for one in features() for part in one.admission)


#: All webhooks of this build, from which RBAC and the reference page are generated.
WEBHOOKS: Final[tuple[Webhook, ...]] = declarations()


def build_handlers(context_of: Callable[[AdmissionPart], AdmissionContext]) -> tuple[Handler, ...]:
    """Return the handlers of all webhooks; ``context_of`` provides the context of each part. Raises PolicyError."""
    steps: list[PodMutator] = []
    guards: list[PodValidator] = []
    handlers: list[Handler] = []
    client: Client | None = None
    for part in _parts():
        context = context_of(part)
        client = context.client
        if not is_on(part.gates, context.enabled):
            # Manager replicas with other gate settings may have registered these webhooks.
            handlers += (Handler(webhook, lambda _review: Allowed()) for webhook in part.declared(context.policies))
            continue
        made = part.make(context)
        steps += made.steps
        guards += made.guards
        answered = [
            dataclasses.replace(one, webhook=dataclasses.replace(one.webhook, gates=part.gates)) if part.gates else one
            for one in made.handlers
        ]
        _require_matching(part.declared(context.policies), [one.webhook for one in answered])
        handlers += answered
    guarding = pod_webhooks.handlers(_guarded(), guards, _fetch(client))
    return merged_handlers((pod_webhooks.pod_handler(steps, _pod_webhook()), *guarding, *handlers))


def _require_matching(declared: Sequence[Webhook], answered: Sequence[Webhook]) -> None:
    """Raise ValueError if a declared webhook has no handler, or a handler's webhook is not declared."""
    for webhook in declared:
        if webhook not in answered:
            raise ValueError(f"webhook {webhook.name}: no handler; return one from the part's make")
    for webhook in answered:
        if webhook not in declared:
            raise ValueError(f"webhook {webhook.name}: not declared; add it to the part's webhooks")


def _fetch(client: Client | None) -> pod_webhooks.Fetch:
    """Return a function that reads a Pod; without a cluster, it finds no Pods."""

    async def fetch(namespace: str, name: str) -> Mapping[str, Any] | None:
        if client is None or not (namespace and name):
            return None
        return await get_or_none(client, PODS, name, namespace)

    return fetch


def reviewed_namespaces(webhooks: Iterable[Webhook]) -> Selector | None:
    """Return the selector of namespaces whose new Pods are reviewed, or None if Pods are not reviewed. [PW-4]"""
    found = (compile_selector(one.namespace_selector) for one in webhooks if one.name == pod_webhooks.MUTATE_POD.name)
    return next(found, None)
