"""Sets of fields as managed fields store them (FieldsV1): nested objects whose keys are path elements.

``f:name`` is a field, ``k:{"name":"a"}`` an item of a list with keys, ``v:"x"`` an item of a set. ``.`` marks the
containing element as a member itself if it also has children. An element with an empty object is a leaf. Implements the
parts of structured-merge-diff that built-in kinds and CRDs need, except that list items keep their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver.schemas import Field, FieldType

Json: TypeAlias = dict[str, Any]
#: A nested set of fields.
FieldSet: TypeAlias = dict[str, Any]
Step: TypeAlias = str

SELF: Final = "."
_SYSTEM: Final = frozenset(
    ("creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid")
)


def is_keyed_list(field: Field | None, value: Any) -> bool:
    """Return whether a list identifies its items by keys."""
    return isinstance(value, list) and field is not None and field.list_type == "map" and bool(field.list_map_keys)


def is_set(field: Field | None, value: Any) -> bool:
    """Return whether a list is a set of scalars."""
    return isinstance(value, list) and field is not None and field.list_type == "set"


def is_granular(field: Field | None, value: Any) -> bool:
    """Return whether the fields of an object are owned individually."""
    return isinstance(value, dict) and (field is None or field.map_type != "atomic")


def item_step(field: Field, item: Mapping[str, Any]) -> Step:
    """Return the path element of an item in a list with keys. A missing key gets its default from the schema."""
    keys: Json = {}
    for name in field.list_map_keys:
        if name in item:
            keys[name] = item[name]
        elif field.items is not None and (child := field.items.properties.get(name)) is not None:
            default = child.schema.get("default")
            if default is not None:
                keys[name] = default
    return "k:" + json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def value_step(value: Any) -> Step:
    """Return the path element of an item in a set."""
    return "v:" + json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def children(field: Field | None, value: Any) -> Iterator[tuple[Step, Field | None, Any]]:
    """Yield the path element, type and value of each child. Atomic values have no children."""
    if is_granular(field, value):
        for name, item in value.items():
            yield f"f:{name}", field.child(name) if field is not None else None, item
    elif is_keyed_list(field, value) and field is not None:
        for item in value:
            if isinstance(item, dict):
                yield item_step(field, item), field.items, item
    elif is_set(field, value):
        for item in value:
            yield value_step(item), None, item


# ---- making sets


def fields_of(field: Field | None, value: Any, *, parts: bool = False) -> FieldSet:
    """Return the leaves of a value and the items of its lists. With ``parts``, non-empty objects and lists are members
    too."""
    found: FieldSet = {}
    for step, child, item in children(field, value):
        below = fields_of(child, item, parts=parts)
        if below and (parts or step.startswith("k:")):
            below = {SELF: {}, **below}
        found[step] = below
    return found


def empty_object(field: Field | None) -> Json:
    """Return an empty object of a type, with the parts that always exist and therefore have no manager."""
    if field is None or not field.type_name:
        return {"metadata": {}}
    return _skeleton(field)


@cache
def _skeleton(field: Field) -> Json:
    found: Json = {}
    for name, child in field.properties.items():
        if child.schema.get("default") == {} and child.type is FieldType.OBJECT:
            found[name] = _skeleton(child)
        elif name in field.required and child.type in (FieldType.LIST, FieldType.MAP):
            found[name] = None
    return found


def without_system(fields: FieldSet, *, status: bool) -> FieldSet:
    """Return the set without system fields, which have no manager. ``status`` also removes the status."""
    found = {key: value for key, value in fields.items() if key not in ("f:apiVersion", "f:kind")}
    metadata = found.get("f:metadata")
    if metadata:
        kept = {key: value for key, value in metadata.items() if key.removeprefix("f:") not in _SYSTEM}
        found["f:metadata"] = {} if kept.keys() == {SELF} else kept
    if not found.get("f:metadata"):
        found.pop("f:metadata", None)
    if status:
        found.pop("f:status", None)
    return found


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the union of two sets."""
    found = dict(one)
    for key, below in other.items():
        found[key] = union(found[key], below) if key in found else below
    return found


def leaves(fields: FieldSet, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield the paths of the members in a real server's order: all members of a level before deeper ones."""
    steps = sorted(key for key in fields if key != SELF)
    for key in steps:
        if not fields[key] or SELF in fields[key]:
            yield (*path, key)
    for key in steps:
        if fields[key]:
            yield from leaves(fields[key], (*path, key))


def has(fields: FieldSet, path: tuple[Step, ...]) -> bool:
    """Return whether the set contains the path."""
    found: Any = fields
    for step in path:
        if step not in found:
            return False
        found = found[step]
    return not found or SELF in found


def touches(fields: FieldSet, path: tuple[Step, ...]) -> bool:
    """Return whether a path, or anything below it, is a member."""
    found: Any = fields
    for step in path:
        if step not in found:
            return False
        found = found[step]
    return True


def without(fields: FieldSet, paths: set[tuple[Step, ...]], path: tuple[Step, ...] = ()) -> FieldSet:
    """Return the set without these members."""
    found: FieldSet = {}
    for key, below in fields.items():
        here = path if key == SELF else (*path, key)
        if key == SELF or not below:
            if here not in paths:
                found[key] = below
        elif kept := without(below, paths, here):
            found[key] = {} if kept.keys() == {SELF} else kept
        elif here not in paths and SELF in below and not any(one[: len(here)] == here for one in paths):
            found[key] = {}
    return found


# ---- comparing and changing values


def lookup(field: Field | None, value: Any, path: tuple[Step, ...]) -> tuple[bool, Any]:
    """Return whether a path exists in a value, and the value at the path."""
    for step in path:
        for name, child, item in children(field, value):
            if name == step:
                field, value = child, item
                break
        else:
            return False, None
    return True, value


def changes(field: Field | None, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    """Return the fields that ``new`` adds or changes, and the fields of ``old`` that it removes."""
    if isinstance(old, dict) and isinstance(new, dict) and (field is None or field.map_type != "atomic"):
        return _map_changes(field, old, new)
    touched: FieldSet = {}
    gone: FieldSet = {}
    before = {step: (child, item) for step, child, item in children(field, old)}
    after = {step: (child, item) for step, child, item in children(field, new)}
    for step, (child, item) in after.items():
        if step not in before:
            # A new object or list is a member itself, in addition to its contents.
            touched[step] = _with_parts(child, item)
        elif before[step][1] != item:
            deeper, less = changes(child, before[step][1], item)
            if deeper or less:
                if deeper:
                    touched[step] = deeper
                if less:
                    gone[step] = less
            elif not _inner(child, item) or not _inner(child, before[step][1]):
                touched[step] = {}
    for step, (child, item) in before.items():
        if step not in after:
            gone[step] = _with_parts(child, item)
    return touched, gone


def _map_changes(field: Field | None, old: Json, new: Json) -> tuple[FieldSet, FieldSet]:
    """Return the changes between two objects. A fast path for the most frequent case, without the bookkeeping for
    lists."""
    touched: FieldSet = {}
    gone: FieldSet = {}
    for name, item in new.items():
        if name not in old:
            touched[f"f:{name}"] = _with_parts(field.child(name) if field is not None else None, item)
        elif (before := old[name]) != item:
            child = field.child(name) if field is not None else None
            deeper, less = changes(child, before, item)
            if deeper:
                touched[f"f:{name}"] = deeper
            if less:
                gone[f"f:{name}"] = less
            if not deeper and not less and not (_inner(child, item) and _inner(child, before)):
                touched[f"f:{name}"] = {}
    for name, item in old.items():
        if name not in new:
            gone[f"f:{name}"] = _with_parts(field.child(name) if field is not None else None, item)
    return touched, gone


def _with_parts(field: Field | None, value: Any) -> FieldSet:
    below = fields_of(field, value, parts=True)
    return {SELF: {}, **below} if below else {}


def _inner(field: Field | None, value: Any) -> bool:
    return is_granular(field, value) or is_keyed_list(field, value) or is_set(field, value)


def merged(field: Field | None, live: Any, applied: Any) -> Any:
    """Return ``live`` merged with the applied configuration. Neither argument is changed."""
    if is_granular(field, applied):
        found = dict(live) if isinstance(live, dict) else {}
        for name, item in applied.items():
            child = field.child(name) if field is not None else None
            found[name] = merged(child, found.get(name), item)
        return found
    if is_keyed_list(field, applied) and isinstance(live, list) and field is not None:
        wanted = {item_step(field, item): item for item in applied}
        kept = []
        for item in live:
            step = item_step(field, item)
            kept.append(merged(field.items, item, wanted.pop(step)) if step in wanted else item)
        return kept + list(wanted.values())
    if is_set(field, applied) and isinstance(live, list):
        return live + [item for item in applied if item not in live]
    return applied


def pruned(field: Field | None, value: Any, gone: set[tuple[Step, ...]], path: tuple[Step, ...] = ()) -> Any:
    """Return ``value`` without these paths. Objects and lists that become empty are removed too."""
    if not _inner(field, value):
        return value
    kept: list[tuple[Step, Any]] = []
    changed = False
    for step, child, item in children(field, value):
        here = (*path, step)
        if here in gone:
            changed = True
            continue
        below = pruned(child, item, gone, here)
        if below != item:
            changed = True
            if below in ({}, []):
                continue
        kept.append((step, below))
    if not changed:
        return value
    if isinstance(value, dict):
        return {step.removeprefix("f:"): item for step, item in kept}
    return [item for _, item in kept]


def check_declared(field: Field | None, value: Any, path: str = "") -> list[str]:
    """Return an error for each field of an applied configuration that the schema does not declare."""
    found: list[str] = []
    if isinstance(value, dict) and field is not None:
        if field.type not in (FieldType.OBJECT, FieldType.MAP, FieldType.ANY):
            return [f"{path}: expected {_word(field)}, got {_shown(value)}"]
        for name, item in value.items():
            child = field.child(name)
            if child is None and field.type is FieldType.OBJECT and not field.preserves_unknown:
                found.append(f"{path}.{name}: field not declared in schema")
            elif child is not None and item is not None:
                found += check_declared(child, item, f"{path}.{name}")
    elif isinstance(value, list) and field is not None:
        if field.type not in (FieldType.LIST, FieldType.ANY):
            return [f"{path}: expected {_word(field)}, got {_shown(value)}"]
        found += _list_problems(field, value, path)
    elif field is not None and value is not None and field.type in (FieldType.OBJECT, FieldType.MAP, FieldType.LIST):
        return [f"{path}: expected {_word(field)}, got {_shown(value)}"]
    elif field is not None and value is not None and (wrong := _wrong_scalar(field, value)):
        return [f"{path}: {wrong}"]
    return found


def _wrong_scalar(field: Field, value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    match field.type:
        case FieldType.STRING if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{shown}}}"
        case FieldType.BOOLEAN if not isinstance(value, bool):
            return f"expected boolean, got &value.valueUnstructured{{Value:{shown}}}"
        case FieldType.INTEGER | FieldType.NUMBER if isinstance(value, bool | str):
            return f"expected numeric (int or float), got {'bool' if isinstance(value, bool) else 'string'}"
    return ""


def _list_problems(field: Field, value: list[Any], path: str) -> list[str]:
    found: list[str] = []
    seen: set[Step] = set()
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if field.list_type == "set":
            if (step := value_step(item)) in seen:
                found.append(f"{path}: duplicate entries for key [={step[2:]}]")
            seen.add(step)
        elif field.list_type == "map" and isinstance(item, dict):
            step = item_step(field, item)
            keys = json.loads(step[2:])
            place = f"{path}{_keys_text(keys)}"
            missing = [name for name in field.list_map_keys if name not in keys]
            if missing:
                omits = f"{path}: element {index}: associative list with keys has an element that omits"
                if keys:
                    found.append(f'{omits} key field "{missing[0]}" (and doesn\'t have default value)')
                else:
                    names = " ".join(f'"{name}"' for name in missing)
                    why = "(and doesn't have default values for any key fields)"
                    found.append(f"{omits} all key fields [{names}] {why}")
                continue
            if step in seen:
                found.append(f"{path}: duplicate entries for key {_keys_text(keys)}")
            seen.add(step)
        if field.items is not None:
            found += check_declared(field.items, item, place)
    return found


def _keys_text(keys: Json) -> str:
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(keys.items()))
    return f"[{pairs}]"


def _word(field: Field) -> str:
    return {FieldType.OBJECT: "map", FieldType.MAP: "map", FieldType.LIST: "list"}.get(field.type, str(field.type))


def _shown(value: Any) -> str:
    return f"&{{{value}}}"


def path_text(path: tuple[Step, ...]) -> str:
    """Return a path as shown in conflict messages: ``.spec.containers[name="a"].image``."""
    parts = []
    for step in path:
        kind, text = step[:2], step[2:]
        if kind == "f:":
            parts.append(f".{text}")
        elif kind == "k:":
            parts.append(_keys_text(json.loads(text)))
        else:
            parts.append(f"[={text}]")
    return "".join(parts)
