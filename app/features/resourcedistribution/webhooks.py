"""Validating webhook of ResourceDistribution. [RD-10 … RD-16]"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from app.api.conversion import as_hub
from app.api.webhooks import Judgment, Submitted, former_of, validating, validating_webhook
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.plan import without_identity
from app.features.resourcedistribution.types import ResourceDistribution
from app.features.resourcedistribution.validation import RESOURCE, set_errors, warnings
from app.framework.options import gate_is_off
from app.kube.admission import Allowed, Denied, Handler
from app.kube.client import Client
from app.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid
from app.kube.fielderrors import FieldError, internal, invalid
from app.kube.resources import CONFIGMAPS, SECRETS
from app.kube.validation import is_config_map_key, is_dns1123_subdomain

GATE: Final = "ResourceDistributionGate"

VALIDATE: Final = validating_webhook(
    RESOURCE_DISTRIBUTION,
    "Rejects ResourceDistributions with an invalid resource or ambiguous targets",
    when=(),
)
WEBHOOKS: Final = (VALIDATE,)


#: Returns the error in a resource, or None.
CheckResource: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[FieldError | None]]


def handlers(check: CheckResource, *, enabled: bool) -> tuple[Handler, ...]:
    """Return the webhook declaration with its handler. ``enabled`` is set if the feature gate is on."""
    return (Handler(VALIDATE, validating(RESOURCE_DISTRIBUTION, partial(judge, check, enabled=enabled))),)


async def judge(check: CheckResource, given: Submitted, *, enabled: bool) -> Judgment:
    """Validate a ResourceDistribution."""
    distribution = read(given.object)
    # Updates of an object being deleted, such as removing a finalizer, must not fail because of its spec. While the
    # gate is off, updates of metadata alone are allowed. [RD-76]
    if distribution.deleting or (not enabled and given.keeps_spec):
        return Allowed()
    if not enabled:
        return Denied(gate_is_off(GATE), code=403)
    errors = set_errors(distribution, former_of(given.review, read))
    resource = distribution.spec.resource
    if not any(error.field == str(RESOURCE) for error in errors):
        found = await check(without_identity(resource))
        if found is not None:
            errors.insert(0, found)
    return errors or Allowed(warnings(distribution))


def read(obj: Mapping[str, Any]) -> ResourceDistribution:
    """Parse either version as the hub model. Raises ConversionError or ValidationError."""
    return ResourceDistribution.model_validate(as_hub(RESOURCE_DISTRIBUTION, obj))


async def dry_run_error(client: Client, namespace: str, resource: Mapping[str, Any]) -> FieldError | None:
    """Create the resource in ``namespace`` as a dry run and return the API server's error, without the content of a
    Secret. [RD-15]"""
    kind = SECRETS if resource.get("kind") == SECRETS.kind else CONFIGMAPS
    body = {**resource, "metadata": {**(resource.get("metadata") or {}), "namespace": namespace}}
    try:
        await client.create(kind, body, namespace, dry_run=True)
    except AlreadyExists:
        return None
    except (Invalid, BadRequest) as error:
        return invalid(RESOURCE, None, f"spec.resource is invalid: {error.message}")
    except Forbidden as error:
        return invalid(RESOURCE, None, f"spec.resource is forbidden: {error.message}")
    except ApiError as error:
        return internal(RESOURCE, error.message)
    return None


async def structural_error(resource: Mapping[str, Any]) -> FieldError | None:
    """Return the first error in names, keys or types, as the API server reports it. Used in standalone mode."""
    metadata = resource.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = resource.get("kind")
    if not isinstance(name, str) or not name:
        return _refused(f'{kind} "" is invalid: metadata.name: Required value: name or generateName is required')
    for message in is_dns1123_subdomain(name):
        return _refused(f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": {message}')
    for field in ("data", "stringData", "binaryData"):
        content = resource.get(field) or {}
        if not isinstance(content, dict):
            return _mistyped(kind, field, content, "map[string]string")
        for value in content.values():
            if not isinstance(value, str):
                return _mistyped(kind, field, value, "string")
        for key in content:
            for message in is_config_map_key(key):
                return _refused(f'{kind} "{name}" is invalid: {field}[{key}]: Invalid value: "{key}": {message}')
    return None


def _mistyped(kind: object, field: str, value: object, wanted: str) -> FieldError:
    found = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}.get(type(value), "object")
    detail = f"json: cannot unmarshal {found} into Go struct field {kind}.{field} of type {wanted}"
    return _refused(f'{kind} in version "v1" cannot be handled as a {kind}: {detail}')


def _refused(message: str) -> FieldError:
    return invalid(RESOURCE, None, f"spec.resource is invalid: {message}")
