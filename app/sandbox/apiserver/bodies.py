"""Decodes request bodies as objects of the requested resource, or rejects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import orjson
import yaml

from app.kube.fielderrors import invalid, quote
from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.protobuf import MEDIA_TYPE, ProtobufError, decode_object
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import kind_field
from app.sandbox.apiserver.typecheck import Reader, WrongType, strict_errors

Json: TypeAlias = dict[str, Any]

#: Maximum body size, as on a real server.
MAX_BODY: Final = 3 * 2**20
_JSON: Final = "application/json"
_YAML: Final = ("application/yaml", "text/yaml")
_KNOWN: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def parse_body(call: Call) -> tuple[Any, list[str]]:
    """Return the document in the body, and the paths of duplicate fields if the client requests field validation."""
    media = call.headers.get("content-type", _JSON).partition(";")[0].strip() or _JSON
    if len(call.body) > MAX_BODY:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise status.Refusal(413, "RequestEntityTooLarge", message)
    if media in _YAML:
        try:
            return yaml.safe_load(call.body), []
        except yaml.YAMLError as error:
            raise _unrecognized(call, yaml_error(error)) from None
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
        why = f"couldn't get version/kind; json parse error: {golang.syntax_error(call.body)}"
        raise _unrecognized(call, why) from None
    return document, _duplicates(call, document)


def _duplicates(call: Call, document: Any) -> list[str]:
    """Return the paths of duplicate fields, or none if the client ignores them."""
    if call.query.get("fieldValidation") == "Ignore":
        return []
    # Decoding drops duplicates, so the body can contain some only if the document is shorter.
    if len(orjson.dumps(document)) >= len(call.body.strip()):
        return []
    return golang.duplicate_fields(call.body)


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Return the first YAML document of a body, and the errors about its duplicate keys."""
    try:
        found = orjson.loads(body)
        if len(orjson.dumps(found)) >= len(body.strip()):
            return found, []  # compact JSON without duplicate keys, as our clients send it
    except orjson.JSONDecodeError:
        pass
    try:
        loader = yaml.CSafeLoader(body)
        if not loader.check_node():
            return None, []
        node = loader.get_node()
        assert node is not None  # noqa: S101  # checked above
        return loader.construct_document(node), list(_repeated(node))
    except yaml.YAMLError as error:
        why = f"error converting YAML to JSON: {yaml_error(error)}"
        raise status.bad_request(f"error decoding YAML: {why}") from None


def _repeated(node: yaml.Node) -> Iterator[str]:
    """Yield an error for each key that occurs twice in one mapping."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield f"line {key.start_mark.line + 1}: key {quote(key.value)} already set in map"
            seen.add(key.value)
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)


#: PyYAML's message → the message of Go's YAML parser.
_YAML_WORDS: Final = {
    "mapping values are not allowed here": "mapping values are not allowed in this context",
    "found character '\\t' that cannot start any token": "found character that cannot start any token",
}


def yaml_error(error: yaml.YAMLError) -> str:
    """Return the server's message for invalid YAML."""
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    line = mark.line if mark is not None else 0
    if isinstance(error, yaml.scanner.ScannerError) and line:
        line += 1
    elif problem.startswith(("expected the node content", "did not find expected node content")):
        problem, line = "did not find expected node content", line or 1
    return f"yaml: {f'line {line}: ' if line else ''}{_YAML_WORDS.get(problem, problem)}"


def _unrecognized(call: Call, why: str) -> status.Refusal:
    shown = golang.summary(call.body)
    kind = call.resource.kind
    return status.bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({shown})")


def read_object(call: Call, document: Any, checker: Reader | None, duplicates: list[str]) -> Json:
    """Decode the document as an object of the call's resource. Checks types; unknown fields are reported, rejected or
    dropped."""
    if not isinstance(document, dict):
        found = golang.json_type(document)
        why = f"json: cannot unmarshal {found} into Go value of type {golang.TYPE_META}"
        raise _unrecognized(call, f"couldn't get version/kind; json parse error: {why}")
    _check_type(call, document)
    if call.resource.custom is None:
        document.setdefault("apiVersion", call.resource.api_version)
    if checker is None:
        return document
    return check_types(call, document, checker, duplicates)


def _check_type(call: Call, document: Json) -> None:
    """Reject a document of another kind."""
    resource = call.resource
    if resource.custom is not None:
        if (document.get("kind"), document.get("apiVersion")) != (resource.kind, resource.api_version):
            _check_custom_type(call, document)
        return
    kind, api_version = document.get("kind") or resource.kind, document.get("apiVersion") or resource.api_version
    if (kind, api_version) == (resource.kind, resource.api_version):
        return
    if api_version.count("/") > 1:
        raise _unrecognized(call, f"unexpected GroupVersion string: {api_version}")
    if kind_field(api_version, kind) is None:
        why = no_such_kind(api_version, kind)
    else:
        why = f"converting ({_go_name(api_version, kind)}) to ({_internal_name(resource)}): unknown conversion"
    version = api_version.rpartition("/")[2]
    raise status.bad_request(f"{kind} in version {quote(version)} cannot be handled as a {resource.kind}: {why}")


def _check_custom_type(call: Call, document: Json) -> None:
    resource = call.resource
    if document.get("apiVersion") != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({document.get('apiVersion') or ''}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind := document.get("kind"):
        error = invalid("kind", kind, f"must be {resource.kind}")
        name = (document.get("metadata") or {}).get("name") or ""
        raise status.invalid(resource, name, [error], kind=kind)
    raise _unrecognized(call, f"Object 'Kind' is missing in '{call.body.decode(errors='replace')}'")


def no_such_kind(api_version: str, kind: str) -> str:
    """Return the server's message for an unknown kind."""
    return f'no kind {quote(kind)} is registered for version {quote(api_version)} in scheme "pkg/runtime/scheme.go:110"'


def _go_name(api_version: str, kind: str) -> str:
    return f"{api_version.rpartition('/')[2] or 'v1'}.{kind}"


def _internal_name(resource: ResourceType) -> str:
    return f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"


def check_types(call: Call, document: Json, checker: Reader, duplicates: list[str]) -> Json:
    """Check the types of all values. Unknown and duplicate fields cause a warning or an error."""
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
