"""Interactive API documentation of the webhooks, with examples and sample reviews."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, Literal

import yaml
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.routing import Mount

from app.admission.registry import Registry
from app.admission.requests import LoopbackOnly
from app.admission.server import AdmissionApp
from app.api.conversion import convert
from app.api.kind import KindDefinition, find_plural
from app.kube.admission import Operation, Rule, Webhook
from app.manager.generated_indexes import rules


def example_text(kind: KindDefinition) -> str:
    """Return the kind's example as YAML."""
    return (files(kind.hub.model.__module__.rpartition(".")[0]) / f"{kind.singular}.example.yaml").read_text("utf-8")


@cache
def example(kind: KindDefinition) -> dict[str, Any]:
    """Return the kind's example as JSON. The result is shared and must not be modified."""
    found: dict[str, Any] = yaml.safe_load(example_text(kind))
    return found


UID: Final = "9f4b5a7e-4c3a-4d57-9c58-2f0d1a6f8b11"
NAMESPACE: Final = "shop"
_PROTECTED: Final = {"policy.kruise.io/delete-protection": "Always"}
_POD_SPEC: Final[Mapping[str, Any]] = {"containers": [{"name": "main", "image": "nginx:1.25"}]}
#: Kind and spec of the sample for each built-in resource.
_BUILT_IN: Final[Mapping[str, tuple[str, Mapping[str, Any] | None]]] = {
    "pods": ("Pod", _POD_SPEC),
    "namespaces": ("Namespace", None),
    "services": ("Service", {"ports": [{"port": 80}]}),
    "ingresses": ("Ingress", {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}),
    "customresourcedefinitions": ("CustomResourceDefinition", {"group": "shop.example.com"}),
}
_CLUSTER_WIDE: Final = frozenset({"namespaces", "customresourcedefinitions"})


def review(webhook: Webhook) -> dict[str, Any]:
    """Return an AdmissionReview as the API server would send it to this webhook."""
    rule = webhook.rules[0]
    operation = Operation.CREATE if Operation.CREATE in rule.operations else rule.operations[0]
    group, version = rule.groups[0], rule.versions[0]
    plural, _, subresource = rule.resources[0].partition("/")
    obj = _object(rule, group, version, plural)
    request: dict[str, Any] = {
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "name": obj["metadata"]["name"],
        "operation": operation.value,
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "dryRun": False,
    }
    if subresource:
        request["subResource"] = subresource
    if "namespace" in obj["metadata"]:
        request["namespace"] = obj["metadata"]["namespace"]
    if operation is not Operation.DELETE:
        request["object"] = obj
    if operation is not Operation.CREATE:
        request["oldObject"] = obj
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _object(rule: Rule, group: str, version: str, plural: str) -> dict[str, Any]:
    api_version = f"{group}/{version}" if group else version
    kind = find_plural(group, plural)
    if kind is not None:
        found = example(kind)
        found = found if found["apiVersion"] == api_version else convert(found, api_version)
        namespaced = kind.namespaced
        metadata = {**found["metadata"]}
    else:
        name, spec = _BUILT_IN.get(plural, (_kind(plural), None))
        found = {"apiVersion": api_version, "kind": name, **({"spec": spec} if spec is not None else {})}
        namespaced = plural not in _CLUSTER_WIDE and rule.scope != "Cluster"
        metadata = {"name": "web", "labels": {"app": "web"}}
    if Operation.CREATE not in rule.operations:
        metadata["labels"] = {**metadata.get("labels", {}), **_PROTECTED}
    if namespaced:
        metadata["namespace"] = NAMESPACE
    return {**found, "metadata": metadata}


def _kind(plural: str) -> str:
    known = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}
    return known.get(plural, plural.removesuffix("s").capitalize())


# AdmissionReview requests and responses as pydantic models, which only document the HTTP API. For speed,
# app.admission.review decodes reviews without models. Source:
# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/

_Json = Annotated[dict[str, Any] | None, Field(default=None)]


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class GroupVersionKind(_Model):
    """Kind of an object."""

    group: str = ""
    version: str
    kind: str


class GroupVersionResource(_Model):
    """The resource to be written."""

    group: str = ""
    version: str
    resource: str


class UserInfo(_Model):
    """The user who sent the request."""

    username: str = ""
    uid: str = ""
    groups: list[str] = Field(default_factory=list)
    extra: dict[str, list[str]] = Field(default_factory=dict)


class AdmissionRequest(_Model):
    """A write to be reviewed."""

    uid: str = Field(description="Identifier of the request, copied into the response.", min_length=1)
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: UserInfo = Field(default_factory=UserInfo)
    object: _Json = Field(default=None, description="The object to be stored; absent for DELETE.")
    old_object: _Json = Field(default=None, description="The stored object; absent for CREATE.")
    dry_run: bool = False
    options: _Json = None


class AdmissionReview(_Model):
    """An AdmissionReview request from the API server."""

    api_version: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"
    request: AdmissionRequest


class Refused(_Model):
    """Reason for a denial."""

    code: int = 403
    message: str = ""
    reason: str = ""


class AdmissionResponse(_Model):
    """The decision."""

    uid: str = Field(description="Identifier of the request.")
    allowed: bool
    status: Refused | None = None
    patch_type: Literal["JSONPatch"] | None = None
    patch: str | None = Field(default=None, description="JSON Patch operations (RFC 6902), base64-encoded.")
    warnings: list[str] = Field(default_factory=list, description="Warnings that kubectl prints.")


class AdmissionAnswer(_Model):
    """An AdmissionReview response."""

    api_version: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"
    response: AdmissionResponse


# FastAPI's ``/docs`` and ``/openapi.json``, with a sample review for each webhook. FastAPI serves only these pages:
# webhook paths bypass it (see app.admission.server).

_ABOUT: Final = """\
Kubernetes sends an **AdmissionReview** to one of these paths for each write, and acts on the response.
*Try it out* sends the example to this server; nothing is stored.
"""
#: Maximum number of rules to spell out in a description.
_SHOWN: Final = 100


def add_pages(app: AdmissionApp, registry: Registry, *, loopback_only: bool = False) -> None:
    """Serve the pages on the webhook port; with ``loopback_only``, only to local clients."""
    pages: Any = documented(registry)
    app.router.routes.append(Mount("/", LoopbackOnly(pages) if loopback_only else pages))


def documented(registry: Registry) -> FastAPI:
    """Return an application that documents the webhooks without serving them."""
    pages = FastAPIOffline(title="pykruise", version="1", description=_ABOUT, redoc_url=None)
    for path in registry.routes:
        webhooks = [webhook for webhook in registry.webhooks if webhook.path == path]
        pages.add_api_route(
            path,
            _answered_before,
            methods=["POST"],
            response_model=AdmissionAnswer,
            responses={400: {"description": "The body is not a valid review; the message names the invalid field."}},
            response_description="Allowed, allowed with a patch, or denied; always with status 200.",
            tags=["mutating" if webhooks[0].mutating else "validating"],
            summary=webhooks[0].summary.rstrip("."),
            description=_description(path, webhooks),
            operation_id=path.strip("/").replace("/", "-"),
            openapi_extra={"requestBody": _body(webhooks)},
        )
    described = pages.openapi

    def openapi() -> dict[str, Any]:
        found = described()
        for operations in found["paths"].values():
            # Remove FastAPI's own validation response: invalid bodies are answered with 400.
            operations["post"]["responses"].pop("422", None)
        return found

    pages.openapi = openapi  # type: ignore[method-assign]
    return pages


async def _answered_before(review: AdmissionReview) -> AdmissionAnswer:
    """Document a webhook; only the signature is used."""
    raise AssertionError(f"{review.request.uid}: webhook paths bypass FastAPI")


def _body(webhooks: list[Webhook]) -> dict[str, Any]:
    examples = {webhook.name: {"summary": webhook.summary, "value": review(webhook)} for webhook in webhooks}
    return {"content": {"application/json": {"examples": examples}}}


def _description(path: str, webhooks: list[Webhook]) -> str:
    lines = []
    for webhook in webhooks:
        asked = "; ".join(
            f"{', '.join(operation.value for operation in rule.operations)} of {', '.join(rule.resources)} "
            f"({', '.join(group or 'core' for group in rule.groups)}; {', '.join(rule.versions)})"
            for rule in webhook.rules
        )
        lines.append(f"**{webhook.name}**: {webhook.summary.rstrip('.')}. Called for {asked}.")
    found = rules().get(path, {})
    if found:
        lines.append("Rules:")
        lines.append("\n".join(f"- `{id_}` {text}" for id_, text in list(found.items())[:_SHOWN]))
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more, see docs/behaviours.")
    return "\n\n".join(lines)
