"""Managed fields: which client wrote each field of an object. Pure.

Every write is recorded, as on a real server, but managed fields are computed only when a client reads them: a creation
is kept as the requested bytes, an update as the fields it touched. Recording therefore costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import orjson

from app.sandbox.apiserver.fieldsets import FieldSet, changes, empty_object, leaves, union, without, without_system
from app.sandbox.apiserver.schemas import Field

Json: TypeAlias = dict[str, Any]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
#: Name of the manager into which the oldest update managers are merged, and the number of update managers kept.
ANCIENT: Final = "ancient-changes"
_MAX_UPDATERS: Final = 10
#: Maximum number of recorded updates. When it is reached, the managed fields are computed.
_MAX_CHANGES: Final = 16
_NOTHING: Final = b"{}"
_MAX_KNOWN: Final = 1_000
_known: Final[dict[bytes, bytes]] = {}


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
        """Return what identifies an entry: name, operation, API version and subresource."""
        return (self.name, self.operation, self.api_version, self.subresource)

    def as_json(self) -> Json:
        """Return the entry as shown in objects."""
        found: Json = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            found["time"] = self.time
        found["fieldsType"] = "FieldsV1"
        found["fieldsV1"] = self.fields or {}
        if self.subresource:
            found["subresource"] = self.subresource
        return found

    def described(self) -> str:
        """Return the name of the entry in conflict messages."""
        found = f'"{self.name}"'
        if self.subresource:
            found += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            found += f" using {self.api_version}"
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """An update: its manager, the fields it added or changed, and the fields it removed (both as JSON).

    Equal field sets share their bytes, because most updates of a kind touch one of a few sets.
    """

    manager: Manager
    touched: bytes
    gone: bytes


class Managed:
    """The managers of one version of an object. Immutable: a write creates a new Managed."""

    __slots__ = ("_changes", "_created", "_managers", "_shown")

    def __init__(
        self,
        managers: Sequence[Manager] = (),
        created: tuple[Manager, Field | None, bytes, bool] | None = None,
        pending: tuple[Change, ...] = (),
    ) -> None:
        self._managers = tuple(managers)
        self._created = created
        self._changes = pending
        self._shown: list[Json] | None = None

    @classmethod
    def created(cls, manager: Manager, field: Field | None, asked: bytes, *, has_status: bool) -> Managed:
        """Record a new object as requested. ``has_status``: its status is written through a subresource."""
        return cls((), (manager, field, asked, has_status))

    def changed(self, change: Change) -> Managed:
        """Record an update."""
        pending = self._changes
        if pending and _repeats(pending[-1], change):
            pending = pending[:-1]
        if len(pending) >= _MAX_CHANGES:
            return Managed(self.managers, None, (change,))
        return Managed(self._managers, self._created, (*pending, change))

    @property
    def creator(self) -> str:
        """Return the manager that created the object, or "" if the object has been updated since or its creation was
        not recorded."""
        return self._created[0].name if self._created is not None and not self._changes else ""

    @property
    def managers(self) -> tuple[Manager, ...]:
        """Return the entries in display order."""
        if self._created is not None or self._changes:
            found = list(self._managers)
            if self._created is not None:
                manager, field, asked, has_status = self._created
                touched, _ = changes(field, empty_object(field), orjson.loads(asked))
                found = [replace(manager, fields=without_system(touched, status=has_status))]
            for change in self._changes:
                found = _after(found, change)
            self._managers, self._created, self._changes = ordered(found), None, ()
        return self._managers

    def as_json(self) -> list[Json]:
        """Return the entries as shown in objects. Must not be modified."""
        if self._shown is None:
            self._shown = [one.as_json() for one in self.managers]
        return self._shown

    def same(self, other: Managed | None) -> bool:
        """Return whether the same managers own the same fields, whatever the history."""
        if other is None or self is other:
            return self is other
        mine, theirs = ({one.identity: one.fields for one in each.managers} for each in (self, other))
        return mine == theirs


def _repeats(last: Change, change: Change) -> bool:
    """Return whether a change repeats the previous one."""
    return (
        last.manager.identity == change.manager.identity
        and last.gone == change.gone == _NOTHING
        and last.touched == change.touched
    )


def _after(managers: Iterable[Manager], change: Change) -> list[Manager]:
    """Return the entries after an update. Its manager then owns the touched fields; removed fields have no owner."""
    touched = orjson.loads(change.touched)
    gone = set(leaves(orjson.loads(change.gone)))
    paths = gone | set(leaves(touched))
    found, own = [], None
    for one in managers:
        if one.identity == change.manager.identity:
            own = replace(one, fields=without(one.fields or {}, gone) if gone else one.fields)
        else:
            found.append(replace(one, fields=without(one.fields or {}, paths)) if paths else one)
    if touched:
        fields = union(own.fields or {}, touched) if own is not None else touched
        own = replace(change.manager, fields=fields)
    if own is not None:
        found.append(own)
    return _capped(found)


def _capped(managers: list[Manager]) -> list[Manager]:
    updaters = [one for one in managers if one.operation == UPDATE and not one.subresource]
    if len(updaters) <= _MAX_UPDATERS:
        return managers
    oldest = ordered(updaters)[: len(updaters) - _MAX_UPDATERS + 1]
    fields: FieldSet = {}
    for one in oldest:
        fields = union(fields, one.fields or {})
    ancient = Manager(ANCIENT, UPDATE, oldest[0].api_version, "", oldest[-1].time, fields)
    return [*(one for one in managers if one not in oldest), ancient]


def ordered(managers: Iterable[Manager]) -> tuple[Manager, ...]:
    """Return the managers that own at least one field, sorted: applies first, then by time and name."""
    kept = [one for one in managers if one.fields]
    kept.sort(key=lambda one: (one.operation, one.time, one.name, one.api_version, one.subresource))
    return tuple(kept)


def read_managers(obj: Mapping[str, Any]) -> list[Manager]:
    """Return the entries of an object."""
    return managers_of(obj["metadata"].get("managedFields"))


def managers_of(entries: Iterable[Mapping[str, Any]] | None) -> list[Manager]:
    """Parse managed fields. Returns an empty list if an entry is invalid."""
    found = [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            entry.get("fieldsV1") or {},
        )
        for entry in entries or ()
    ]
    return found if all(one.operation in (APPLY, UPDATE) for one in found) else []


def with_managed(obj: Json, managed: Managed | None) -> Json:
    """Return the object with its managed fields."""
    if managed is None or not (entries := managed.as_json()):
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def with_creator(obj: Json, managed: Managed | None) -> Json:
    """Return a new object with its creator as the only manager, without fields."""
    if managed is None or not managed.creator:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [{"manager": managed.creator}]}}


def change_of(
    old: Mapping[str, Any], new: Mapping[str, Any], field: Field | None, manager: Manager, *, has_status: bool
) -> Change | None:
    """Return the change made by an update, or None if no managed field changed."""
    skipped = ("apiVersion", "kind", "metadata", "status" if has_status and not manager.subresource else "")
    touched: FieldSet = {}
    gone: FieldSet = {}
    for name in (*new, *(key for key in old if key not in new)):
        if name in skipped or old.get(name) == new.get(name):
            continue
        added, removed = changes(field, _part(old, name), _part(new, name))
        touched.update(added)
        gone.update(removed)
    if metadata := _metadata_change(field, old["metadata"], new["metadata"]):
        added, removed = metadata
        touched.update(without_system(added, status=False))
        gone.update(without_system(removed, status=False))
    return Change(manager, _shared(touched), _shared(gone)) if touched or gone else None


def _shared(fields: FieldSet) -> bytes:
    encoded = orjson.dumps(fields) if fields else _NOTHING
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    return _known.setdefault(encoded, encoded)


def _part(obj: Mapping[str, Any], name: str) -> Json:
    return {name: obj[name]} if name in obj else {}


_MANAGED_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers", "generateName")


def _metadata_change(field: Field | None, old: Json, new: Json) -> tuple[FieldSet, FieldSet] | None:
    differing = [name for name in _MANAGED_METADATA if old.get(name) != new.get(name)]
    if not differing:
        return None
    before, after = ({name: one[name] for name in differing if name in one} for one in (old, new))
    return changes(field, {"metadata": before}, {"metadata": after})
