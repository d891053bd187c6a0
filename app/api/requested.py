"""Whether what a webhook is asked about is of its kind and in which version; a clear refusal where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from app.api import structural
from app.api.kind import KindDefinition, Version
from app.api.model import ObjectMeta
from app.kube.admission import Denied
from app.kube.fielderrors import ErrorType, aggregate


def version_to_default(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version of an object to be completed; a refusal of what cannot even be read.

    What else the schema forbids an API server says itself, after the defaults.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    mistyped = [error for error in structural.validate(version.schema, given) if error.type is ErrorType.TYPE_INVALID]
    return Denied(aggregate(mistyped), code=400) if mistyped else version


def version_to_judge(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version of an object to be validated; a refusal of what the schema forbids.

    An API server has said that before it calls; reviews may come from elsewhere.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    message = structural.invalid_message(kind, version, given)
    return Denied(message, code=422, reason="Invalid") if message else version


def _requested_version(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version the object is written in; a refusal if it is not of that kind, or its metadata is none."""
    if not given:
        return Denied("request.object: is required", code=400)
    version = kind.version(str(given.get("apiVersion")))
    if version is None or given.get("kind") != kind.kind:
        served = " or ".join(f"{kind.group}/{known.name}" for known in kind.versions)
        found = f"{given.get('kind')} of {given.get('apiVersion')}"
        return Denied(f"request.object: expected a {kind.kind} of {served}, got {found}", code=400)
    try:
        ObjectMeta.model_validate(given.get("metadata") or {})
    except ValidationError as error:
        return Denied(unreadable(error, "metadata"), code=400)
    return version


def unreadable(error: ValidationError, *at: str) -> str:
    """Every field that does not hold what it must; ``at`` is where the model stands."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (*at, *each['loc'])))}: {each['msg']}" for each in found)
