"""Validation of a Pod template as a whole, and of its scheduling fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.api.core.containers import container_errors, host_port_errors, init_container_errors
from app.api.core.defaults import default_container, default_volume
from app.api.core.volumes import volume_errors
from app.api.fields import NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm, Toleration
from app.api.gocore import container_json
from app.api.gojson import GoType, GoTypeError, go_value
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    duplicate,
    invalid,
    not_supported,
    quote,
    required,
    type_invalid,
)
from app.kube.jsonvalues import json_copy
from app.kube.selectors import requirement_errors
from app.kube.validation import is_dns1123_subdomain, is_label_value, is_qualified_name

_Objects = Sequence[Mapping[str, Any]]


def pod_errors(containers: _Objects, init_containers: _Objects, volumes: _Objects, path: Path) -> list[FieldError]:
    """Return the errors in containers and volumes at ``path`` (such as ``spec``) of a Pod with restartPolicy Always.

    Defaults are filled in on a copy, including startup probes, so an omitted field is never an error. Either list of
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
        # Init containers run one by one, so host ports can conflict only within one of them.
        errors += host_port_errors([container], init_at)
    return errors


def _list_errors(path: Path, items: Any) -> list[FieldError]:
    """Return an error unless ``items`` is a list of objects: an unvalidated template may contain anything."""
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
    """Return the containers as Go marshals them: fields have the Go types, and empty fields are omitted."""
    typed = []
    for index, container in enumerate(containers):
        # Check types before defaulting, which skips values of the wrong type.
        copied = json_copy(container_json(container, str(path.index(index))))
        default_container(copied, startup_probe=True)
        typed.append(container_json(copied, str(path.index(index))))
    return typed


def unknown_fields(go_type: GoType, obj: Any, path: str) -> list[str]:
    """Return the paths in ``obj`` of fields that the Go type lacks, so that Go would drop them silently."""
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
                # Go omits an empty value whether it knows the field or not.
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(known, list):
        for index, (item, known_item) in enumerate(zip(given, known, strict=True)):
            yield from _unknown(item, known_item, f"{path}[{index}]")


# Node selector terms, preferred terms and tolerations, as in Kubernetes 1.34. [WS-10]

_SET: Final = ("In", "NotIn")
_NAME_FIELD: Final = "metadata.name"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_WEIGHT: Final = 100


def node_selector_term_errors(term: NodeSelectorTerm, path: Path) -> Iterator[FieldError]:
    """Validate a node selector term."""
    for index, requirement in enumerate(term.match_expressions or ()):
        at = path.child("matchExpressions").index(index)
        values = requirement.values or []
        yield from requirement_errors(requirement.key, requirement.operator, values, at, of_node=True)
    for index, requirement in enumerate(term.match_fields or ()):
        yield from _field_errors(requirement, path.child("matchFields").index(index))


def preferred_term_errors(terms: Sequence[PreferredSchedulingTerm], path: Path) -> Iterator[FieldError]:
    """Validate preferred terms."""
    for index, term in enumerate(terms):
        at = path.index(index)
        if not 0 < term.weight <= _MOST_WEIGHT:
            yield invalid(at.child("weight"), term.weight, "must be in the range 1-100")
        yield from node_selector_term_errors(term.preference, at.child("preference"))


def toleration_errors(tolerations: Sequence[Toleration], path: Path) -> Iterator[FieldError]:
    """Validate tolerations."""
    for index, toleration in enumerate(tolerations):
        yield from _toleration_errors(toleration, path.index(index))


def _field_errors(requirement: NodeSelectorRequirement, path: Path) -> Iterator[FieldError]:
    values = requirement.values or []
    if requirement.operator not in _SET:
        yield invalid(path.child("operator"), requirement.operator, "not a valid selector operator")
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(path.child("values"), detail)
    if requirement.key != _NAME_FIELD:
        yield invalid(path.child("key"), requirement.key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from [invalid(path.child("values").index(index), value, text) for text in is_dns1123_subdomain(value)]


def _toleration_errors(toleration: Toleration, path: Path) -> Iterator[FieldError]:
    operator = path.child("operator")
    if toleration.key:
        yield from [invalid(path.child("key"), toleration.key, text) for text in is_qualified_name(toleration.key)]
    elif toleration.operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(operator, toleration.operator, detail)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(path.child("effect"), toleration.effect, detail)
    if toleration.operator in ("Equal", ""):
        texts = is_label_value(toleration.value)
        if texts:
            yield invalid(operator, toleration.value, ";".join(texts))
    elif toleration.operator == "Exists":
        if toleration.value:
            yield invalid(operator, _go(toleration), "value must be empty when `operator` is 'Exists'")
    else:
        yield not_supported(operator, toleration.operator, ("Equal", "Exists"))
    if toleration.effect and toleration.effect not in _EFFECTS:
        yield not_supported(path.child("effect"), toleration.effect, _EFFECTS)


def _go(toleration: Toleration) -> GoLiteral:
    seconds = toleration.toleration_seconds
    return GoLiteral(
        f"core.Toleration{{Key:{quote(toleration.key)}, Operator:{quote(toleration.operator)}, "
        f"Value:{quote(toleration.value)}, Effect:{quote(toleration.effect)}, "
        f"TolerationSeconds:{'(*int64)(nil)' if seconds is None else seconds}}}"
    )
