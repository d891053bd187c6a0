"""Custom resources: a CustomResourceDefinition adds resources to the registry; its deletion deletes their objects.

Source: Kubernetes 1.34, apiextensions-apiserver: pkg/apiserver, pkg/controller/{establish,finalizer,status}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from app.api.structural import unknown_fields
from app.kube.fielderrors import FieldError, Path, quote
from app.kube.jsonvalues import json_copy
from app.sandbox.apiserver.customvalidation import fill_defaults, has_rules, normalized, rule_errors, schema_errors
from app.sandbox.apiserver.discovery import ServedResource, custom_resources, version_order
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.scaling import ScalePaths, replica_errors
from app.sandbox.apiserver.schemas import Field, custom_field, object_meta
from app.sandbox.apiserver.storage import Collection, Core, Entry, Verb
from app.sandbox.apiserver.strategies import Strategy, new_errors
from app.sandbox.apiserver.tables.table import TableKind, custom_table
from app.sandbox.apiserver.typecheck import Checker, Reader

Json: TypeAlias = dict[str, Any]

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
#: Top-level schema keywords that do not relate fields to one another.
_OF_ONE_FIELD: Final = frozenset({"type", "description", "properties", "required"})


@dataclass(frozen=True)
class CustomVersion:
    """One served version of a custom resource."""

    stored_api_version: str
    list_kind: str
    strategy: Strategy
    field: Field
    reader: Reader
    table: TableKind
    scale: ScalePaths | None
    selectable_fields: tuple[str, ...]
    #: ``spec.conversion.webhook``, or None if the versions differ only in name.
    conversion: Mapping[str, Any] | None
    #: Warning to clients that request this version, or "" if it is not deprecated.
    deprecation: str


class CustomReader:
    """Decodes custom objects: checks the types of the metadata, and prunes the rest according to the structural
    schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._metadata = Checker(object_meta())
        self._embeds = b'"x-kubernetes-embedded-resource":true' in orjson.dumps(schema)

    def read(self, value: Any) -> tuple[Any, list[str]]:
        """Return the object without unknown fields and without nulls that the schema does not allow, and the paths of
        the unknown fields."""
        value = _whole_numbers(value)
        unknown = [] if self._schema.get("x-kubernetes-preserve-unknown-fields") else unknown_fields(
            dict(self._schema), value
        )  # fmt: skip
        found = normalized(self._schema, value)
        inside = _prune_embedded(self._schema, found, Path(), top=True) if self._embeds else []
        metadata, dropped = self._metadata.read(found.get("metadata") or {})
        return {**found, "metadata": dict(metadata)}, [
            *sorted([*unknown, *(f"metadata.{name}" for name in dropped)]),
            *inside,
        ]


def _prune_embedded(schema: Mapping[str, Any], value: Any, path: Path, *, top: bool = False) -> list[str]:
    """Remove unknown metadata fields of embedded objects in ``value``, and return their paths."""
    gone: list[str] = []
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if schema.get("x-kubernetes-embedded-resource") and isinstance(metadata, dict) and not top:
            unknown = [name for name in metadata if name not in object_meta().properties]
            value["metadata"] = {name: item for name, item in metadata.items() if name not in unknown}
            gone += [str(path.child("metadata").child(name)) for name in unknown]
        properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            child = properties.get(key, values)
            if isinstance(child, Mapping):
                gone += _prune_embedded(child, item, path.child(key))
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            gone += _prune_embedded(schema["items"], item, path.index(index))
    return gone


def _whole_numbers(value: Any) -> Any:
    """Convert numbers without a fraction to integers, however they were written."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case dict():
            return {key: _whole_numbers(item) for key, item in value.items()}
        case list():
            return [_whole_numbers(item) for item in value]
    return value


def custom_rows(crd: Json) -> list[ResourceType]:
    """Return the resources of a CustomResourceDefinition, one per served version."""
    versions = {version["name"]: version for version in crd["spec"]["versions"]}
    return [_row(crd, versions[served.version], served) for served in custom_resources(crd)]


def _row(crd: Json, version: Json, served: ServedResource) -> ResourceType:
    spec = crd["spec"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    conversion = spec.get("conversion") or {}
    scale = (version.get("subresources") or {}).get("scale")
    paths = _scale(scale) if scale is not None else None
    strategy, field, reader = _typed(orjson.dumps(schema), paths)
    custom = CustomVersion(
        stored_api_version=f"{spec['group']}/{stored}",
        list_kind=spec["names"].get("listKind") or f"{served.kind}List",
        strategy=strategy,
        field=field,
        reader=reader,
        table=custom_table(version),
        scale=paths,
        selectable_fields=tuple(one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()),
        conversion=conversion.get("webhook") if conversion.get("strategy") == "Webhook" else None,
        deprecation=_deprecation(spec, version),
    )
    return ResourceType(served, "gr", custom)


@lru_cache(64)
def _typed(raw: bytes, scale: ScalePaths | None) -> tuple[Strategy, Field, CustomReader]:
    """Derive strategy, type and reader from a schema. Cached, because most changes to a definition leave its schemas
    unchanged."""
    schema = orjson.loads(raw)
    return _strategy(schema, scale), custom_field(schema), CustomReader(schema)


def _deprecation(spec: Json, version: Json) -> str:
    if not version.get("deprecated"):
        return ""
    if text := version.get("deprecationWarning"):
        return str(text)
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    order = version_order(name)
    better = [
        one["name"]
        for one in spec["versions"]
        if one.get("served") and not one.get("deprecated") and version_order(one["name"]) < order
    ]
    advice = f"; use {group}/{min(better, key=version_order)} {kind}" if better else ""
    return f"{group}/{name} {kind} is deprecated{advice}"


def _scale(declared: Mapping[str, str]) -> ScalePaths:
    def place(text: str) -> tuple[str, ...]:
        return tuple(text.strip(".").split(".")) if text else ()

    return ScalePaths(
        place(declared.get("specReplicasPath", "")),
        place(declared.get("statusReplicasPath", "")),
        place(declared.get("labelSelectorPath", "")),
    )


def _strategy(schema: Mapping[str, Any], scale: ScalePaths | None) -> Strategy:
    plain = dict(schema)
    parts = {name: one for name, one in (plain.get("properties") or {}).items() if name != "metadata"}
    of_status = {"properties": {name: one for name, one in parts.items() if name == "status"}}

    def default(obj: Json) -> None:
        fill_defaults(plain, obj)

    def default_status(obj: Json) -> None:
        fill_defaults(of_status, obj)

    ruled = has_rules(plain)
    #: Whether fields can be validated independently.
    separable = not ruled and plain.keys() <= _OF_ONE_FIELD

    def errors(obj: Json) -> list[FieldError]:
        bare = {key: value for key, value in obj.items() if key != "metadata"}
        found = schema_errors(plain, bare, Path())
        if scale is not None:
            found += replica_errors(obj, scale)
        # Rules apply only to well-formed objects; transition rules need an old object.
        return found if found or not ruled else rule_errors(plain, obj, None, Path())

    def update_errors(obj: Json, old: Json) -> list[FieldError]:
        if not ruled:
            return []
        plainly = {str(error) for error in rule_errors(plain, obj, None, Path())}
        return [error for error in rule_errors(plain, obj, old, Path()) if str(error) not in plainly]

    def status_errors(obj: Json, old: Json) -> list[FieldError]:
        if separable and not _part_errors(parts, obj, old) and (scale is None or not replica_errors(obj, scale)):
            return []  # the usual case
        found = errors(obj)
        found = new_errors(found, errors(old)) if found else found
        # The status is validated separately, so messages name its fields without the prefix ``status.``.
        return [_status_words(error) for error in found] + update_errors(obj, old)

    return Strategy(
        default=default,
        default_status=default_status,
        errors=errors,
        update_errors=update_errors,
        status_errors=status_errors,
    )


def _part_errors(parts: Mapping[str, Any], obj: Json, old: Json) -> bool:
    """Return whether a changed field is invalid or a field was removed. Errors in unchanged fields are ignored."""
    return not obj.keys() >= old.keys() or any(
        name in parts and old.get(name) is not value and schema_errors(parts[name], value, Path().child(name))
        for name, value in obj.items()
    )


def _status_words(error: FieldError) -> FieldError:
    return replace(error, detail=error.detail.replace(f"{error.field} in body", f"{error.field[7:]} in body", 1))


class CustomResources:
    """Keeps the registry in sync with the CustomResourceDefinitions."""

    def __init__(self, core: Core, changed: Callable[[], None]) -> None:
        self._core = core
        self._changed = changed
        core.storage.listeners.append(self._committed)

    def _committed(self, verb: Verb, collection: Collection, before: Entry | None, after: Entry | None) -> None:
        entry = after if after is not None else before
        if entry is None:
            return
        if collection.name == CRDS:
            crd = entry.obj
            self._core.registry.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
            if verb != "delete" and _is_true(crd, "Established"):
                self._core.registry.add(custom_rows(crd))
                self._core.storage.begin(entry.key)
                self._reread(entry.key, before.obj if before is not None else None, crd)
            self._changed()
            if verb != "delete":
                asyncio.get_running_loop().call_soon(self._settle, entry.key)
        elif verb == "delete" and entry.key:
            crds = self._core.named(CRDS).objects
            if collection.name in crds and crds[collection.name].obj["metadata"].get("deletionTimestamp"):
                asyncio.get_running_loop().call_soon(self._settle, collection.name)

    def _reread(self, name: str, before: Json | None, crd: Json) -> None:
        """Apply the defaults of a new schema to the stored objects, as a real server does when it reads them."""
        stored, known = (_stored_schema(one) if one is not None else None for one in (crd, before))
        if before is None or stored is None or stored == known:
            return

        def defaulted(obj: Json) -> Json:
            found: Json = json_copy(obj)
            fill_defaults(stored, found)
            return found

        self._core.storage.reread(self._core.named(name), defaulted)

    def _settle(self, name: str) -> None:
        """Advance a definition: establish it or, if it is terminating, delete its objects and then the definition."""
        collection = self._core.named(CRDS)
        entry = collection.objects.get(name)
        if entry is None:
            return
        if entry.obj["metadata"].get("deletionTimestamp"):
            self._terminate(collection, entry)
            return
        settled = established(entry.obj, self._core.now(), self._taken(entry))
        if settled != entry.obj:
            self._core.storage.update(collection, entry, settled)

    def _taken(self, entry: Entry) -> list[Json]:
        """Return the names accepted for other definitions in the group."""
        return [
            (other.obj.get("status") or {}).get("acceptedNames") or {}
            for other in self._core.named(CRDS).objects.values()
            if other.key != entry.key and other.obj["spec"]["group"] == entry.obj["spec"]["group"]
        ]

    def _terminate(self, collection: Collection, entry: Entry) -> None:
        """Delete the objects of a terminating definition, then the definition."""
        crd = entry.obj
        if CLEANUP not in (crd["metadata"].get("finalizers") or ()):
            return
        instances = self._core.named(entry.key)
        now = self._core.now()
        for held in list(instances.objects.values()):
            metadata = held.obj["metadata"]
            if not metadata.get("finalizers"):
                self._core.storage.delete(instances, held)
            elif not metadata.get("deletionTimestamp"):
                marked = {**metadata, "deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
                self._core.storage.update(instances, held, {**held.obj, "metadata": marked})
        if instances.objects:
            message = "CustomResource deletion is in progress"
            terminating = _with_condition(crd, "Terminating", "True", "InstanceDeletionInProgress", message, now)
            if terminating != crd:
                self._core.storage.update(collection, entry, terminating)
            return
        finalizers = [one for one in crd["metadata"]["finalizers"] if one != CLEANUP]
        metadata = {key: value for key, value in crd["metadata"].items() if key != "finalizers"}
        if finalizers:
            metadata["finalizers"] = finalizers
            self._core.storage.update(collection, entry, {**crd, "metadata": metadata})
        else:
            self._core.storage.delete(collection, entry, {**crd, "metadata": metadata})


def established(crd: Json, now: str, taken: Sequence[Json] = ()) -> Json:
    """Return a definition with its new status: established unless its names conflict with ``taken``, the names of other
    definitions."""
    status = dict(crd.get("status") or {})
    stored = [version["name"] for version in crd["spec"]["versions"] if version.get("storage")]
    known = status.get("storedVersions") or []
    status["storedVersions"] = known + [name for name in stored if name not in known]
    finalizers = crd["metadata"].get("finalizers") or []
    metadata = crd["metadata"] if CLEANUP in finalizers else {**crd["metadata"], "finalizers": [*finalizers, CLEANUP]}
    status["acceptedNames"], reason, message = accepted_names(
        crd["spec"]["names"], status.get("acceptedNames") or {}, taken
    )
    found = {**crd, "metadata": metadata, "status": status}
    if reason:
        found = _with_condition(found, "NamesAccepted", "False", reason, message, now)
        if _is_true(crd, "Established"):
            return found
        return _with_condition(found, "Established", "False", "NotAccepted", "not all names are accepted", now)
    found = _with_condition(found, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
    message = "the initial names have been accepted"
    return _with_condition(found, "Established", "True", "InitialNamesAccepted", message, now)


def accepted_names(wanted: Json, accepted: Json, taken: Sequence[Json]) -> tuple[Json, str, str]:
    """Return the accepted names of a definition, and the reason and message of the last conflict, or "".

    Source: apiextensions-apiserver/pkg/controller/status/naming_controller.go.
    """
    resources = {name for one in taken for name in (one.get("plural"), one.get("singular"), *one.get("shortNames", ()))}
    kinds = {name for one in taken for name in (one.get("kind"), one.get("listKind"))}
    found = {"kind": "", "plural": "", **accepted}
    reason = message = ""
    for name in ("plural", "singular", "shortNames", "kind", "listKind"):
        if name not in wanted:
            found.pop(name, None)
            continue
        given = wanted[name]
        others = kinds if name in ("kind", "listKind") else resources
        clash = [one for one in (given if isinstance(given, list) else [given]) if one in others]
        if clash and given != accepted.get(name):
            reason, message = f"{name[0].upper()}{name[1:]}Conflict", f"{quote(clash[0])} is already in use"
        else:
            found[name] = given
    found.pop("categories", None)
    return found | ({"categories": wanted["categories"]} if "categories" in wanted else {}), reason, message


def _stored_schema(crd: Json) -> Json:
    stored = next(one for one in crd["spec"]["versions"] if one.get("storage"))
    found: Json = (stored.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _with_condition(crd: Json, kind: str, value: str, reason: str, message: str, now: str) -> Json:
    status = crd.get("status") or {}
    conditions = list(status.get("conditions") or ())
    if any(one["type"] == kind and one["status"] == value for one in conditions):
        return crd
    conditions = [one for one in conditions if one["type"] != kind]
    conditions.append({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now})
    return {**crd, "status": {**status, "conditions": conditions}}


def _is_true(crd: Json, kind: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
