"""JSON, merge and strategic merge patches as the API server applies them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from app.kube import patches
from app.kube.client import PatchType
from app.kube.fielderrors import GoLiteral, invalid, printed, quote
from app.kube.jsonvalues import json_copy
from app.kube.patches import strategic_merge
from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.bodies import no_such_kind
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import Field, kind_field
from app.sandbox.apiserver.steps import fresh
from app.sandbox.apiserver.typecheck import Reader, WrongType, strict_errors
from app.sandbox.apiserver.writing import Transform

# JSON patches with the leniency and the error messages of the API server.
#
# The server deviates from RFC 6902: ``replace`` of a missing key adds it, ``copy`` of a missing key yields null, and a
# path need not begin with a slash.

Operation: TypeAlias = Mapping[str, Any]

_MISSING: Final = "missing value"
_NO_INDEX: Final = "invalid index referenced"
_NUMBER: Final = re.compile(r"[+-]?\d+")


class JsonPatchError(ValueError):
    """The patch cannot be applied. The message is that of the server's patch library."""


def apply(operations: Sequence[Operation], document: Any) -> Any:
    """Return the document after all operations. The argument is not changed."""
    root: list[Any] = [json_copy(document)]
    for operation in operations:
        kind = operation.get("op")
        act = _ACTIONS.get(kind) if isinstance(kind, str) else None
        if act is None:
            raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        act(root, operation)
    return root[0]


def _path(operation: Operation, field: str, failing: str) -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise JsonPatchError(failing)
    return path


def _container(root: list[Any], path: str) -> tuple[Any, str]:
    """Return the last key of the path and the object or list that contains it (None if it does not exist)."""
    parts = path.split("/")
    key = _decoded(parts[-1])
    if len(parts) == 1 and not path:
        return None, ""
    found = root[0]
    for part in parts[1:-1]:
        found = _child(found, _decoded(part))
    return (found, key) if isinstance(found, dict | list) else (None, key)


def _child(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and _NUMBER.fullmatch(key) and -len(value) <= int(key) < len(value):
        return value[int(key)]
    return None


def _decoded(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _index(key: str, limit: int, *, what: str = "strconv.Atoi") -> int:
    if not _NUMBER.fullmatch(key):
        raise JsonPatchError(f'{what}: parsing "{key}": invalid syntax')
    index = int(key)
    if not -limit <= index < limit:
        raise JsonPatchError(f"Unable to access invalid index: {index}: {_NO_INDEX}")
    return index + limit if index < 0 else index


def _get(container: Any, key: str) -> Any:
    return container.get(key) if isinstance(container, dict) else container[_index(key, len(container))]


def _put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        wrong = f"value was not a proper array index: '{key}': strconv.Atoi"
        container.insert(_index(key, len(container) + 1, what=wrong), value)


def _take(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(key, len(container))]
    elif key in container:
        del container[key]
    else:
        raise JsonPatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")


def _within(context: str, act: Any, *arguments: Any) -> Any:
    """Run an operation on a container and prefix its error with the context."""
    try:
        return act(*arguments)
    except JsonPatchError as error:
        raise JsonPatchError(f"{context}: {error}") from None


def _add(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"add operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f'add operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _within(f"error in add for path: '{path}'", _put, container, key, json_copy(operation.get("value")))


def _remove(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"remove operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _within(f"error in remove for path: '{path}'", _take, container, key)


def _replace(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"replace operation failed to decode path: {_MISSING}")
    value = json_copy(operation.get("value"))
    if not path:
        root[0] = value
        return
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"replace operation does not apply: doc is missing path: {path}: {_MISSING}")
    try:
        _get(container, key)
    except JsonPatchError:
        raise JsonPatchError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}") from None
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_index(key, len(container))] = value


def _move(root: list[Any], operation: Operation) -> None:
    source = _path(operation, "from", f"move operation failed to decode from: {_MISSING}")
    container, key = _container(root, source)
    if container is None:
        raise JsonPatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    value = _within(f"error in move for path: '{key}'", _get, container, key)
    _within(f"error in move for path: '{key}'", _take, container, key)
    path = _path(operation, "path", f"move operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _within(f"error in move for path: '{path}'", _put, container, key, value)


def _copy(root: list[Any], operation: Operation) -> None:
    source = _path(operation, "from", f"copy operation failed to decode from: {_MISSING}")
    container, key = _container(root, source)
    if container is None:
        raise JsonPatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    value = json_copy(_within(f"error in copy for from: '{source}'", _get, container, key))
    path = _path(operation, "path", f"copy operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _within("error while adding value during copy", _put, container, key, value)


def _test(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"test operation failed to decode path: {_MISSING}")
    value: Any = root[0]
    if path:
        container, key = _container(root, path)
        if container is None:
            raise JsonPatchError(f"test operation does not apply: is missing path: {path}: {_MISSING}")
        value = _within(f"error in test for path: '{path}'", _get, container, key)
    if not _equal(value, operation.get("value")):
        raise JsonPatchError(f"testing value {path} failed: test failed")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_ACTIONS: Final = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


Json: TypeAlias = dict[str, Any]

_MAX_OPERATIONS: Final = 10_000
_ALL: Final = tuple(kind.value for kind in PatchType)
_CUSTOM: Final = tuple(kind.value for kind in PatchType if kind is not PatchType.STRATEGIC)
#: Fields that a status write may change, and those that identify the type.
_OF_STATUS: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


def patch_type(call: Call) -> PatchType:
    """Return the patch type for the content type. Rejects types that the resource does not support (415)."""
    media = call.headers.get("content-type", "").partition(";")[0].strip()
    known = _ALL if call.resource.custom is None else _CUSTOM
    if media not in known:
        if call.resource.custom is not None:
            raise status.unsupported_media_type(known)
        raise status.Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return PatchType(media)


def transform(
    call: Call, kind: PatchType, schema: Field | None, checker: Reader | None, *, apart: bool = False
) -> Transform:
    """Return a function that patches an object. Its result is type-checked and shares nothing with the old object.

    With ``apart``, the result shares the fields that neither the patch nor a status write changes, so they are not
    checked again.
    """
    document = _document(call, kind)
    # A retry on a newer version checks the result again; send the warnings only once.
    warned = False

    def apply(old: Json | None) -> Json:
        nonlocal warned
        if old is None:
            raise status.not_found(call.resource, call.name)
        patched = _patched(kind, document, old, schema)
        if not isinstance(patched, dict):
            raise status.bad_request("the patched document is not an object")
        same = {} if not apart else {
            name: part for name, part in patched.items() if name not in _OF_STATUS and old.get(name) is part
        }  # fmt: skip
        found = fresh({name: part for name, part in patched.items() if name not in same})
        _restore_type(call, found)
        _check_name(call, found)
        if checker is None:
            return found if not same else _together(patched, same, found)
        try:
            checked, unknown = checker.read(found)
        except WrongType as error:
            if kind is PatchType.STRATEGIC:
                raise _invalid_strategic(document, str(error)) from None
            raise invalid_patch(_together(patched, same, found), str(error)) from None
        if unknown and not warned:
            warned = True
            problems = strict_errors(unknown)
            if call.field_validation == "Strict":
                raise invalid_patch(_together(patched, same, found), f"strict decoding error: {', '.join(problems)}")
            if call.field_validation == "Warn":
                call.warnings.extend(problems)
        return dict(checked) if not same else _together(patched, same, checked)

    return apply


def _together(order: Json, same: Json, read: Json) -> Json:
    """Join both parts of an object and keep the original order of its keys."""
    found = {**same, **read}
    return {name: found[name] for name in dict.fromkeys((*order, *found)) if name in found}


def _document(call: Call, kind: PatchType) -> Any:
    # A real server decodes strategic merge patches elsewhere, without this prefix.
    context = "" if kind is PatchType.STRATEGIC else "error decoding patch: "
    try:
        document = orjson.loads(call.body)
    except orjson.JSONDecodeError:
        raise status.bad_request(f"{context}{golang.syntax_error(call.body)}") from None
    wanted = "[]handlers.jsonPatchOp" if kind is PatchType.JSON else "map[string]interface {}"
    if not isinstance(document, list if kind is PatchType.JSON else dict):
        if document is None and kind is PatchType.MERGE:
            raise status.bad_request("Invalid JSON Patch")
        found = golang.json_type(document)
        raise status.bad_request(f"{context}json: cannot unmarshal {found} into Go value of type {wanted}")
    if kind is PatchType.JSON and len(document) > _MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(document)}"
        raise status.Refusal(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    return document


def _patched(kind: PatchType, document: Any, old: Json, schema: Field | None) -> Any:
    try:
        match kind:
            case PatchType.JSON:
                return apply(document, old)
            case PatchType.MERGE:
                return patches.merge_patch(old, document)
            case _:
                return strategic_merge(old, document, schema)
    except JsonPatchError:
        raise status.patch_failed({}) from None
    except patches.PatchError as error:
        raise status.plain_error(str(error)) from None
    except (KeyError, TypeError, AttributeError):
        raise status.patch_failed({}) from None


def _check_name(call: Call, found: Json) -> None:
    metadata = found.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else call.name
    if isinstance(name, str) and name != call.name:
        raise status.name_mismatch(name, call.name)


def _restore_type(call: Call, found: Json) -> None:
    """Fill in the resource's apiVersion and kind. Rejects a patch that changes them."""
    resource = call.resource
    for name, wanted in (("apiVersion", resource.stored_api_version), ("kind", resource.kind)):
        found.setdefault(name, wanted)
    api_version, kind = found["apiVersion"], found["kind"]
    if kind == resource.kind and api_version in (resource.stored_api_version, resource.api_version):
        return
    if kind_field(api_version, kind) is None:
        raise invalid_patch(found, no_such_kind(api_version, kind))
    raise invalid_patch(found, f"unable to decode {api_version}, Kind={kind} into a {resource.kind}")


def invalid_patch(found: Json, why: str) -> status.Refusal:
    """Return the error for a patch whose result has a value of the wrong type."""
    return status.invalid_kind("", "", "", [invalid("patch", orjson.dumps(found).decode(), why)])


_WRONG_TYPE = re.compile(r"json: cannot unmarshal (\w+).* of type (\S+)$")
_GO_KINDS: Final = {"object": "map", "array": "slice", "number": "int64", "bool": "bool", "string": "string"}


def _invalid_strategic(patch: Json, why: str) -> status.Refusal:
    """Return the same error for a strategic merge patch, in the words of its decoder."""
    match = _WRONG_TYPE.search(why)
    if match is not None:
        found, wanted = match.groups()
        shape = "slice" if wanted.startswith("[]") else "map" if wanted.startswith("map[") else ""
        if shape:
            why = f"cannot restore {shape} from {_GO_KINDS[found]}"
        elif "." in wanted:
            why = f"cannot restore struct from: {_GO_KINDS[found]}"
        else:
            why = f"unrecognized type: {wanted}"
    return status.invalid_kind("", "", "", [invalid("patch", GoLiteral(quote(printed(patch))), why)])
