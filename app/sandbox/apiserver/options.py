"""Options of writes: what the query says beside the object, and what the server says where that makes no sense."""

from __future__ import annotations

from typing import Any, Final

from app.kube.client import PatchType
from app.kube.fielderrors import FieldError, forbidden, invalid, not_supported, required, too_long
from app.sandbox.apiserver import status
from app.sandbox.apiserver.requests import Call

_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_MANAGER_BYTES: Final = 128


def check_options(call: Call) -> None:
    """Refuse a create, update or patch whose options are wrong."""
    kind = _KINDS.get(call.verb)
    if kind is None or not call.query.keys() & {"dryRun", "fieldManager", "fieldValidation", "force"}:
        if kind == "PatchOptions" and _is_apply(call):
            raise _refused(kind, [required("fieldManager", "is required for apply patch")])
        return
    errors = [*_patch_errors(call), *_manager_errors(call), *dry_run_errors(call.query.get("dryRun"))]
    validation = call.query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise _refused(kind, errors)


def dry_run_errors(value: Any) -> list[FieldError]:
    """What is wrong with the kinds of dry run a request names; ``All`` is the only one."""
    given = [value] if isinstance(value, str) and value else value or []
    if all(one == "All" for one in given):
        return []
    return [not_supported("dryRun", given, ("All",))]


def _is_apply(call: Call) -> bool:
    return call.headers.get("content-type", "").partition(";")[0].strip() == PatchType.APPLY


def _patch_errors(call: Call) -> list[FieldError]:
    if call.verb != "patch":
        return []
    if _is_apply(call):
        missing = not call.query.get("fieldManager")
        return [required("fieldManager", "is required for apply patch")] if missing else []
    return [forbidden("force", "may not be specified for non-apply patch")] if "force" in call.query else []


def _manager_errors(call: Call) -> list[FieldError]:
    manager = call.query.get("fieldManager", "")
    errors = []
    if len(manager.encode()) > _MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MANAGER_BYTES))
    for position, char in enumerate(manager):
        if not char.isprintable():
            detail = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(invalid("fieldManager", manager, detail))
    return errors


def _refused(kind: str, errors: list[FieldError]) -> status.Refusal:
    return status.invalid_kind("meta.k8s.io", kind, "", errors)
