"""Derive webhook configurations from declarations. Pure.

A webhook's rules, failure policy and timeout are set where it is declared: in ``webhooks.py`` of each feature, and for
Pods in ``app/admission/pod_webhooks.py``; defaults are in :class:`app.kube.admission.Webhook`. Operators override them
in ``policies/webhooks.yaml`` (``app/admission/policies.py``).

Undeclared fields are set to the API server's defaults, so that live and desired configurations compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from app.kube.admission import Rule, Webhook
from app.kube.resources import MUTATINGWEBHOOKCONFIGURATIONS, VALIDATINGWEBHOOKCONFIGURATIONS
from app.kube.wire import USER_AGENT

MUTATING_NAME: Final = "kruise-mutating-webhook-configuration"
VALIDATING_NAME: Final = "kruise-validating-webhook-configuration"
CONFIGURATIONS: Final = (
    (MUTATINGWEBHOOKCONFIGURATIONS, MUTATING_NAME),
    (VALIDATINGWEBHOOKCONFIGURATIONS, VALIDATING_NAME),
)
API_VERSION: Final = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """Endpoint of a manager that runs in the cluster, behind a Service."""

    name: str
    namespace: str
    port: int = 443

    def client_config(self, path: str, ca_bundle: str) -> dict[str, Any]:
        """Return the ``clientConfig`` for a path; ``ca_bundle`` is base64."""
        service = {"name": self.name, "namespace": self.namespace, "path": path, "port": self.port}
        return _with_ca({"service": service}, ca_bundle)


@dataclass(frozen=True, slots=True)
class UrlEndpoint:
    """Endpoint of a manager that runs outside the cluster and is called by URL."""

    host: str
    port: int

    def client_config(self, path: str, ca_bundle: str) -> dict[str, Any]:
        """Return the ``clientConfig`` for a path; ``ca_bundle`` is base64. [MGR-42]"""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return _with_ca({"url": f"https://{host}:{self.port}{path}"}, ca_bundle)


Endpoint = ServiceEndpoint | UrlEndpoint


def _with_ca(config: dict[str, Any], ca_bundle: str) -> dict[str, Any]:
    return {"caBundle": ca_bundle, **config} if ca_bundle else config


def mutating_configuration(webhooks: Iterable[Webhook], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any]:
    """Return the MutatingWebhookConfiguration for all mutating declarations."""
    entries = [
        # Only mutating entries have reinvocationPolicy. Reinvocation would append sidecars twice. [D5, PW-5, D-21]
        {**_entry(webhook, endpoint, ca_bundle), "reinvocationPolicy": "Never"}
        for webhook in webhooks
        if webhook.mutating
    ]
    return _configuration("MutatingWebhookConfiguration", MUTATING_NAME, entries)


def validating_configuration(webhooks: Iterable[Webhook], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any]:
    """Return the ValidatingWebhookConfiguration for all validating declarations."""
    entries = [_entry(webhook, endpoint, ca_bundle) for webhook in webhooks if not webhook.mutating]
    return _configuration("ValidatingWebhookConfiguration", VALIDATING_NAME, entries)


def updated(
    live: Mapping[str, Any], desired: Mapping[str, Any], *, leading: bool = True, prune: bool = True
) -> dict[str, Any] | None:
    """Return the live configuration with our entries, or None if it already has them. [MGR-44]

    Labels, annotations and the resourceVersion of the live object are kept, so a concurrent change causes a conflict.

    During a rolling update, replicas of several versions maintain one configuration. Each replica ensures that its own
    entries exist and that all entries point to our endpoint and CA. Only the leader (``leading``) updates other fields
    of existing entries and removes entries it does not declare (``prune``). [MGR-101, MGR-120]
    """
    live_entries: list[dict[str, Any]] = live.get("webhooks") or []
    wanted = {entry["name"]: entry for entry in desired["webhooks"]}
    present = {entry.get("name"): entry for entry in live_entries}
    entries = [
        entry if leading or entry["name"] not in present else _pointed_at_us(present[entry["name"]], entry)
        for entry in desired["webhooks"]
    ]
    if not prune:
        pattern = desired["webhooks"][0] if desired["webhooks"] else None
        entries += [
            _pointed_at_us(entry, pattern) if pattern is not None else entry
            for name, entry in present.items()
            if name not in wanted
        ]
    if _same(live_entries, entries, ordered=leading and prune):
        return None
    return {**live, "apiVersion": API_VERSION, "kind": desired["kind"], "webhooks": entries}


def without_match_conditions(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without matchConditions, for API servers that do not support them. Handlers make the
    same decisions without them."""
    entries = [{key: entry[key] for key in entry if key != "matchConditions"} for entry in configuration["webhooks"]]
    return {**configuration, "webhooks": entries}


def match_conditions_dropped(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Return whether the API server dropped matchConditions from the configuration."""
    kept = {entry.get("name") for entry in stored.get("webhooks") or [] if entry.get("matchConditions")}
    return any(entry.get("matchConditions") and entry["name"] not in kept for entry in sent["webhooks"])


def unknown_entries(live: Mapping[str, Any], desired: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of live entries that we do not declare."""
    known = {entry["name"] for entry in desired["webhooks"]}
    return frozenset(str(entry.get("name")) for entry in live.get("webhooks") or [] if entry.get("name") not in known)


def _same(live: list[dict[str, Any]], entries: list[dict[str, Any]], *, ordered: bool) -> bool:
    if ordered:
        return live == entries
    return len(live) == len(entries) and all(entry in live for entry in entries)


def _pointed_at_us(entry: dict[str, Any], pattern: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with our address and CA and its own path.

    The entry may have been written by a manager that is called by URL instead of through a Service.
    """
    path, ours = _path(entry.get("clientConfig") or {}), pattern["clientConfig"]
    if "service" in ours:
        leads: dict[str, Any] = {"service": {**ours["service"], "path": path}}
    else:
        leads = {"url": f"https://{str(ours['url']).split('/', 3)[2]}{path}"}
    return {**entry, "clientConfig": _with_ca(leads, ours.get("caBundle", ""))}


def _path(config: Mapping[str, Any]) -> str:
    if isinstance(service := config.get("service"), Mapping):
        return str(service.get("path") or "/")
    return "/" + "".join(str(config.get("url") or "").split("/", 3)[3:])


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
        "namespaceSelector": msgspec.to_builtins(webhook.namespace_selector or {}),
        "objectSelector": msgspec.to_builtins(webhook.object_selector or {}),
        "sideEffects": webhook.side_effects,
        "timeoutSeconds": webhook.timeout_seconds,
        "admissionReviewVersions": ["v1"],
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


def conversion_patch(crd: Mapping[str, Any], endpoint: Endpoint, ca_bundle: str) -> dict[str, Any] | None:
    """Return the merge patch that makes a CustomResourceDefinition use our conversion webhook, or None if it already
    does or has no conversion webhook. [MGR-52]"""
    conversion = (crd.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    webhook = conversion.get("webhook") or {}
    wanted = endpoint.client_config("/convert", ca_bundle)
    live = webhook.get("clientConfig") or {}
    versions = webhook.get("conversionReviewVersions") or []
    if live == wanted and "v1" in versions:
        return None
    client_config = {**dict.fromkeys(live.keys() - wanted.keys()), **wanted}  # null removes stale fields
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


def release_patch(crd: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch that gives up ownership of a CRD's conversion address, or None if we do not own it.

    The shipped CRDs name the Service, so ``kubectl apply --server-side`` would conflict with the URL written by a
    manager outside the cluster. A field without an owner causes no conflict, and the manager writes its URL again
    after the CRDs are applied. We keep ownership of the CA bundle, which the shipped CRDs do not set. [MGR-142]
    """
    metadata = crd["metadata"]
    entries = metadata.get("managedFields") or []
    kept = [left for entry in entries if (left := _without_address(entry)).get("fieldsV1")]
    if kept == entries or not kept:  # the API server ignores an empty list
        return None
    return {"metadata": {"resourceVersion": metadata["resourceVersion"], "managedFields": kept}}


def _without_address(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the managedFields entry. If it is ours, omit all conversion fields except the CA bundle."""
    if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) != (USER_AGENT, "Update", ""):
        return entry
    fields = entry.get("fieldsV1") or {}
    spec = fields.get("f:spec") or {}
    conversion = spec.get("f:conversion") or {}
    owned = (conversion.get("f:webhook") or {}).get("f:clientConfig") or {}
    authority: dict[str, Any] = {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}} if "f:caBundle" in owned else {}
    if conversion == authority:
        return entry
    others = {key: value for key, value in spec.items() if key != "f:conversion"}
    spec = {**others, **({"f:conversion": authority} if authority else {})}
    rest = {key: value for key, value in fields.items() if key != "f:spec"}
    return {**entry, "fieldsV1": {**rest, **({"f:spec": spec} if spec else {})}}
