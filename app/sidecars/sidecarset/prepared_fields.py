"""Fields of a stored SidecarSet, which may be of any type: read, or refused with their path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.kube.selectors import Selector, SelectorError, compile_selector


class UnusableSidecarSetError(ValueError):
    """A SidecarSet (or a revision of one) that cannot be injected as it stands; says which field and why."""


class MalformedSidecarSetError(UnusableSidecarSetError):
    """A SidecarSet with a field of another type than it must have. It was stored past all checks, so that nothing it
    says can be relied on: it is not injected, and keeps no Pod from being created."""


def selector_of(spec: Mapping[str, Any], field: str) -> Selector | None:
    """The selector in a field of a spec; None where there is none. Raises UnusableSidecarSetError."""
    value = spec.get(field)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MalformedSidecarSetError(f"spec.{field}: expected an object")
    try:
        return compile_selector(value)
    except SelectorError as error:
        raise UnusableSidecarSetError(f"spec.{field}: {error}") from error


def mapping(holder: Mapping[str, Any], field: str, prefix: str = "") -> Mapping[str, Any]:
    """The object in a field, an empty one where there is none. Raises MalformedSidecarSetError."""
    value = holder.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MalformedSidecarSetError(f"{prefix}{field}: expected an object")
    return value


def refuse_other_than_text(holder: Mapping[str, Any], field: str, prefix: str) -> None:
    """Raises MalformedSidecarSetError for a field that is there and no text."""
    if not isinstance(holder.get(field) or "", str):
        raise MalformedSidecarSetError(f"{prefix}{field}: expected a string")


def objects(
    holder: Mapping[str, Any], field: str, parent: str = "spec", *, named: bool = False
) -> Sequence[Mapping[str, Any]]:
    """The objects in a list, each with a name where they are ``named``. Raises MalformedSidecarSetError."""
    value = holder.get(field)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise MalformedSidecarSetError(f"{parent}.{field}: expected a list")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise MalformedSidecarSetError(f"{parent}.{field}[{index}]: expected an object")
        if named and not isinstance(item.get("name"), str):
            raise MalformedSidecarSetError(f"{parent}.{field}[{index}].name: expected a string")
    return value
