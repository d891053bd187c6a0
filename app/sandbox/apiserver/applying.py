"""Server-side apply: managed fields, conflicts between managers, and what goes when nobody asks for it any more. Pure.

An object without managed fields (somebody emptied them) belongs to ``before-first-apply``, as on a server that meets an
object from before the time of apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import status
from app.sandbox.apiserver.fieldsets import (
    FieldSet,
    Step,
    changes,
    check_declared,
    empty_object,
    fields_of,
    has,
    leaves,
    lookup,
    merged,
    path_text,
    pruned,
    touches,
    without,
    without_system,
)
from app.sandbox.apiserver.managing import UPDATE, Manager, ordered
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.status import Refusal

Json: TypeAlias = dict[str, Any]

BEFORE_FIRST_APPLY: Final = "before-first-apply"


def first_managers(obj: Json, api_version: str, field: Field | None, now: str) -> list[Manager]:
    """Who managed an object that has no managed fields before its first apply."""
    main = without_system(changes(field, empty_object(field), obj)[0], status=True)
    return [Manager(BEFORE_FIRST_APPLY, UPDATE, api_version, "", now, main)] if main else []


def check_applied(applied: Json, field: Field | None, shown: str) -> None:
    """Refuse a configuration the schema does not know."""
    problems = check_declared(field, applied)
    if problems:
        text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {one}" for one in problems)
        raise status.plain_error(f"failed to create typed patch object ({shown}): {text}")


def apply(
    live: Json,
    applied: Json,
    field: Field | None,
    managers: list[Manager],
    applier: Manager,
    *,
    force: bool,
    handed_over: Set[tuple[Step, ...]] = frozenset(),
) -> Json:
    """The object after an apply, with its managed fields. Refuses conflicts unless ``force`` takes fields over.

    ``handed_over``: fields that may be taken from whoever manages them.
    """
    fields = without_system(fields_of(field, applied), status=not applier.subresource)
    if applier.subresource == "status":
        custom = field is None or not field.type_name
        fields = {
            key: below for key, below in fields.items() if key == "f:status" or (key == "f:metadata" and not custom)
        }
    conflicts = _conflicts(live, applied, field, managers, applier, fields)
    refused = [(one, path) for one, path in conflicts if path not in handed_over]
    if refused and not force:
        raise _refused(refused)
    taken: dict[tuple[str, str, str, str], set[tuple[Step, ...]]] = {}
    for manager, path in conflicts:
        taken.setdefault(manager.identity, set()).add(path)
    others = [
        replace(one, fields=without(one.fields or {}, taken[one.identity])) if one.identity in taken else one
        for one in managers
        if one.identity != applier.identity
    ]
    before = next((one for one in managers if one.identity == applier.identity), None)
    result = merged(field, live, applied)
    if before is not None:
        gone = {
            path
            for path in leaves(before.fields or {})
            if not touches(fields, path) and not any(touches(one.fields or {}, path) for one in others)
        }
        result = pruned(field, result, gone) if gone else result
    if result == live:  # nothing was written: nothing says when
        applier = replace(applier, time=before.time if before is not None else "")
    result = {**result, "metadata": dict(result.get("metadata") or {})}
    write_managers(result, [*others, replace(applier, fields=fields)])
    return result


def write_managers(obj: Json, managers: Iterable[Manager]) -> None:
    """Put the entries into an object."""
    if kept := ordered(managers):
        obj["metadata"]["managedFields"] = [manager.as_json() for manager in kept]
    else:
        obj["metadata"].pop("managedFields", None)


def _conflicts(
    live: Json, applied: Json, field: Field | None, managers: list[Manager], applier: Manager, fields: FieldSet
) -> list[tuple[Manager, tuple[Step, ...]]]:
    """Fields that the apply would change and others manage."""
    found = []
    for path in leaves(fields):
        present, value = lookup(field, live, path)
        _, wanted = lookup(field, applied, path)
        if path[-1:] and path[-1].startswith("k:"):
            continue  # being an item is nothing to disagree about
        if present and value == wanted:
            continue
        found += [(one, path) for one in managers if one.identity != applier.identity and has(one.fields or {}, path)]
    return found


def _refused(conflicts: list[tuple[Manager, tuple[Step, ...]]]) -> Refusal:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager.described()}", "field": path_text(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {manager.described()}: {path_text(path)}"
    else:
        lines: dict[str, list[str]] = {}
        for manager, path in conflicts:
            lines.setdefault(manager.described(), []).append(f"- {path_text(path)}")
        text = "\n".join(line for name in sorted(lines) for line in (f"conflicts with {name}:", *lines[name]))
        message = f"Apply failed with {len(conflicts)} conflicts: {text}"
    return Refusal(409, "Conflict", message, {"causes": causes})
