"""What is special about a kind when it is written: defaults, what the server sets, what may not change.

A kind without a row here is treated like any other. The rows are data; the functions they name stand with their kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.kube.fielderrors import FieldError
from app.sandbox.apiserver import metadata
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.metadata import NameRule

Json: TypeAlias = dict[str, Any]


def _nothing(_obj: Json) -> None:
    """Nothing to do."""


def _no_change(_obj: Json, _old: Json) -> None:
    """Nothing to do."""


def _no_errors(_obj: Json) -> list[FieldError]:
    return []


def _no_warnings(_obj: Json) -> list[str]:
    return []


def _no_update_errors(_obj: Json, _old: Json) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True)
class Strategy:
    """How objects of one resource are written."""

    #: Fills in what may be left out; runs whenever an object is decoded.
    default: Callable[[Json], None] = _nothing
    #: The same of a write of the status, which leaves all else as it is; None: ``default`` is used.
    default_status: Callable[[Json], None] | None = None
    #: After status was taken away, before the object is validated.
    prepare_create: Callable[[Json], None] = _nothing
    prepare_update: Callable[[Json, Json], None] = _no_change
    #: The same of a write of the status.
    prepare_status: Callable[[Json, Json], None] = _no_change
    errors: Callable[[Json], list[FieldError]] = _no_errors
    #: Errors of a create in addition to ``errors``.
    create_errors: Callable[[Json], list[FieldError]] = _no_errors
    #: Errors of an update in addition to ``errors``.
    update_errors: Callable[[Json, Json], list[FieldError]] = _no_update_errors
    #: All errors of a write of the status.
    status_errors: Callable[[Json, Json], list[FieldError]] = _no_update_errors
    #: Subresources that write a part of the spec, each with what is checked in place of the rest.
    part_errors: Mapping[str, Callable[[Json, Json], list[FieldError]]] = field(default_factory=dict)
    name_rule: NameRule = metadata.subdomain_rule
    #: What a client is warned of although it is accepted.
    warnings: Callable[[Json], list[str]] = _no_warnings
    #: Seconds of grace for a deletion that asks for none in particular; None where deletions are immediate.
    grace: Callable[[Json, int | None], int | None] | None = None
    #: A create keeps the status it carries.
    keeps_status: bool = False


def new_errors(errors: list[FieldError], before: list[FieldError]) -> list[FieldError]:
    """The errors that were not there before: what was wrong under an older schema may stay so."""
    known = set(map(str, before))
    return [error for error in errors if str(error) not in known]


def without_status(resource: ResourceType, obj: Json) -> None:
    """Status is nothing that a create may set."""
    if resource.has_status:
        obj.pop("status", None)


def changed_outside_metadata(obj: Mapping[str, Any], old: Mapping[str, Any], *, status: bool) -> bool:
    """Whether anything but metadata differs; status counts only where it is no subresource."""
    skipped = {"metadata", "apiVersion", "kind"} if status else {"metadata", "apiVersion", "kind", "status"}
    keys = (obj.keys() | old.keys()) - skipped
    return any(obj.get(key) != old.get(key) for key in keys)
