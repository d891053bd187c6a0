"""Patches: from a PATCH request to a function that makes the new object of the old."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import orjson

from app.kube import patches
from app.kube.client import PatchType
from app.kube.fielderrors import invalid
from app.sandbox.apiserver import status
from app.sandbox.apiserver.gojsonerrors import go_json_error
from app.sandbox.apiserver.jsonpatching import apply_operations
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.strategic import strategic_merge
from app.sandbox.apiserver.typecheck import Reader, WrongType, strict_errors
from app.sandbox.apiserver.writing import Transform, fresh

Json: TypeAlias = dict[str, Any]

_MAX_OPERATIONS: Final = 10_000
_ALL: Final = tuple(kind.value for kind in PatchType)
_CUSTOM: Final = tuple(kind.value for kind in PatchType if kind is not PatchType.STRATEGIC)


def patch_type(call: Call) -> PatchType:
    """The kind of patch, by content type. Refuses (415) what the resource does not take."""
    media = call.headers.get("content-type", "").partition(";")[0].strip()
    known = _ALL if call.resource.custom is None else _CUSTOM
    if media not in known:
        raise status.unsupported_media_type(known)
    return PatchType(media)


def transform(call: Call, kind: PatchType, schema: Field | None, checker: Reader | None) -> Transform:
    """What the patch makes of an object; the result is typed and shares nothing with the old one."""
    document = _document(call, kind)
    # Types are checked, and nulls and empty lists tidied, each time the patch is laid on another version.
    warned = False

    def apply(old: Json | None) -> Json:
        nonlocal warned
        if old is None:
            raise status.not_found(call.resource, call.name)
        found = fresh(_patched(kind, document, old, schema))
        if not isinstance(found, dict):
            raise status.bad_request("the patched document is not an object")
        _restore_type(call, found)
        if checker is None:
            return found
        try:
            checked, unknown = checker.read(found)
        except WrongType as error:
            raise _invalid_patch(found, str(error)) from None
        if unknown and not warned:
            warned = True
            problems = strict_errors(unknown)
            if call.field_validation == "Strict":
                raise _invalid_patch(found, f"strict decoding error: {', '.join(problems)}")
            if call.field_validation == "Warn":
                call.warnings.extend(problems)
        return dict(checked)

    return apply


def _document(call: Call, kind: PatchType) -> Any:
    try:
        document = orjson.loads(call.body)
    except orjson.JSONDecodeError:
        prefix = "" if kind is PatchType.STRATEGIC else "error decoding patch: "
        raise status.bad_request(prefix + go_json_error(call.body)) from None
    if kind is PatchType.JSON:
        if not isinstance(document, list):
            message = "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
            raise status.bad_request(f"error decoding patch: {message}")
        if len(document) > _MAX_OPERATIONS:
            message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(document)}"
            raise status.Refusal(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    elif not isinstance(document, dict):
        found = "array" if isinstance(document, list) else "string" if isinstance(document, str) else "number"
        prefix = "" if kind is PatchType.STRATEGIC else "error decoding patch: "
        raise status.bad_request(
            f"{prefix}json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )
    return document


def _patched(kind: PatchType, document: Any, old: Json, schema: Field | None) -> Any:
    try:
        match kind:
            case PatchType.JSON:
                return apply_operations(document, old)
            case PatchType.MERGE:
                return patches.merge_patch(old, document)
            case _:
                return strategic_merge(old, document, schema)
    except patches.PatchError as error:
        if kind is PatchType.STRATEGIC:
            raise status.bad_request(str(error)) from None
        raise status.rejected() from None
    except (KeyError, TypeError, AttributeError):
        raise status.rejected() from None


def _restore_type(call: Call, found: Json) -> None:
    resource = call.resource
    for name, wanted in (("apiVersion", resource.stored_api_version), ("kind", resource.kind)):
        given = found.setdefault(name, wanted)
        if given not in (wanted, resource.api_version if name == "apiVersion" else wanted):
            raise status.bad_request(
                f"{found.get('kind')} in version {found.get('apiVersion')} cannot be handled as a {resource.kind}"
            )


def _invalid_patch(found: Json, why: str) -> status.Refusal:
    shown = orjson.dumps({key: found[key] for key in sorted(found)}).decode()
    return status.invalid_kind("", "", "", [invalid("patch", shown, why)])
