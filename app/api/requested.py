"""Which version of a kind a webhook is asked about, and a clear refusal where it is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from app.api.kind import KindDefinition, Version
from app.api.model import ObjectMeta
from app.kube.admission import Denied


def requested_version(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
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
