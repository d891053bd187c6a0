"""Bodies: from what a client sent to an object of the resource it was sent to, or the server's refusal."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import orjson
import yaml

from app.kube.gotext import quote
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.typecheck import Reader, WrongType, strict_errors

Json: TypeAlias = dict[str, Any]

#: What a real server takes at most.
MAX_BODY: Final = 3 * 2**20
_JSON: Final = "application/json"
_YAML: Final = ("application/yaml", "text/yaml")
_KNOWN: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def parse_body(call: Call) -> tuple[Any, list[str]]:
    """The document in the body, and the paths of fields that occur twice (looked for only where that matters)."""
    media = call.headers.get("content-type", _JSON).partition(";")[0].strip() or _JSON
    if len(call.body) > MAX_BODY:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise status.Refusal(413, "RequestEntityTooLarge", message)
    if media in _YAML:
        return parse_yaml(call.body), []
    if media != _JSON:
        raise status.unsupported_media_type(_KNOWN)
    try:
        document = orjson.loads(call.body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if call.query.get("fieldValidation") == "Strict":
        return document, _duplicates(call.body)
    return document, []


def parse_yaml(body: bytes) -> Any:
    """The one YAML document of a body."""
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: {error}") from None


def _duplicates(body: bytes) -> list[str]:
    """Fields that occur twice in one object."""
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> Json:
        seen: Json = {}
        for key, value in pairs:
            if key in seen:
                found.append(key)
            seen[key] = value
        return seen

    json.loads(body, object_pairs_hook=note)
    return found


def read_object(call: Call, document: Any, checker: Reader | None, duplicates: list[str]) -> Json:
    """The document as an object of the call's resource: its type is right, unknown fields told, refused or dropped."""
    resource = call.resource
    if not isinstance(document, dict):
        summary = call.body[:30].decode("utf-8", "replace")
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; json "
            f"parse error: json: cannot unmarshal into Go value of type struct ({summary})"
        )
    _check_type(resource, document)
    if checker is None:
        return document
    return check_types(call, document, checker, duplicates)


def _check_type(resource: ResourceType, document: Json) -> None:
    kind, api_version = document.get("kind") or "", document.get("apiVersion") or ""
    if kind and kind != resource.kind:
        raise status.bad_request(
            f'{kind} in version "{api_version.rpartition("/")[2] or resource.version}" cannot be handled as a '
            f"{resource.kind}: converting ({_go_name(api_version, kind)}) to ({_internal_name(resource)}): "
            "unknown conversion"
        )
    if api_version and api_version != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )


def _go_name(api_version: str, kind: str) -> str:
    return f"{api_version.rpartition('/')[2] or 'v1'}.{kind}"


def _internal_name(resource: ResourceType) -> str:
    return f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"


def check_types(call: Call, document: Json, checker: Reader, duplicates: list[str]) -> Json:
    """The document with every value of the right type; what it has too much is warned about or refused."""
    resource = call.resource
    try:
        checked, unknown = checker.read(document)
    except WrongType as error:
        raise status.bad_request(_cannot_be_handled(resource, str(error))) from None
    if not unknown and not duplicates:
        return dict(checked)
    problems = strict_errors(unknown, duplicates)
    match call.field_validation:
        case "Strict":
            message = f"strict decoding error: {', '.join(problems)}"
            raise status.bad_request(_cannot_be_handled(resource, message))
        case "Warn":
            call.warnings.extend(problems)
    return dict(checked)


def _cannot_be_handled(resource: ResourceType, why: str) -> str:
    return f"{resource.kind} in version {quote(resource.version)} cannot be handled as a {resource.kind}: {why}"
