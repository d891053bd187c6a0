"""Server-side apply: the request, the merge, and the annotation of client-side apply."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from app.kube.fielderrors import required
from app.sandbox.apiserver import status
from app.sandbox.apiserver.bodies import parse_yaml
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
from app.sandbox.apiserver.managing import APPLY, UPDATE, Manager, ordered, read_managers
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.steps import fresh
from app.sandbox.apiserver.storage import Core
from app.sandbox.apiserver.typecheck import Reader, WrongType
from app.sandbox.apiserver.writing import Transform

# Server-side apply: managed fields, conflicts between managers, and removal of fields that no manager applies. If an
# object has no managed fields (a client has cleared them), its fields belong to ``before-first-apply``, as on a server
# whose stored object predates server-side apply. Pure.

Json: TypeAlias = dict[str, Any]

BEFORE_FIRST_APPLY: Final = "before-first-apply"


def first_managers(obj: Json, api_version: str, field: Field | None, now: str) -> list[Manager]:
    """Return the managers to assume before the first apply to an object without managed fields."""
    main = without_system(changes(field, empty_object(field), obj)[0], status=True)
    return [Manager(BEFORE_FIRST_APPLY, UPDATE, api_version, "", now, main)] if main else []


def check_applied(applied: Json, field: Field | None, shown: str) -> None:
    """Reject a configuration with fields that are not in the schema."""
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
    """Return the object after an apply, with its managed fields. Rejects conflicts unless ``force`` is set, which takes
    over the fields.

    ``handed_over`` holds fields that may be taken over from any manager.
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
    if result == live:  # nothing was written, so the timestamp stays
        applier = replace(applier, time=before.time if before is not None else "")
    result = {**result, "metadata": dict(result.get("metadata") or {})}
    write_managers(result, [*others, replace(applier, fields=fields)])
    return result


def write_managers(obj: Json, managers: Iterable[Manager]) -> None:
    """Set the managed fields of an object."""
    if kept := ordered(managers):
        obj["metadata"]["managedFields"] = [manager.as_json() for manager in kept]
    else:
        obj["metadata"].pop("managedFields", None)


def _conflicts(
    live: Json, applied: Json, field: Field | None, managers: list[Manager], applier: Manager, fields: FieldSet
) -> list[tuple[Manager, tuple[Step, ...]]]:
    """Return the fields that the apply would change and that other managers own, with their managers."""
    found = []
    for path in leaves(fields):
        present, value = lookup(field, live, path)
        _, wanted = lookup(field, applied, path)
        if path[-1:] and path[-1].startswith("k:"):
            continue  # the existence of an item cannot conflict
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


# Migration from client-side to server-side apply, using the annotation that ``kubectl apply`` writes. Pure.
#
# Source: apimachinery/pkg/util/managedfields/internal/{lastappliedmanager,lastappliedupdater}.go.

#: Field manager of ``kubectl apply --server-side``.
KUBECTL: Final = "kubectl"
_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def last_applied_fields(live: Json, field: Field | None) -> frozenset[tuple[Step, ...]]:
    """Return the fields that are unchanged since the last client-side apply. kubectl may take them over from any
    manager."""
    try:
        applied = orjson.loads((live["metadata"].get("annotations") or {}).get(_ANNOTATION, "null"))
    except orjson.JSONDecodeError:
        return frozenset()
    if not isinstance(applied, dict):
        return frozenset()
    return frozenset(
        path for path in leaves(fields_of(field, applied)) if lookup(field, applied, path) == lookup(field, live, path)
    )


def keep_last_applied(obj: Json, applied: Json) -> None:
    """Update the last-applied annotation if present, so that clients can return to client-side apply."""
    annotations = obj["metadata"].get("annotations") or {}
    if _ANNOTATION not in annotations:
        return
    metadata = dict(applied["metadata"])
    others = {key: text for key, text in (metadata.pop("annotations", None) or {}).items() if key != _ANNOTATION}
    if others:
        metadata["annotations"] = others
    text = orjson.dumps({**applied, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode()
    obj["metadata"]["annotations"] = {**annotations, _ANNOTATION: f"{text}\n"}


def apply_transform(core: Core, call: Call, field: Field | None, reader: Reader | None) -> Transform:
    """Return a function that applies the request to an object, or to None to create it. Rejects invalid requests."""
    if not call.query.get("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise status.invalid_kind("meta.k8s.io", "PatchOptions", "", [error])
    applied = _configuration(call)
    shown = _shown(call, applied)
    force = call.query.get("force", "").lower() in ("1", "t", "true")
    manager = Manager(call.query["fieldManager"], APPLY, call.resource.api_version, call.subresource, core.now())

    def change(old: Json | None) -> Json:
        live: Json = fresh(old) if old is not None else {}
        live.setdefault("metadata", {})
        if old is None:
            if uid := applied["metadata"].get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise status.conflict(call.resource, call.name, why)
            applied["metadata"].pop("resourceVersion", None)
            managers: list[Manager] = []
        elif "managedFields" in live["metadata"]:
            managers = read_managers(live)
        else:
            managers = first_managers(live, call.resource.api_version, field, core.now())
        by_kubectl = manager.name == KUBECTL and not manager.subresource
        handed_over = last_applied_fields(live, field) if by_kubectl else frozenset()
        found = apply(live, applied, field, managers, manager, force=force, handed_over=handed_over)
        if by_kubectl:
            keep_last_applied(found, applied)
        found["kind"], found["apiVersion"] = call.resource.kind, call.resource.api_version
        if reader is None:
            return found
        try:
            checked, _ = reader.read(fresh(found))
        except WrongType as error:
            raise status.plain_error(f"failed to create typed patch object ({shown}): {error}") from None
        return dict(checked)

    check_applied(applied, field, shown)
    return change


def _configuration(call: Call) -> Json:
    applied, repeated = parse_yaml(call.body)
    if repeated and call.field_validation == "Strict":
        lines = "".join(f"\n  {line}" for line in repeated)
        why = f"error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        raise status.bad_request(f"error strict decoding YAML: {why}")
    if call.field_validation == "Warn":
        call.warnings.extend(repeated)
    if not isinstance(applied, dict):
        raise status.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{'array' if isinstance(applied, list) else 'string'} into Go value of type map[string]interface {{}}"
        )
    resource = call.resource
    kind, api_version = applied.get("kind") or "", applied.get("apiVersion") or ""
    if kind != resource.kind or not api_version or api_version.rpartition("/")[0] != resource.group:
        named = api_version if "/" in api_version else f"/{api_version}"
        raise status.bad_request(f"invalid object type: {named}, Kind={kind}")
    if api_version != resource.api_version:
        if resource.custom is None:
            named = api_version if "/" in api_version else f"/{api_version}"
            raise status.bad_request(f"invalid object type: {named}, Kind={kind}")
        raise status.bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {api_version}, expected: "
            f"{resource.api_version}"
        )
    metadata = applied.get("metadata")
    if metadata is None:
        metadata = applied["metadata"] = {}
    if not isinstance(metadata, dict):
        raise status.bad_request("metadata must be an object")
    if metadata.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    name = metadata.get("name") or ""
    if name != call.name:
        raise status.name_mismatch(name, call.name)
    namespace = metadata.get("namespace")
    if namespace and namespace != call.namespace:
        raise status.namespace_mismatch()
    metadata.pop("creationTimestamp", None)
    return applied


def _shown(call: Call, applied: Json) -> str:
    """Return the name of the applied configuration in messages."""
    place = f"{applied['metadata'].get('namespace') or ''}/{call.name}"
    resource = call.resource
    group_version = resource.api_version if resource.group else f"/{resource.version}"
    return f"{place}; {group_version}, Kind={resource.kind}"
