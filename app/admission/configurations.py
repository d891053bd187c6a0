"""Webhook configurations derived from declarations: what the API server must be told to call us. Pure.

Every field is written out with the value the API server would default it to, so that "is it in place?" is a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.kube.admission import Rule, Webhook

MUTATING_NAME: Final = "kruise-mutating-webhook-configuration"
VALIDATING_NAME: Final = "kruise-validating-webhook-configuration"
API_VERSION: Final = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """We are reached through a Service (the manager runs in the cluster)."""

    name: str
    namespace: str
    port: int = 443

    def client_config(self, path: str, ca_bundle: str) -> dict[str, Any]:
        """The ``clientConfig`` for a path; ``ca_bundle`` is base64."""
        service = {"name": self.name, "namespace": self.namespace, "path": path, "port": self.port}
        return _with_ca({"service": service}, ca_bundle)


@dataclass(frozen=True, slots=True)
class UrlEndpoint:
    """We are reached by URL (the manager runs outside the cluster)."""

    host: str
    port: int

    def client_config(self, path: str, ca_bundle: str) -> dict[str, Any]:
        """The ``clientConfig`` for a path (MGR-42); ``ca_bundle`` is base64."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return _with_ca({"url": f"https://{host}:{self.port}{path}"}, ca_bundle)


Endpoint = ServiceEndpoint | UrlEndpoint


def _with_ca(config: dict[str, Any], ca_bundle: str) -> dict[str, Any]:
    return {"caBundle": ca_bundle, **config} if ca_bundle else config


def mutating_configuration(webhooks: Iterable[Webhook], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any]:
    """The MutatingWebhookConfiguration for all mutating declarations."""
    entries = [
        # PW-5, D-21: mutating Pods twice would append twice. Correction of D5: mutating entries only.
        {**_entry(webhook, endpoint, ca_bundle), "reinvocationPolicy": "Never"}
        for webhook in webhooks
        if webhook.mutating
    ]
    return _configuration("MutatingWebhookConfiguration", MUTATING_NAME, entries)


def validating_configuration(webhooks: Iterable[Webhook], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any]:
    """The ValidatingWebhookConfiguration for all validating declarations."""
    entries = [_entry(webhook, endpoint, ca_bundle) for webhook in webhooks if not webhook.mutating]
    return _configuration("ValidatingWebhookConfiguration", VALIDATING_NAME, entries)


def updated(live: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any] | None:
    """The live configuration with our entries, or None if they are in place already (MGR-44).

    Labels, annotations and the resourceVersion of the live object stay, so a concurrent change is a conflict.
    """
    if (live.get("webhooks") or []) == desired["webhooks"]:
        return None
    return {**live, "apiVersion": API_VERSION, "kind": desired["kind"], "webhooks": desired["webhooks"]}


def _configuration(kind: str, name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "pykruise"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "webhooks": entries}


def _entry(webhook: Webhook, endpoint: Endpoint, ca_bundle: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": webhook.name,
        "clientConfig": endpoint.client_config(webhook.path, ca_bundle),
        "rules": [_rule(rule) for rule in webhook.rules],
        "failurePolicy": webhook.failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": _selector(webhook.namespace_selector),
        "objectSelector": _selector(webhook.object_selector),
        "sideEffects": webhook.side_effects,
        "timeoutSeconds": webhook.timeout_seconds,
        "admissionReviewVersions": ["v1"],  # D-16
    }
    if webhook.match_conditions:
        entry["matchConditions"] = [
            {"name": condition.name, "expression": condition.expression} for condition in webhook.match_conditions
        ]
    return entry


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "apiGroups": list(rule.groups),
        "apiVersions": list(rule.versions),
        "operations": [operation.value for operation in rule.operations],
        "resources": list(rule.resources),
        "scope": rule.scope,
    }


def _selector(selector: Mapping[str, Any] | None) -> dict[str, Any]:
    """A selector as JSON that is ours: tuples and mappings of a declaration become lists and dicts."""
    plain: dict[str, Any] = {}
    if selector and selector.get("matchExpressions"):
        plain["matchExpressions"] = [_expression(item) for item in selector["matchExpressions"]]
    if selector and selector.get("matchLabels"):
        plain["matchLabels"] = dict(selector["matchLabels"])
    return plain


def _expression(expression: Mapping[str, Any]) -> dict[str, Any]:
    plain = {"key": expression["key"], "operator": expression["operator"]}
    if expression.get("values"):
        plain["values"] = list(expression["values"])
    return plain


def conversion_patch(crd: Mapping[str, Any], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any] | None:
    """The merge patch that makes a CustomResourceDefinition convert through us, or None if it does already.

    MGR-52: definitions that do not want a webhook are left alone.
    """
    conversion = (crd.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    webhook = conversion.get("webhook") or {}
    wanted = endpoint.client_config("/convert", ca_bundle)
    live = webhook.get("clientConfig") or {}
    versions = webhook.get("conversionReviewVersions") or []
    if live == wanted and "v1" in versions:
        return None
    client_config = {**dict.fromkeys(live.keys() - wanted.keys()), **wanted}  # null removes what no longer holds
    return {
        "metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]},
        "spec": {
            "conversion": {
                "webhook": {
                    "clientConfig": client_config,
                    "conversionReviewVersions": versions if "v1" in versions else ["v1"],
                }
            }
        },
    }
