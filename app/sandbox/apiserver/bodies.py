"""Bodies: from what a client sent to an object of the resource it was sent to, or the server's refusal."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import orjson
import yaml

from app.kube.gotext import quote
from app.sandbox.apiserver import status
from app.sandbox.apiserver.gojsonerrors import duplicate_fields, go_json_error, summary
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.protobuf import MEDIA_TYPE, ProtobufError, decode_object
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import kind_field
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
    if media == MEDIA_TYPE:
        try:
            return decode_object(call.body), []
        except ProtobufError as error:
            raise status.bad_request(str(error)) from None
    if media != _JSON:
        raise status.unsupported_media_type(_KNOWN)
    try:
        document = orjson.loads(call.body)
    except orjson.JSONDecodeError:
        raise _unrecognized(call, go_json_error(call.body)) from None
    if call.field_validation == "Ignore":
        return document, []
    return document, duplicate_fields(call.body, document, orjson.dumps(document))


def _unrecognized(call: Call, why: str) -> status.Refusal:
    return status.bad_request(
        f"the object provided is unrecognized (must be of type {call.resource.kind}): couldn't get version/kind; json "
        f"parse error: {why} ({summary(call.body)})"
    )


def parse_yaml(body: bytes) -> Any:
    """The one YAML document of a body."""
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: {error}") from None


def read_object(call: Call, document: Any, checker: Reader | None, duplicates: list[str]) -> Json:
    """The document as an object of the call's resource: its type is right, unknown fields told, refused or dropped."""
    if document is None:
        raise _unrecognized(call, "unexpected end of JSON input")
    if not isinstance(document, dict):
        kind = "array" if isinstance(document, list) else "string" if isinstance(document, str) else "number"
        shape = (
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
        raise _unrecognized(call, f"json: cannot unmarshal {kind} into Go value of type {shape}")
    _check_type(call, document)
    if checker is None:
        return document
    return check_types(call, document, checker, duplicates)


def _check_type(call: Call, document: Json) -> None:
    resource = call.resource
    kind, api_version = document.get("kind") or resource.kind, document.get("apiVersion") or resource.api_version
    if not isinstance(kind, str) or not isinstance(api_version, str):
        raise _unrecognized(call, "json: cannot unmarshal number into Go struct field .kind of type string")
    if api_version.count("/") > 1:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): unexpected GroupVersion string: "
            f"{api_version} ({summary(call.body)})"
        )
    if (kind, api_version) == (resource.kind, resource.api_version):
        return
    if resource.custom is None and kind_field(api_version, kind) is None:
        why = f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:110"'
    elif kind != resource.kind:
        why = f"converting ({_go_name(api_version, kind)}) to ({_internal_name(resource)}): unknown conversion"
    else:
        raise status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    version = api_version.rpartition("/")[2]
    raise status.bad_request(f"{kind} in version {quote(version)} cannot be handled as a {resource.kind}: {why}")


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
