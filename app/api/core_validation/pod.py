"""Containers, init containers and volumes as one Pod: what is checked between them, and the order of the errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.api.core_defaults import default_container, default_volume
from app.api.core_validation.containers import container_errors, host_port_errors, init_container_errors
from app.api.core_validation.volumes import volume_errors
from app.api.gocore import container_json
from app.api.gojson import GoType, GoTypeError, go_value
from app.api.jsonvalue import json_copy
from app.kube.fielderrors import FieldError, Path, duplicate, type_invalid

_Objects = Sequence[Mapping[str, Any]]


def pod_errors(containers: _Objects, init_containers: _Objects, volumes: _Objects, path: Path) -> list[FieldError]:
    """Everything wrong with the lists at ``path`` (such as ``spec``), as a Pod with restartPolicy Always has them.

    Defaults are filled in on a copy, startup probes included, so what is left out is never an error. Either list of
    containers may be empty.
    """
    at, init_at = path.child("containers"), path.child("initContainers")
    lists = ((at, containers), (init_at, init_containers), (path.child("volumes"), volumes))
    mistyped = [error for where, items in lists for error in _list_errors(where, items)]
    if mistyped:
        return mistyped
    errors, sources = volume_errors([_defaulted_volume(volume) for volume in volumes], path.child("volumes"))
    try:
        regular, inits = _typed(containers, at), _typed(init_containers, init_at)
    except GoTypeError as error:
        field, _, reason = str(error).partition(": ")
        return [*errors, type_invalid(field, "", reason)]
    names: set[str] = set()
    for index, container in enumerate(regular):
        errors += container_errors(container, sources, at.index(index))
        errors += _name_errors(container, names, at.index(index))
    errors += host_port_errors(regular, at)
    for index, container in enumerate(inits):
        errors += init_container_errors(container, sources, init_at.index(index))
        errors += _name_errors(container, names, init_at.index(index))
        # Init containers run one by one, so only ports of the same one can clash.
        errors += host_port_errors([container], init_at)
    return errors


def _list_errors(path: Path, items: Any) -> list[FieldError]:
    """What is no list of objects: a template is of any shape where nobody has checked it."""
    if not isinstance(items, Sequence) or isinstance(items, str):
        return [type_invalid(path, "", "expected a list")]
    return [
        type_invalid(path.index(index), "", "expected an object")
        for index, item in enumerate(items)
        if not isinstance(item, Mapping)
    ][:1]


def _name_errors(container: Mapping[str, Any], names: set[str], path: Path) -> list[FieldError]:
    name = container["name"]
    if name in names:
        return [duplicate(path.child("name"), name)]
    if name:
        names.add(name)
    return []


def _defaulted_volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json_copy(dict(volume))
    default_volume(copied, every=True)
    return copied


def _typed(containers: _Objects, path: Path) -> list[dict[str, Any]]:
    """The containers as Go would print them: every field of its type, empty ones left out."""
    typed = []
    for index, container in enumerate(containers):
        # Once before defaulting, which passes over what has the wrong type.
        copied = json_copy(container_json(container, str(path.index(index))))
        default_container(copied, startup_probe=True)
        typed.append(container_json(copied, str(path.index(index))))
    return typed


def unknown_fields(go_type: GoType, obj: Any, path: str) -> list[str]:
    """Paths in ``obj`` that this Go type does not have, and so would lose without a word."""
    try:
        return list(_unknown(obj, go_value(go_type, obj, path), path))
    except GoTypeError:
        return []


def _unknown(given: Any, known: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key in known:
                yield from _unknown(value, known[key], f"{path}.{key}")
            elif value:
                # What is empty is left out by Go whether it knows the field or not.
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(known, list):
        for index, (item, known_item) in enumerate(zip(given, known, strict=True)):
            yield from _unknown(item, known_item, f"{path}[{index}]")
