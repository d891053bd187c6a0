"""Strategies: how each kind is defaulted, prepared and validated, and the rules for object metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, quote, required
from app.kube.validation import is_dns1123_label, is_dns1123_subdomain, is_qualified_name, validate_annotations
from app.kube.validation import validate_labels as label_errors
from app.sandbox.apiserver.kinds import ResourceType

Json: TypeAlias = dict[str, Any]
#: Returns the errors in a name.
NameRule: TypeAlias = Callable[[str], list[str]]

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_METADATA: Final = Path("metadata")
_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHECKED: Final = ("name", "namespace", "generateName", "labels", "annotations", "ownerReferences", "finalizers")
_WIPED: Final = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp")


def wipe(metadata: Json) -> None:
    """Remove the metadata that only the server sets."""
    for name in _WIPED:
        metadata.pop(name, None)


def path_segment_errors(name: str) -> list[str]:
    """Return errors for characters and names that no kind allows."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


def prefixed(rule: NameRule, prefix: str) -> list[str]:
    """Return the errors in a prefix for generated names, which may end in a hyphen."""
    if prefix.endswith("-") and len(prefix) > 1:
        prefix = f"{prefix[:-2]}a"
    return rule(prefix)


def updated_metadata_errors(
    metadata: Mapping[str, Any], old: Mapping[str, Any], *, namespaced: bool
) -> list[FieldError]:
    """Return the errors in updated metadata, or none if it is unchanged: it was valid when it was stored."""
    if all(metadata.get(name) == old.get(name) for name in _CHECKED):
        return []
    return metadata_errors(metadata, namespaced=namespaced, rule=path_segment_errors)


def metadata_errors(metadata: Mapping[str, Any], *, namespaced: bool, rule: NameRule) -> list[FieldError]:
    """Return all errors in an object's metadata, in the server's order."""
    errors: list[FieldError] = []
    name, namespace = metadata.get("name") or "", metadata.get("namespace") or ""
    if generate := metadata.get("generateName") or "":
        at = _METADATA.child("generateName")
        errors += [invalid(at, generate, message) for message in prefixed(rule, generate)]
    if not name:
        errors.append(required(_METADATA.child("name"), "name or generateName is required"))
    else:
        errors += [invalid(_METADATA.child("name"), name, message) for message in rule(name)]
    if namespaced:
        if not namespace:
            errors.append(required(_METADATA.child("namespace")))
        else:
            errors += [invalid(_METADATA.child("namespace"), namespace, m) for m in is_dns1123_label(namespace)]
    elif namespace:
        errors.append(forbidden(_METADATA.child("namespace"), "not allowed on this type"))
    return errors + _common_errors(metadata)


def _common_errors(metadata: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    if labels := metadata.get("labels"):
        errors += label_errors(labels, _METADATA.child("labels"))
    if annotations := metadata.get("annotations"):
        errors += validate_annotations(annotations, _METADATA.child("annotations"))
    if owners := metadata.get("ownerReferences"):
        errors += _owner_errors(owners)
    for finalizer in metadata.get("finalizers") or ():
        at = _METADATA.child("finalizers")
        errors += [invalid(at, finalizer, message) for message in is_qualified_name(finalizer)]
    finalizers = metadata.get("finalizers") or ()
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        message = f"finalizer {FOREGROUND} and {ORPHAN} cannot be both set"
        errors.append(invalid(_METADATA.child("finalizers"), list(finalizers), message))
    return errors


def finalizer_errors(metadata: Mapping[str, Any]) -> list[FieldError]:
    """Return errors for finalizers that built-in kinds reject: non-standard ones without a domain."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(_METADATA.child("finalizers").index(index), finalizer, detail)
        for index, finalizer in enumerate(metadata.get("finalizers") or ())
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def finalizer_warnings(metadata: Mapping[str, Any]) -> list[str]:
    """Return warnings for the same finalizers on custom resources."""
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    return [f"metadata.finalizers: {quote(str(error.value))}: {advice}" for error in finalizer_errors(metadata)]


_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", ORPHAN, FOREGROUND})


def _owner_errors(owners: list[Json]) -> list[FieldError]:
    at = _METADATA.child("ownerReferences")
    errors: list[FieldError] = []
    controller = ""
    for owner in owners:
        place = at
        api_version = owner.get("apiVersion") or ""
        if not api_version or api_version.count("/") > 1:
            errors.append(invalid(place.child("apiVersion"), api_version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                errors.append(invalid(place.child(name), "", "must not be empty"))
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            shown = GoLiteral(orjson.dumps(owner).decode())
            errors.append(invalid(place, shown, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            current = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                message = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {current}"
                )
                errors.append(invalid(at, owners, message))
            else:
                controller = current
    return errors


def keep_server_fields(metadata: Json, old: Mapping[str, Any]) -> None:
    """Restore metadata that an update cannot change and may omit."""
    metadata["generation"] = old.get("generation")
    if metadata["generation"] is None:
        del metadata["generation"]
    if not metadata.get("uid"):
        metadata["uid"] = old.get("uid", "")
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.get(name):
            metadata[name] = old[name]
    if metadata.get("deletionTimestamp") is None:
        metadata.pop("deletionTimestamp", None)
    if old.get("deletionGracePeriodSeconds") is not None and metadata.get("deletionGracePeriodSeconds") is None:
        metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
    if not metadata.get("namespace") and old.get("namespace"):
        metadata["namespace"] = old["namespace"]


def update_errors(metadata: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Return errors for immutable metadata that an update changes."""
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        fresh = sorted(set(metadata.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if fresh:
            shown = ", ".join(f'"{name}"' for name in fresh)
            message = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{shown}}}"
            )
            errors.append(forbidden(_METADATA.child("finalizers"), message))
    for name in _IMMUTABLE:
        new, before = metadata.get(name), old.get(name)
        if (new or before) and new != before:
            errors.append(invalid(_METADATA.child(name), "" if new is None else new, "field is immutable"))
    return errors


def subdomain_rule(name: str) -> list[str]:
    """Return the errors in a DNS subdomain. Most kinds follow this rule."""
    return is_dns1123_subdomain(name)


def label_rule(name: str) -> list[str]:
    """Return the errors in a DNS label. Namespaces follow this rule."""
    return is_dns1123_label(name)


# The strategy of a kind: defaults, fields that the server sets, immutable fields. Kinds without a strategy follow the
# general rules.


def _nothing(_obj: Json) -> None:
    """Do nothing."""


def _no_change(_obj: Json, _old: Json) -> None:
    """Do nothing."""


def _no_errors(_obj: Json) -> list[FieldError]:
    return []


def _no_warnings(_obj: Json) -> list[str]:
    return []


def _no_update_errors(_obj: Json, _old: Json) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True)
class Strategy:
    """How objects of one resource are written."""

    #: Sets defaults; runs whenever an object is decoded.
    default: Callable[[Json], None] = _nothing
    #: Sets defaults in a status write, in which only the status can need them. None: use ``default``.
    default_status: Callable[[Json], None] | None = None
    #: Runs after the status has been removed and before validation.
    prepare_create: Callable[[Json], None] = _nothing
    prepare_update: Callable[[Json, Json], None] = _no_change
    #: Prepares a status write.
    prepare_status: Callable[[Json, Json], None] = _no_change
    errors: Callable[[Json], list[FieldError]] = _no_errors
    #: Errors in a create request, in addition to ``errors``.
    create_errors: Callable[[Json], list[FieldError]] = _no_errors
    #: Errors in an update request, in addition to ``errors``.
    update_errors: Callable[[Json, Json], list[FieldError]] = _no_update_errors
    #: All errors in a status write.
    status_errors: Callable[[Json, Json], list[FieldError]] = _no_update_errors
    #: Validation by subresource, for those that write a part of the spec. It replaces all other validation.
    part_errors: Mapping[str, Callable[[Json, Json], list[FieldError]]] = field(default_factory=dict)
    name_rule: NameRule = subdomain_rule
    #: Warnings about an object that is accepted.
    warnings: Callable[[Json], list[str]] = _no_warnings
    #: Returns the grace period of a deletion in seconds from the object and the requested period. None: no grace
    #: period.
    grace: Callable[[Json, int | None], int | None] | None = None
    #: Whether a create request may set the status.
    keeps_status: bool = False


def new_errors(errors: list[FieldError], before: list[FieldError]) -> list[FieldError]:
    """Return the errors that did not exist before. Values that an older schema allowed may remain."""
    known = set(map(str, before))
    return [error for error in errors if str(error) not in known]


def without_status(resource: ResourceType, obj: Json) -> None:
    """Remove the status, which a create request cannot set."""
    if resource.has_status:
        obj.pop("status", None)


def changed_outside_metadata(obj: Mapping[str, Any], old: Mapping[str, Any], *, status: bool) -> bool:
    """Return whether anything but the metadata differs. Without ``status``, differences of the status do not count."""
    skipped = {"metadata", "apiVersion", "kind"} if status else {"metadata", "apiVersion", "kind", "status"}
    keys = (obj.keys() | old.keys()) - skipped
    return any(obj.get(key) != old.get(key) for key in keys)
