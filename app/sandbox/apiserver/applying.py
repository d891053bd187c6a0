"""Server-side apply: managed fields, conflicts between managers, and what goes when nobody asks for it any more. Pure.

Managed fields are kept from the first apply on. What was written before belongs to whoever wrote it, as far as that is
one manager, else to ``before-first-apply``, as on a server that meets an object from before the time of apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import status
from app.sandbox.apiserver.fieldsets import (
    FieldSet,
    Step,
    changes,
    check_declared,
    fields_of,
    has,
    leaves,
    lookup,
    merged,
    path_text,
    pruned,
    touches,
    union,
    without,
    without_system,
)
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.status import Refusal

Json: TypeAlias = dict[str, Any]
Writers: TypeAlias = Mapping[tuple[str, str], str]

BEFORE_FIRST_APPLY: Final = "before-first-apply"
APPLY: Final = "Apply"
UPDATE: Final = "Update"


@dataclass(frozen=True, slots=True)
class Manager:
    """One entry of the managed fields."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = ""
    fields: FieldSet | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells entries apart."""
        return (self.name, self.operation, self.api_version, self.subresource)

    def as_json(self) -> Json:
        """The entry as objects carry it."""
        found: Json = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            found["time"] = self.time
        found["fieldsType"] = "FieldsV1"
        found["fieldsV1"] = self.fields or {}
        if self.subresource:
            found["subresource"] = self.subresource
        return found

    def described(self) -> str:
        """As conflicts name it."""
        found = f'"{self.name}"'
        if self.subresource:
            found += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            found += f" using {self.api_version}"
        return found


def read_managers(obj: Mapping[str, Any]) -> list[Manager]:
    """The entries an object carries."""
    entries = obj["metadata"].get("managedFields") or ()
    return [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", UPDATE),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            entry.get("fieldsV1") or {},
        )
        for entry in entries
        if entry
    ]


def write_managers(obj: Json, managers: Iterable[Manager]) -> None:
    """Put the entries into an object: applies first, then by time and name."""
    kept = [manager for manager in managers if manager.fields]
    kept.sort(key=lambda one: (one.operation != APPLY, one.time, one.name, one.api_version, one.subresource))
    if kept:
        obj["metadata"]["managedFields"] = [manager.as_json() for manager in kept]
    else:
        obj["metadata"].pop("managedFields", None)


def first_managers(
    obj: Json, writers: Writers | None, api_version: str, field: Field | None, now: str
) -> list[Manager]:
    """Who managed an object before its first apply."""
    # Parts that every object has are nothing anybody added.
    parts: Json = {"metadata": {}, "spec": {}} if field is not None and field.type_name else {"metadata": {}}
    main = without_system(changes(field, parts, obj)[0], status=True)
    names = [(name, time) for (name, subresource), time in (writers or {}).items() if not subresource]
    found = []
    name, time = names[0] if len(names) == 1 else (BEFORE_FIRST_APPLY, now)
    if main:
        found.append(Manager(name, UPDATE, api_version, "", time, main))
    below = fields_of(field, obj).get("f:status")
    reporters = [(name, time) for (name, subresource), time in (writers or {}).items() if subresource == "status"]
    if below and reporters:
        found.append(Manager(reporters[-1][0], UPDATE, api_version, "status", reporters[-1][1], {"f:status": below}))
    return found


def check_applied(applied: Json, field: Field | None, shown: str) -> None:
    """Refuse a configuration the schema does not know."""
    problems = check_declared(field, applied)
    if problems:
        text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {one}" for one in problems)
        raise status.plain_error(f"failed to create typed patch object ({shown}): {text}")


def apply(
    live: Json, applied: Json, field: Field | None, managers: list[Manager], applier: Manager, *, force: bool
) -> Json:
    """The object after an apply, with its managed fields. Refuses conflicts unless ``force`` takes fields over."""
    fields = without_system(fields_of(field, applied), status=not applier.subresource)
    conflicts = _conflicts(live, applied, field, managers, applier, fields)
    if conflicts and not force:
        raise _refused(conflicts)
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
    if before is not None and before.fields == fields and result == live and not conflicts:
        applier = replace(applier, time=before.time)
    result = {**result, "metadata": dict(result.get("metadata") or {})}
    write_managers(result, [*others, replace(applier, fields=fields)])
    return result


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


def after_update(old: Json, new: Json, field: Field | None, manager: Manager) -> None:
    """Note in ``new`` who manages what after an ordinary write to an object that is managed."""
    given = new["metadata"].get("managedFields")
    managers = read_managers(old) if given is None else read_managers(new)
    if given is not None and not managers:
        new["metadata"].pop("managedFields", None)  # an empty list takes the managed fields away
        return
    touched, gone = changes(field, old, new)
    touched = without_system(touched, status=not manager.subresource)
    gone = without_system(gone, status=not manager.subresource)
    paths = set(leaves(touched)) | set(leaves(gone))
    found = []
    own: FieldSet = {}
    for one in managers:
        if one.identity == manager.identity:
            own = without(one.fields or {}, set(leaves(gone)))
        else:
            found.append(replace(one, fields=without(one.fields or {}, paths)) if paths else one)
    if touched:
        own = union(own, touched)
        found.append(replace(manager, fields=own))
    elif own:
        before = next(one for one in managers if one.identity == manager.identity)
        found.append(replace(before, fields=own))
    write_managers(new, found)
